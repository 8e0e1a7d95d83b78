"""`docs/scripts/slot_counts.py`: scores with other numbers of slots, and what is made of them."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path

import pytest
import yaml
from docs_scripts import docs_script
from PIL import Image
from scipy.stats import ttest_ind
from tiny_discovery import tiny_discovery

from slotbench.cli import run
from slotbench.data.base import LoaderOptions

EXPERIMENT = tiny_discovery("SlotAttention", eval_frames=2, clips=(4, 10), baseline_clips=10)


@pytest.fixture(scope="module")
def script():
    with docs_script("slot_counts") as script:
        yield script


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("trained")

    def make(name: str, **core: object) -> Path:
        experiment = copy.deepcopy(EXPERIMENT)
        experiment["model"]["init_args"]["core"]["init_args"] |= core  # type: ignore[index]
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(experiment))
        patch = pytest.MonkeyPatch()
        # the command sets it, for processes that it starts
        patch.setenv("SLOTBENCH_RUN_DIR", "")
        assert run(["fit", "--config", str(folder / f"{name}.yaml"), "--runs_dir", str(folder)]) == 0
        patch.undo()
        (path,) = (folder / name).iterdir()
        return path

    return make


@pytest.fixture(scope="module")
def drawn(train) -> Path:
    return train("drawn", slot_init="gaussian", aggregation={"class_path": "WeightedSum"})


SLOTS = ["--slots", "2", "5", "--objects-slots", "5", "--clips", "10"]


def written(folder: Path) -> dict:
    (path,) = folder.glob("*.json")
    return json.loads(path.read_text())


@pytest.mark.slow
def test_scores_are_those_of_the_test_of_the_run(script, drawn: Path, tmp_path: Path) -> None:
    assert script.main(["run", str(drawn), *SLOTS, "--out", str(tmp_path)]) == 0
    found = written(tmp_path)
    assert found["aggregation"] == "WeightedSum"
    assert found["trained_slots"] == 3
    assert found["baselines"]["one slot"] == 0
    assert set(found["by_slots"]["own"]) == {"2", "3", "5"}
    for slots in ("3", "5"):
        assert run(["test", str(drawn), "--model.core.num_slots", slots]) == 0
        (record,) = drawn.glob("test-*[0-9].json")
        tested = json.loads(record.read_text())["metrics"]
        record.unlink()
        scores = found["by_slots"]["own"][slots]
        assert scores["clips"] == 10
        for name, (key, _, _) in script.SCORES.items():
            assert scores[name] == pytest.approx(tested[key], abs=1e-6), name
    assert found["by_slots"]["own"]["2"]["live_slots"] <= 2


@pytest.mark.slow
def test_what_is_done_is_not_done_again_unless_something_else_is_asked(script, drawn, tmp_path, capsys) -> None:
    command = ["run", str(drawn), "--slots", "2", "--objects-slots", "2", "--clips", "2", "--out", str(tmp_path)]
    assert script.main(command) == 0
    assert "wrote" in capsys.readouterr().out
    assert script.main(command) == 0
    assert "done before" in capsys.readouterr().out
    assert script.main([*command, "--clips", "3"]) == 0
    assert "wrote" in capsys.readouterr().out
    assert written(tmp_path)["by_slots"]["own"]["2"]["clips"] == 3


@pytest.mark.slow
def test_a_second_set_has_other_numbers_of_objects(script, drawn: Path, tmp_path: Path) -> None:
    command = [
        "run",
        str(drawn),
        *SLOTS,
        "--out",
        str(tmp_path),
        "--data.num_balls",
        "4",
        "--data.loader.test_size",
        "6",
    ]
    assert script.main(command) == 0
    found = written(tmp_path)
    assert found["by_slots"]["own"]["3"]["clips"] == 10
    assert found["by_slots"]["full"]["3"]["clips"] == 6
    assert found["objects_are"] == "visible in the clip"
    assert set(found["by_objects"]) == {"4"}
    assert found["by_objects"]["4"]["fg_ari"] == pytest.approx(found["by_slots"]["full"]["5"]["fg_ari"], abs=1e-6)


def test_baselines_are_of_the_clips_that_are_read_whatever_their_numbers(script) -> None:
    from slotbench.data.balls.bouncing_balls import BouncingBalls
    from slotbench.metrics.discovery_scores import DiscoveryScores

    data = BouncingBalls(loader=LoaderOptions(test_size=400, val_batch_size=2), num_frames=2, eval_frames=2)
    (batch,) = script.Clips(data, "test", 2, [300, 399]).loader()
    scores = DiscoveryScores(baseline_clips=200)
    scores.update_baselines(batch, 3)
    assert any("baseline/fg_ari" in name for name in scores.compute())


def test_clips_are_told_apart_by_their_objects(script) -> None:
    import torch

    from slotbench.data.balls.bouncing_balls import BouncingBalls
    from slotbench.interfaces import VideoBatch

    class Counted(BouncingBalls):
        def dataset(self, split):
            inner = super().dataset(split)
            plain = inner.clips

            def clips(indices) -> VideoBatch:
                batch = plain(indices)
                batch.objects["num_objects"] = torch.tensor([index % 3 for index in indices])
                return batch

            inner.clips = clips
            return inner

    data = Counted(num_balls=1, eval_frames=1, resolution=16, loader=LoaderOptions(test_size=8, val_batch_size=4))
    groups, counted = script.Clips(data, "test", 7).by_objects()
    assert counted == "in the scene"
    assert sum(len(group.chosen) for group in groups.values()) == 7
    assert all(index % 3 == count for count, group in groups.items() for index in group.chosen)
    again, _ = script.Clips(data, "test", 7).by_objects()
    assert {count: group.chosen for count, group in again.items()} == {c: group.chosen for c, group in groups.items()}


@pytest.mark.slow
def test_iterations_of_the_test_are_set_and_recorded(script, drawn: Path, tmp_path: Path, capsys) -> None:
    command = ["run", str(drawn), "--slots", "5", "--objects-slots", "5", "--clips", "10", "--out"]
    assert script.main([*command, str(tmp_path / "as trained")]) == 0
    assert script.main([*command, str(tmp_path / "more"), "--iterations", "4"]) == 0
    trained, more = written(tmp_path / "as trained"), written(tmp_path / "more")
    assert (trained["iterations"], trained["trained_iterations"]) == (1, 1)
    assert (more["iterations"], more["trained_iterations"], more["asked"]["iterations"]) == (4, 1, 4)
    assert "iterations" not in trained["asked"]
    assert more["validation"] == trained["validation"]
    arguments = ["--model.core.num_slots", "5", "--model.core.num_iterations", "4"]
    assert run(["test", str(drawn), *arguments]) == 0
    (path,) = drawn.glob("test-*[0-9].json")
    tested = json.loads(path.read_text())["metrics"]
    path.unlink()
    for scores in (more["by_slots"]["own"]["5"], more["by_objects"]["2"]):
        assert scores["loss"] == pytest.approx(tested["test/loss"], rel=1e-6)
    assert trained["by_slots"]["own"]["5"]["loss"] != pytest.approx(tested["test/loss"], rel=1e-6)
    capsys.readouterr()
    assert script.main([*command, str(tmp_path / "more"), "--iterations", "5"]) == 0
    assert "wrote" in capsys.readouterr().out


def test_a_core_without_iterations_is_refused_where_they_are_asked_for(script, drawn, tmp_path, monkeypatch, capsys):
    from slotbench_plugins.cores.slot_attention import SlotAttention

    before = SlotAttention.__init__

    def without(self, *args, **kwargs):
        before(self, *args, **kwargs)
        del self.num_iterations

    without.__wrapped__ = before  # whose arguments the parser reads
    monkeypatch.setattr(SlotAttention, "__init__", without)
    assert script.main(["run", str(drawn), *SLOTS, "--iterations", "5", "--out", str(tmp_path)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "SlotAttention of" in said
    assert "has no num_iterations" in said


def record(seed: int, fg_ari: float, aggregation: str = "WeightedMean", **changed: object) -> dict:
    scores = {"clips": 9, "ari": 0.1, "miou": 0.2, "loss": 0.3, "largest_slot": 0.4, "live_slots": 5.0}
    curve = {str(slots): scores | {"fg_ari": fg_ari} for slots in (7, 11)}
    return {
        "run": f"{aggregation}-{seed}",
        "id": str(seed),
        "aggregation": aggregation,
        "seed": seed,
        "trained_slots": 7,
        "asked": {"checkpoint": str(seed), "objects_slots": 11},
        "config": {"model": {"dim": 8}, "data": {"init_args": {"loader": {"seed": 0}}}},
        "baselines": {"grid 2x3": 0.25},
        "validation": scores | {"fg_ari": fg_ari},
        "by_slots": {"own": curve, "full": curve},
        "objects_are": "in the scene",
        "by_objects": {"3": curve["7"], "4": curve["7"]},
    } | changed


@pytest.fixture
def reported(script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Writes the report, and its figures only if asked to: they take most of the time."""

    def report(*records: dict, drawn: bool = False) -> str:
        if not drawn:
            for draw in ("draw_panels", "draw_trainings"):
                monkeypatch.setattr(sys.modules["report_slot_counts"], draw, lambda *given: None)
        (tmp_path / "in").mkdir()
        for number, content in enumerate(records):
            (tmp_path / "in" / f"{number}.json").write_text(json.dumps(content))
        code = script.main(["report", str(tmp_path / "in"), "--out", str(tmp_path / "out")])
        captured = capsys.readouterr()
        assert code == (2 if captured.err else 0)
        return captured.err or (tmp_path / "out" / "slot_counts.md").read_text()

    return report


