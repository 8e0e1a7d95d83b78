"""A grid with a protocol: a learning rate for every variant first, then the seeds that are reported."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import stand_in_grid

from slotbench.cli import run
from slotbench.config.tree import material_settings
from slotbench.errors import UserError
from slotbench.grids.expansion import expand
from slotbench.grids.grid_file import read_grid_file, with_axes

RUNS = "runs/widths"


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory in which the stand-in trains."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    stand_in_grid.stand_in(monkeypatch)
    return tmp_path


def trained() -> dict[str, int]:
    """How often each point has been started."""
    return {name.rpartition("-")[0]: count for name, count in stand_in_grid.starts(Path(RUNS)).items()}


def record() -> dict:
    content = json.loads((Path(RUNS) / "grid.json").read_text())
    assert isinstance(content, dict)
    return content


def with_depths(file: Path) -> Path:
    """The grid file with another axis."""
    widths = "model.core.dim: [1, 2]"
    file.write_text(file.read_text().replace(widths, f"{widths}\n  data.depth: [3, 4, 5]"))
    return file


FIRST = {f"dim={width},lr={rate},seed=9" for width in (1, 2) for rate in (0.1, 0.2, 0.3)}
SECOND = {f"dim={width},lr={rate},seed={seed}" for width, rate in ((1, 0.1), (2, 0.2)) for seed in (0, 1)}


def test_every_variant_is_reported_at_the_rate_that_was_best_for_it_on_another_seed(workspace, capsys):
    grid = stand_in_grid.write_protocol(workspace)
    assert {point.name for point in grid.points} == FIRST
    assert run(["grid", "run", "widths.yaml"]) == 0
    assert trained() == dict.fromkeys(FIRST | SECOND, 1)
    said = capsys.readouterr().out
    assert said.index("stage 1 of 2") < said.index("1: lr 0.1 is chosen") < said.index("stage 2 of 2")
    assert "2: lr 0.2 is chosen (val/loss at 0.1: 3, 0.2: 2.9, 0.3: 3)" in said
    assert said.count("compare them: slotbench compare widths.yaml") == 1
    assert [variant["chosen"] for variant in record()["protocol"]["variants"]] == [0.1, 0.2]
    assert run(["grid", "run", "widths.yaml"]) == 0
    assert set(trained().values()) == {1}
    stages = {point["id"].rpartition("-")[0]: point["stage"] for point in record()["points"]}
    assert stages == dict.fromkeys(FIRST, "choose") | dict.fromkeys(SECOND, "report")


def test_reported_points_are_tested_once_and_one_that_fails_stops_no_other(workspace, capsys, monkeypatch):
    stand_in_grid.write_protocol(workspace)
    assert run(["grid", "test", "widths.yaml"]) == 2
    assert "has no reported points yet" in capsys.readouterr().err
    assert run(["grid", "run", "widths.yaml"]) == 0
    calls = []

    def test(command: list[str], **options: object) -> subprocess.CompletedProcess[bytes]:
        assert command[2:5] == ["-m", "slotbench", "test"]
        assert command[6:] == ["--threads", "1"]
        folder = Path(command[5])
        calls.append(folder.name.rpartition("-")[0])
        if len(calls) == 1:
            return subprocess.CompletedProcess(command, 1, b"no space")
        (folder / "test-20261128-120000.json").write_text("{}")
        return subprocess.CompletedProcess(command, 0, b"")

    monkeypatch.setattr("slotbench.commands.grid.show.subprocess.run", test)
    assert run(["grid", "test", "widths.yaml", "--threads", "1"]) == 1
    said = capsys.readouterr()
    assert set(calls) == SECOND
    assert "3 of 4 reported points tested, 0 not done" in said.out
    assert "no space" in said.err
    assert run(["grid", "test", "widths.yaml", "--threads", "1"]) == 0
    assert calls[4:] == calls[:1]
    next(Path(RUNS).glob("*seed=1*/result.json")).unlink()
    assert run(["grid", "test", "widths.yaml"]) == 1
    assert "1 not done" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("action", "settings", "recorded"),
    [
        (
            "test",
            "--data.eval_frames 9 --model.metric_weights.fvd i3d.pt",
            ["data.eval_frames", "9"],
        ),
        ("test", "--checkpoint best --trainer.devices 1", ["checkpoint", "best"]),
        ("probe", "--match position --data.path elsewhere", ["match", "position"]),
    ],
)
def test_settings_go_to_every_point_once(workspace, monkeypatch, action, settings, recorded):
    stand_in_grid.write_protocol(workspace)
    assert run(["grid", "run", "widths.yaml"]) == 0
    for folder in Path(RUNS).glob("*seed=0*"):
        (folder / "test-20261128-120000.json").write_text("{}")
        (folder / "probe.json").write_text("{}")
    calls = []

    def evaluate(command: list[str], **options: object) -> subprocess.CompletedProcess[bytes]:
        assert command[2:5] == ["-m", "slotbench", action]
        calls.append(Path(command[5]).name.rpartition("-")[0])
        words = command[6:]
        settings = material_settings(words)
        name = "probe.json" if action == "probe" else "test-20261128-130000.json"
        (Path(command[5]) / name).write_text(json.dumps({"settings": settings}))
        assert settings[recorded[0]] == recorded[1]
        return subprocess.CompletedProcess(command, 0, b"")

    monkeypatch.setattr("slotbench.commands.grid.show.subprocess.run", evaluate)
    for _ in range(2):
        assert run(["grid", action, "widths.yaml", *settings.split()]) == 0
        assert sorted(calls) == sorted(SECOND)
    assert record()["extra"] == []


def test_a_rate_that_is_added_is_tried_and_nothing_else_is_run_again(workspace):
    stand_in_grid.write_protocol(workspace, rates=(0.2, 0.3))
    assert run(["grid", "run", "widths.yaml"]) == 0
    before = trained()
    assert {name for name in before if name.startswith("dim=1")} >= {"dim=1,lr=0.2,seed=0", "dim=1,lr=0.2,seed=1"}
    stand_in_grid.write_protocol(workspace, rates=(0.2, 0.3, 0.1))
    assert run(["grid", "run", "widths.yaml"]) == 0
    new = {"dim=1,lr=0.1,seed=9", "dim=2,lr=0.1,seed=9", "dim=1,lr=0.1,seed=0", "dim=1,lr=0.1,seed=1"}
    assert trained() == before | dict.fromkeys(new, 1)


def test_a_best_rate_at_an_end_is_said_and_the_range_goes_on_until_it_is_inside(workspace, capsys):
    stand_in_grid.write_protocol(workspace, widths=(3,), rates=(0.1, 0.2, 0.3))
    assert run(["grid", "run", "widths.yaml"]) == 0
    assert "0.3: 3.9); an end of the range: go on with --axis lr+=VALUE" in capsys.readouterr().out
    before = trained()
    assert run(["grid", "run", "widths.yaml", "--axis", "lr+=0.4"]) == 0
    assert "an end of" not in capsys.readouterr().out
    assert trained() == before | {"dim=3,lr=0.4,seed=9": 1}
    assert record()["protocol"]["values"] == [0.1, 0.2, 0.3, 0.4]


def test_a_rate_that_diverges_counts_as_worst(workspace, capsys):
    stand_in_grid.write_protocol(workspace)
    stand_in_grid.fault(workspace, 1, 9, "diverge").rename("faults/1-9-0.1")
    assert run(["grid", "run", "widths.yaml"]) == 0
    assert "1: lr 0.2 is chosen (val/loss at 0.1: diverged, 0.2: 2, 0.3: 2.1)" in capsys.readouterr().out
    assert {"dim=1,lr=0.2,seed=0", "dim=1,lr=0.2,seed=1"} <= set(trained())
    assert run(["grid", "show", "widths.yaml"]) == 0
    assert run(["grid", "run", "widths.yaml"]) == 0
    assert set(trained().values()) == {1}


def test_a_variant_that_diverges_at_every_rate_is_said_and_stops_no_other(workspace, capsys):
    stand_in_grid.write_protocol(workspace)
    stand_in_grid.fault(workspace, 1, 9, "diverge")
    assert run(["grid", "run", "widths.yaml"]) == 1
    said = capsys.readouterr().out
    assert "1: it diverges at every lr, so there is nothing to report" in said
    assert "1 variant without reported seeds" in said
    assert {name for name in trained() if not name.endswith("seed=9")} == {
        "dim=2,lr=0.2,seed=0",
        "dim=2,lr=0.2,seed=1",
    }
    assert run(["grid", "show", "widths.yaml"]) == 1
    assert record()["protocol"]["variants"][0]["diverged"] is True


def test_a_candidate_that_failed_leaves_its_variant_open_until_it_is_run_again(workspace, capsys):
    stand_in_grid.write_protocol(workspace)
    fault = stand_in_grid.fault(workspace, 2, 9, "raise").rename("faults/2-9-0.3")
    assert run(["grid", "run", "widths.yaml"]) == 1
    assert "2: lr is not chosen yet (val/loss at 0.1: 3, 0.2: 2.9, 0.3: not done)" in capsys.readouterr().out
    assert not [name for name in trained() if re.match("dim=2.*seed=[01]", name)]
    assert {"dim=1,lr=0.1,seed=0", "dim=1,lr=0.1,seed=1"} <= set(trained())
    fault.unlink()
    assert run(["grid", "run", "widths.yaml", "--retry-failed"]) == 0
    assert trained() == dict.fromkeys(FIRST | SECOND, 1) | {"dim=2,lr=0.3,seed=9": 2}


def test_higher_scores_are_chosen_where_they_are_better(workspace):
    stand_in_grid.write_protocol(workspace)
    file = workspace / "widths.yaml"
    file.write_text(file.read_text().replace("seed: 9", "seed: 9, higher_is_better: true"))
    assert run(["grid", "run", "widths.yaml"]) == 0
    # the first of equals where two are as far off
    assert [variant["chosen"] for variant in record()["protocol"]["variants"]] == [0.3, 0.1]


def test_a_choice_at_one_value_of_an_axis_holds_for_its_other_values(workspace, capsys):
    stand_in_grid.write_protocol(workspace)
    file = with_depths(workspace / "widths.yaml")
    file.write_text(file.read_text().replace("seed: 9", "seed: 9, at: {data.depth: 4}"))
    assert run(["grid", "show", "widths.yaml"]) == 1
    said = capsys.readouterr().out
    assert "model.optimizer.lr is chosen by val/loss at data.depth 4 on seed 9, not reported" in said
    assert "12 points of reported seeds will follow from 2 variants without a choice yet" in said
    assert run(["grid", "run", "widths.yaml"]) == 0
    first = {f"depth=4,{name}" for name in FIRST}
    second = {f"depth={depth},{name}" for depth in (3, 4, 5) for name in SECOND}
    assert trained() == dict.fromkeys(first | second, 1)
    assert "2: lr 0.2 is chosen (val/loss at 0.1: 3, 0.2: 2.9, 0.3: 3)" in capsys.readouterr().out
    assert record()["protocol"]["at"] == {"data.depth": 4}
    assert run(["grid", "run", "widths.yaml"]) == 0
    assert set(trained().values()) == {1}


def test_several_seeds_choose_by_their_mean(workspace, capsys):
    stand_in_grid.write_protocol(workspace)
    file = workspace / "widths.yaml"
    file.write_text(file.read_text().replace("seed: 9", "seed: [8, 9]"))
    # seed 9 alone would choose 0.3 for the first width: 1.8 against 1.9
    stand_in_grid.fault(workspace, 1, 9, "loss 1.8").rename("faults/1-9-0.3")
    # and one of two that diverges is none to report
    stand_in_grid.fault(workspace, 2, 8, "diverge").rename("faults/2-8-0.2")
    assert run(["grid", "show", "widths.yaml"]) == 1
    assert "is chosen by val/loss on seeds 8, 9, not reported" in capsys.readouterr().out
    assert run(["grid", "run", "widths.yaml", "--only", "seed=8"]) == 1
    assert {name[-6:] for name in trained()} == {"seed=8"}
    assert run(["grid", "run", "widths.yaml"]) == 0
    said = capsys.readouterr().out
    assert "1: lr 0.1 is chosen (mean val/loss at 0.1: 1.85, 0.2: 1.95, 0.3: 1.9)" in said
    assert "2: lr 0.1 is chosen (mean val/loss at 0.1: 2.95, 0.2: diverged, 0.3: 2.95)" in said
    reported = {f"dim={width},lr=0.1,seed={seed}" for width in (1, 2) for seed in (0, 1)}
    assert trained() == dict.fromkeys(FIRST | {name.replace("=9", "=8") for name in FIRST} | reported, 1)
    assert record()["protocol"]["seed"] == [8, 9]


@pytest.mark.parametrize(
    ("protocol", "words"),
    [
        ("{values: [1]}", "two or more different values"),
        ("{seed: 1}", "the seed 1 is a reported one"),
        ("{by: val/depth}", "nothing says whether more of val/depth is better"),
        ("{choose: model.core.dim}", "model.core.dim is given twice"),
        ("{at: {data.depth: 6}}", "at names data.depth 6"),
    ],
)
def test_a_protocol_that_cannot_be_is_refused(workspace, protocol, words):
    stand_in_grid.write_grid(workspace, (1, 2), seeds=2)
    file = with_depths(workspace / "widths.yaml")
    file.write_text(file.read_text() + f"metrics: [val/loss]\nprotocol: {protocol}\n")
    with pytest.raises(UserError, match=words):
        expand(read_grid_file(file))


def test_without_more_words_the_protocol_is_the_usual_one(workspace):
    stand_in_grid.write_grid(workspace, (1, 2), seeds=5)
    file = workspace / "widths.yaml"
    file.write_text(file.read_text() + "metrics: [val/fg_ari]\nprotocol: true\n")
    protocol = read_grid_file(file).protocol
    assert protocol is not None
    assert (protocol.key, protocol.seeds) == ("model.optimizer.lr", (1000, 1001))
    assert (protocol.metric, protocol.higher_is_better) == ("val/loss", False)
    grid = expand(read_grid_file(file))
    assert len(grid.points) == 2 * 3 * 2
    assert len(grid.candidates) == 2 * 3 * (2 + 5)


class TestAxes:
    def test_a_value_that_is_added_is_run_beside_the_others_and_remembered(self, workspace, capsys):
        stand_in_grid.write_protocol(workspace)
        assert run(["grid", "run", "widths.yaml"]) == 0
        assert run(["grid", "run", "widths.yaml", "--axis", "dim+=3"]) == 0
        new = {*(f"dim=3,lr={rate},seed=9" for rate in (0.1, 0.2, 0.3)), "dim=3,lr=0.3,seed=0", "dim=3,lr=0.3,seed=1"}
        assert trained() == dict.fromkeys(FIRST | SECOND | new, 1)
        assert record()["axes"] == ["dim+=3"]
        capsys.readouterr()
        assert run(["grid", "show", "widths.yaml"]) == 0
        assert "as last run, with --axis dim+=3" in capsys.readouterr().out

    def test_values_take_the_place_of_the_files(self, workspace):
        stand_in_grid.write_grid(workspace, (1, 2))
        assert run(["grid", "run", "widths.yaml", "--axis", "model.core.dim=4,5"]) == 0
        assert set(trained()) == {"dim=4,seed=0", "dim=5,seed=0"}

    def test_a_core_stands_beside_the_files_of_the_axis_config(self, workspace):
        stand_in_grid.write_grid(workspace, (1,))
        (workspace / "A.yaml").write_text("model: {init_args: {core: A}}\n")
        file = workspace / "widths.yaml"
        file.write_text("base: base.yaml\nproduct: {config: [A.yaml]}\n")
        content = read_grid_file(file)
        grid = expand(with_axes(content, ["core+=MyCore,{class_path: Other, init_args: {dim: 3}}"]))
        assert [point.labels["config"] for point in grid.points] == ["A", "MyCore", "Other dim 3"]
        assert [point.settings.get("model.core") for point in grid.points][:2] == [None, "MyCore"]
        assert grid.points[1].arguments == ("--config", "base.yaml", "--model.core", "MyCore", "--seed_everything", "0")
        # the file's own points stay what they are
        assert grid.points[0] == expand(content).points[0]

    @pytest.mark.parametrize("word", ["dim", "depth=1", "dim=", "dim+={", "core+=MyCore"])
    def test_what_is_no_axis_is_refused(self, workspace, word, capsys):
        stand_in_grid.write_grid(workspace, (1, 2))
        assert run(["grid", "run", "widths.yaml", "--axis", word]) == 2
        assert f"--axis {word.partition('=')[0].rstrip('+')}" in capsys.readouterr().err