def test_runs_are_summed_up_by_median_and_largest_deviation(reported, tmp_path: Path) -> None:
    text = reported(*(record(seed, value) for seed, value in enumerate([0.70, 0.72, 0.80])), drawn=True)
    (row,) = [
        line
        for block in text.split("**FG-ARI; objects as in training, by slots; all runs**")[1:]
        for line in block.splitlines()[:6]
        if line.startswith("| WeightedMean")
    ]
    assert row == "| WeightedMean | " + "0.720 ± 0.080 (0.740 ± 0.053) | " * 2 + "3 |"
    assert "**ARI; full set, 11 slots, by objects in the scene; all runs**" in text
    assert "No run is spatial." in text
    with (
        Image.open(tmp_path / "out" / "slot_counts_ari.png") as six,
        Image.open(tmp_path / "out" / "slot_counts_loss.png") as three,
    ):
        assert six.width == three.width
        assert six.height == pytest.approx(2 * three.height, abs=2)


def test_the_report_says_where_the_test_had_other_iterations(reported) -> None:
    asked = {"checkpoint": "1", "objects_slots": 11, "iterations": 5}
    text = reported(record(0, 0.8, iterations=5, trained_iterations=3, asked=asked))
    assert "Tested with 5 iterations, trained with 3; the validation split is scored as in training." in text


def test_the_report_says_nothing_of_iterations_as_in_training(reported) -> None:
    assert "iterations" not in reported(record(0, 0.8), record(1, 0.7, iterations=3, trained_iterations=3))


def test_spatial_runs_are_named_and_left_out_of_the_second_tables_only(reported) -> None:
    runs = [record(0, 0.8), record(1, 0.3), record(0, 0.7, "WeightedSum"), record(4, 0.39, "WeightedSum")]
    text = reported(*runs)
    assert "WeightedMean seed 1, WeightedSum seed 4" in text
    assert "| *grid 2x3* | | 0.250 | |" in text
    assert "| WeightedMean | 1 | 0.300 | spatial |" in text
    assert "| WeightedSum | 0 | 0.700 | above every baseline |" in text
    everything, kept = text.split("Spatial, by FG-ARI")
    assert "| WeightedMean | 0.550 ± 0.250" in everything
    assert "| WeightedMean | 0.800 | 0.800 | 1 |" in kept
    assert "| WeightedSum | 0.700 | 0.700 | 1 |" in kept


def test_runs_with_other_slots_in_training_are_a_group_of_their_own(reported) -> None:
    text = reported(record(0, 0.8), record(1, 0.3, trained_slots=11))
    assert "| WeightedMean, 7 slots | 0.800 |" in text
    assert "| WeightedMean, 11 slots | 0.300 |" in text
    assert text.index("| WeightedMean, 7 slots |") < text.index("| WeightedMean, 11 slots |")
    assert "No run is spatial." in text


def test_what_more_slots_change_is_counted_run_by_run(reported) -> None:
    runs = [record(0, 0.8), record(1, 0.3)]
    for content, change in zip(runs, (-0.05, -0.07), strict=True):
        content["by_slots"] = copy.deepcopy(content["by_slots"])
        content["by_slots"]["own"]["11"]["fg_ari"] += change
    _, text = reported(*runs).split("**FG-ARI; objects as in training, less that with the slots of the training;")
    (row,) = [line for line in text.splitlines()[:6] if line.startswith("| WeightedMean")]
    assert row == "| WeightedMean | 0.000 ± 0.000 (0.000 ± 0.000) | -0.060 ± 0.010 (-0.060 ± 0.014) | 2 |"


def test_changes_of_three_runs_and_more_are_tested_against_each_other(reported) -> None:
    changes = {"WeightedMean": [-0.078, -0.073, -0.053], "WeightedSum": [-0.007, 0.014, -0.017], "Few": [0.1, 0.2]}
    runs = []
    for name, of in changes.items():
        for seed, change in enumerate(of):
            runs.append(record(seed, 0.7, name))
            runs[-1]["by_slots"] = copy.deepcopy(runs[-1]["by_slots"])
            runs[-1]["by_slots"]["own"]["11"]["fg_ari"] += change
    p = ttest_ind(changes["WeightedMean"], changes["WeightedSum"], equal_var=False).pvalue
    (line,) = [line for line in reported(*runs).splitlines() if "Welch" in line]
    assert line.endswith(f"not corrected: WeightedMean and WeightedSum {p:.3f}.")
    assert line.startswith("Change from 7 to 11 slots, p")


def test_trainings_of_an_aggregation_are_tested_against_each_other(reported) -> None:
    few, many = [0.70, 0.66, 0.68], [0.53, 0.50, 0.58]
    runs = [record(seed, value) for seed, value in enumerate(few)]
    runs += [record(seed, value, trained_slots=11) for seed, value in enumerate(many)]
    text = reported(*runs, record(0, 0.6, "WeightedSum"), record(0, 0.5, "WeightedSum", trained_slots=11))
    p = ttest_ind(few, many, equal_var=False).pvalue
    (line,) = [line for line in text.splitlines() if "by training, p of Welch" in line]
    assert line.startswith("WeightedMean, FG-ARI with 11 slots, full set, by training")
    assert line.endswith(f"7 slots and 11 slots {p:.4f}.")


def test_runs_whose_largest_slot_has_half_the_image_are_told_from_the_others(reported) -> None:
    runs = [record(seed, value) for seed, value in enumerate([0.52, 0.6, 0.58, 0.67])]
    for content, share in zip(runs, (0.8, 0.5, 0.71, 0.29), strict=True):
        content["validation"] |= {"largest_slot": share}
    lines = reported(*runs, record(0, 0.4, trained_slots=11)).splitlines()
    assert (
        "| 7 slots | half and more | 3 | 0.520 to 0.600 | 0.100 to 0.100 | 0.200 to 0.200 | 0.500 to 0.800 |" in lines
    )
    assert "| 7 slots | less | 1 | 0.670 to 0.670 | 0.100 to 0.100 | 0.200 to 0.200 | 0.290 to 0.290 |" in lines
    assert "| 11 slots | half and more | 0 |  |  |  |  |" in lines
    # more of the largest slot, less FG-ARI, in every pair of runs
    assert "Spearman's correlation of FG-ARI and the largest slot's share: 7 slots -1.00." in lines


def test_a_figure_lays_one_training_beside_another(reported, tmp_path: Path, monkeypatch) -> None:
    figures = []
    drawing = sys.modules["draw_slot_counts"]
    empty_figure = drawing.empty_figure
    monkeypatch.setattr(drawing, "empty_figure", lambda *size: figures.append(empty_figure(*size)) or figures[-1])
    runs = [record(0, 0.8), record(1, 0.6), record(2, 0.3), record(3, 0.5, trained_slots=11)]
    reported(*runs, drawn=True)
    assert (tmp_path / "out" / "slot_counts_trainings.png").is_file()
    few, many, beside, *with_background = figures[-1].axes
    assert [len(axis.lines) for axis in with_background] == [len(axis.lines) - 1 for axis in (few, many)] + [6]
    assert [axis.get_title("left") for axis in (few, many)] == ["trained with 7 slots", "trained with 11 slots"]
    curves = {line.get_linestyle(): list(line.get_ydata()) for line in few.lines if len(line.get_xdata()) == 2}
    assert curves["-"] == pytest.approx([0.7, 0.7])  # the median without the spatial run, which is dotted
    (baseline,) = (line for line in many.lines if line.get_label() == "best baseline")
    assert (list(baseline.get_xdata()), list(baseline.get_ydata())) == ([11], [0.25])
    marks = {line.get_ydata()[0]: line.get_markerfacecolor() for line in beside.lines if len(line.get_ydata()) == 1}
    assert set(marks) == {0.8, 0.6, 0.3, 0.5}
    assert [value for value, face in marks.items() if isinstance(face, str)] == [0.3]  # "none"


def test_runs_of_one_training_have_no_such_figure(reported, tmp_path: Path) -> None:
    reported(record(0, 0.8), record(1, 0.6, "WeightedSum"), drawn=True)
    assert not (tmp_path / "out" / "slot_counts_trainings.png").exists()


def test_runs_with_other_objects_in_training_are_a_group_of_their_own(reported) -> None:
    asked = {"objects_slots": 11, "full": ["--data.num_objects", "[3, 10]"]}

    def trained(seed: int, fg_ari: float, most: int, grid: float) -> dict:
        config = {"model": {"dim": 8}, "data": {"init_args": {"num_objects": [3, most], "loader": {"seed": 0}}}}
        asked_of_it = asked | {"checkpoint": f"{seed} {most}"}
        return record(seed, fg_ari, config=config, asked=asked_of_it, baselines={"one slot": 0.0, "grid 2x3": grid})

    text = reported(trained(0, 0.8, 6, 0.25), trained(1, 0.7, 6, 0.25), trained(0, 0.3, 10, 0.35))
    assert "| WeightedMean, num_objects [3, 6], 7 slots | 0.750 ± 0.050" in text
    assert "| WeightedMean, num_objects [3, 10], 7 slots | 0.300 |" in text
    assert "| *grid 2x3*, num_objects [3, 6], 7 slots | | 0.250 | |" in text
    assert "| *grid 2x3*, num_objects [3, 10], 7 slots | | 0.350 | |" in text
    assert "| WeightedMean, num_objects [3, 10], 7 slots | 0 | 0.300 |  |" in text
    assert "No run is spatial." in text


def test_runs_that_do_not_compare_are_not_pooled(reported) -> None:
    other = {"model": {"dim": 16}, "data": {"init_args": {"loader": {"seed": 5}}}}
    said = reported(record(0, 0.8), record(1, 0.8, config=other))
    assert said.startswith("slot_counts: WeightedMean-0 and WeightedMean-1 differ in config.model.dim, and belong in")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "RUN", "--out", "OUT", "--slots", "0"], "take numbers from 1 on"),
        (["run", "RUN", "--out", "OUT", "--iterations", "0"], "take numbers from 1 on"),
        (["run", "RUN", "--out", "OUT", "--model.core", "PSB"], "no argument --model.core PSB"),
        (["run", "nowhere", "--out", "OUT"], "no run folder at nowhere"),
        (["run", "RUN", "--out", "OUT", "--data.num_bals", "3"], "num_bals"),
        (["report", "OUT"], "there is nothing in"),
    ],
)
def test_what_cannot_be_done_is_said(script, drawn, tmp_path, arguments, message, capsys) -> None:
    places = {"RUN": str(drawn), "OUT": str(tmp_path)}
    assert script.main([places.get(argument, argument) for argument in arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_learned_slots_and_a_missing_checkpoint_are_refused(script, train, tmp_path, capsys) -> None:
    learned = train("learned", slot_init="learned")
    assert script.main(["run", str(learned), "--out", str(tmp_path)]) == 2
    assert "are not drawn, so their number cannot change" in " ".join(capsys.readouterr().err.split())
    (learned / "checkpoints" / "last.ckpt").unlink()
    for file in learned.glob("checkpoints/*"):
        file.unlink()
    assert script.main(["run", str(learned), "--out", str(tmp_path)]) == 2
    assert "has no checkpoint yet" in " ".join(capsys.readouterr().err.split())
