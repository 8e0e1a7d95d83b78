"""Runs as they are read: folders, grids, CSV files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from made_up_runs import config, make_run

from slotbench.comparison.formats import to_csv
from slotbench.comparison.run_folders import newest_media, read_curves, read_run_folder
from slotbench.comparison.runs import ComparisonError
from slotbench.comparison.settings import flat_settings, only_runs
from slotbench.comparison.sources import read_sources
from slotbench.comparison.table import compare
from slotbench.comparison.wandb_runs import parse_address, read_wandb
from slotbench.metric_info import info_of

RECORDS = Path(__file__).parents[2] / "experiments" / "grids" / "records"


def test_a_finished_run(tmp_path):
    run = read_run_folder(make_run(tmp_path / "balls" / "one", config("RIM", 3, top_k=4.0), {"val/iou": 0.5}))
    assert (run.id, run.facts["name"], run.facts["state"]) == ("one", "balls", "finished")
    assert (run.facts["parameters"], run.facts["step"]) == (1500, 100)
    assert run.scores == {"val/iou": 0.5}
    assert (run.settings["model.core"], run.settings["model.core.top_k"]) == ("RIM", "4")
    assert "ckpt_path" not in run.settings


@pytest.mark.parametrize(
    ("record", "result", "state"),
    [
        ("running", None, "running"),
        ("failed", None, "failed"),
        ("running", {"state": "finished"}, "finished"),
        ("diverged", {"state": "diverged"}, "diverged"),
    ],
)
def test_the_state_of_a_run(tmp_path, record, result, state):
    folder = make_run(tmp_path / "one", state=record, host="elsewhere", pid=1)
    if result:
        (folder / "result.json").write_text(json.dumps(result))
    assert read_run_folder(folder).facts["state"] == state


def test_scores_of_a_run_without_a_result_are_its_last_rows(tmp_path):
    rows = [{"step": 1, "val/iou": 0.1, "val/mse": 0.3}, {"step": 2, "val/iou": 0.2}, {"step": 3, "train/loss": "NaN"}]
    folder = make_run(tmp_path / "one", rows=rows)
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"step": 4, "val/io')  # killed as it wrote
    scores = read_run_folder(folder).scores
    assert (scores["val/iou"], scores["val/mse"]) == (0.2, 0.3)
    assert list(read_curves(folder / "metrics.jsonl")["step"]) == [1, 2, 3]


def test_scores_of_the_newest_test(tmp_path):
    folder = make_run(tmp_path / "one", metrics={"val/iou": 0.5})
    for day, value in (("01", 0.1), ("02", 0.2)):
        written = {"metrics": {"test/iou": value, "val/iou": 9.0}}
        (folder / f"test-202601{day}-000000.json").write_text(json.dumps(written))
    (folder / "lengths-20260101-000000.json").write_text(json.dumps({"metrics": {"lengths/4T/iou": 0.3}}))
    assert read_run_folder(folder).scores == {"val/iou": 0.5, "test/iou": 0.2, "lengths/4T/iou": 0.3}


def test_a_test_with_other_settings_stands_beside_the_others_and_overwrites_none(tmp_path):
    folder = make_run(tmp_path / "one", metrics={"val/iou": 0.5})
    long = {"data.eval_frames": "300", "model.metric_weights.fvd": "i3d.pt"}
    for day, value, settings in (
        ("01", 0.1, {}),
        ("02", 0.2, {"data.eval_frames": "300"}),
        ("03", 0.3, long),
        ("04", 0.4, {"data.path": "/disk/videos", "checkpoint": "best"}),
        ("05", 0.5, {"model.core.window": "6", "model.decoder.window": "3"}),
    ):
        written = {"metrics": {"test/iou": value, "val/iou": 9.0}, "settings": settings}
        (folder / f"test-202601{day}-000000.json").write_text(json.dumps(written))
    scores = read_run_folder(folder).scores
    assert scores == {
        "val/iou": 0.5,
        "test/iou": 0.4,
        "test@eval_frames=300/iou": 0.3,
        "test@core.window=6,decoder.window=3/iou": 0.5,
    }
    assert info_of("test@eval_frames=300/iou", {}).higher_is_better


def test_what_a_probe_reads_is_a_score_beside_its_baselines(tmp_path):
    folder = make_run(tmp_path / "one", metrics={"val/iou": 0.5})
    shape = {"metric": "accuracy", "linear": 0.8, "baselines": {"prior": 0.4, "mask": 0.5}, "rows_fitted": 9}
    place = {"metric": "r2", "linear": 0.6, "mlp": 0.7, "baselines": {"mean": 0.0}}
    (folder / "probe.json").write_text(json.dumps({"factors": {"shape_label": shape, "positions": place}}))
    wanted = ["probe/accuracy/shape_label/linear", "probe/r2/positions/linear", "probe/r2/positions/mlp"]
    columns = compare(read_sources([str(folder)]), metrics=["probe/*"]).columns
    assert {column.name: dict(column.baselines) for column in columns} == {
        wanted[0]: {"prior": 0.4, "mask": 0.5},
        wanted[1]: {"mean": 0.0},
        wanted[2]: {"mean": 0.0},
    }
    assert [read_run_folder(folder).scores[name] for name in wanted] == [0.8, 0.6, 0.7]
    assert all(column.higher_is_better for column in columns)


def test_half_a_run_is_left_out_with_a_note_and_alone_is_an_error(tmp_path):
    make_run(tmp_path / "balls" / "one", metrics={"val/iou": 0.5})
    (make_run(tmp_path / "balls" / "two") / "run.json").write_text('{"id": "tw')
    runs = read_sources([str(tmp_path / "balls")])
    assert list(runs.runs) == ["one"]
    assert "run.json is not valid JSON" in runs.notes[0]
    with pytest.raises(ComparisonError, match="not valid JSON"):
        read_sources([str(tmp_path / "balls" / "two")])
    with pytest.raises(ComparisonError, match="there is no run"):
        read_sources([str(tmp_path / "nowhere")])
    (tmp_path / "x.yaml").write_text("a: 1")
    with pytest.raises(ComparisonError, match="without `base`"):
        read_sources([str(tmp_path / "x.yaml")])


def test_a_grid_has_its_reported_points_its_metrics_and_its_protocol(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("g.yaml").write_text(yaml.safe_dump({"base": "b.yaml", "metrics": ["val/iou"]}))
    with pytest.raises(ComparisonError, match=r"no point of g\.yaml has run yet"):
        read_sources(["g.yaml"])
    points = [{"id": "a"}, {"id": "b"}, {"id": "choose", "stage": "choose"}, {"id": "first"}]
    protocol = {"choose": "model.optimizer.lr", "values": [1, 2, 3], "seed": 9, "by": "val/iou"}
    protocol["variants"] = [{"label": "RIM", "chosen": 3}]
    for name in ("a", "choose", "first", "other"):
        make_run(tmp_path / "runs" / "g" / name, metrics={"val/iou": 0.5, "val/mse": 0.1})
    written = {"points": points, "protocol": protocol, "starts": ["first"]}
    (tmp_path / "runs" / "g" / "grid.json").write_text(json.dumps(written))
    runs = read_sources(["g.yaml"])
    assert (list(runs.runs), runs.title, runs.metrics, runs.is_grid) == (["a"], "g", ["val/iou"], True)
    notes = " ".join(runs.notes)
    assert "1 points of g that the others start from" in notes
    assert "1 of the 2 points of runs/g have not run yet" in notes
    assert "1 runs in runs/g are no points of the grid as it is now" in notes
    comparison = compare(runs)
    assert [column.name for column in comparison.columns] == ["val/iou"]
    assert comparison.rows[0].success == (1, 1)
    told = " ".join(comparison.notes)
    assert "chosen for each row from 1, 2, 3 by val/iou, with seed 9" in told
    assert "chosen at an end of the range: go on with grid run --axis model.optimizer.lr+=VALUE: RIM (3)" in told


def test_runs_written_as_csv_are_read_again(tmp_path):
    for seed, value in enumerate((0.1, 0.25)):
        make_run(tmp_path / "balls" / f"r{seed}", config("RIM", seed), {"val/iou": value, "val/mse": value / 3})
    runs = read_sources([str(tmp_path / "balls")])
    (tmp_path / "runs.csv").write_text(to_csv(compare(runs, apart=True)))
    again = read_sources([str(tmp_path / "runs.csv")])
    assert again.scores.equals(runs.scores)
    assert again.settings.loc["r1", "seed_everything"] == "1"
    (row,) = compare(again, metrics=["iou"]).rows
    assert (row.parameters, row.cells["val/iou"].mean) == (1500, pytest.approx(0.175))


def test_records_of_a_study_have_the_reported_runs_alone():
    runs = read_sources([str(RECORDS / "movi_like_study.csv")])
    assert len(runs) == 15
    comparison = compare(runs)
    assert [row.label for row in comparison.rows] == ["PSB, lr=0.0007", "OCSlotSSM, lr=0.0007", "SAVi, lr=0.0003"]
    assert comparison.columns[0].baselines["grid 3x3"] == pytest.approx(0.446, abs=0.001)


def test_what_is_in_two_sources_is_one_run_and_ids_are_unique(tmp_path):
    for name in ("a", "b"):
        make_run(tmp_path / name / "one", metrics={"val/iou": 0.5})
    runs = read_sources([str(tmp_path / "a"), str(tmp_path / "a" / "one"), str(tmp_path / "b")])
    assert list(runs.runs) == ["one", "one~2"]


def test_only_takes_patterns_and_ends_of_keys(tmp_path):
    for core in ("RIM", "SlotSSM", "SlotRNN"):
        make_run(tmp_path / "balls" / core, config(core), {"val/iou": 0.5})
    runs = read_sources([str(tmp_path / "balls")])
    part = only_runs(runs, ["core=Slot*"])
    assert sorted(part.runs) == ["SlotRNN", "SlotSSM"]
    assert part.notes[0] == "2 of 3 runs: those with core=Slot*"
    for conditions, words in ((["core=PSB"], "they have model.core: RIM"), (["core"], "expected KEY=VALUE")):
        with pytest.raises(ComparisonError, match=words):
            only_runs(runs, conditions)


def test_settings_are_text_by_the_keys_of_the_command_line():
    given = {"class_path": "slotbench_plugins.cores.RIM", "init_args": {"top_k": 2.0, "sizes": [1, 2], "on": True}}
    assert flat_settings({"model": {"core": given}, "ckpt_path": None, "lr": 1e-05}) == {
        "model.core": "RIM",
        "model.core.top_k": "2",
        "model.core.sizes": "[1, 2]",
        "model.core.on": "true",
        "lr": "1e-05",
    }


def test_the_newest_image_of_each_name(tmp_path):
    for name in ("clip_step10.png", "clip_step9.png", "loss.png", "a_latest.gif", "a_step99.gif", "text.txt"):
        (tmp_path / name).write_bytes(b"")
    assert [path.name for path in newest_media(tmp_path)] == ["a_latest.gif", "clip_step10.png", "loss.png"]
    assert newest_media(tmp_path / "none") == []


class FakeRun:
    """A run as `wandb.Api()` has it."""

    def __init__(self, name: str, core: str, state: str = "finished") -> None:
        self.id, self.name, self.state, self.group, self.created_at = name, name, state, "g", "2026"
        self.url = f"https://wandb.ai/me/balls/runs/{name}"
        self.config = config(core)
        self.summary_metrics = {"val/iou": {"max": 0.9, "last": 0.5}, "_step": 3, "parameters": {"total": 7}}

    def scan_history(self, page_size):
        yield {"_step": 0, "trainer/global_step": 10, "val/iou": 0.25, "_runtime": 3.0}


class FakeApi:
    def runs(self, path, filters, per_page, lazy):
        assert (path, lazy) == ("me/balls", False)
        self.filters = filters
        return [FakeRun("a", "RIM"), FakeRun("b", "SlotSSM", "crashed")]


def test_runs_of_a_wandb_project():
    api = FakeApi()
    one, two = read_wandb("me/balls?group=g&state=finished&state=killed", api)
    assert api.filters == {"group": {"$in": ["g"]}, "state": {"$in": ["finished", "crashed"]}}
    assert (one.scores, one.facts["parameters"], one.settings["model.core"]) == ({"val/iou": 0.5}, 7, "RIM")
    assert two.facts["state"] == "killed"
    assert one.curves().to_dict("records") == [{"step": 10, "val/iou": 0.25}]
    assert [run.id for run in read_wandb("me/balls?model.core=SlotSSM", api)] == ["b"]


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("me", "no project of W&B"),
        ("me/balls?colour=red", "no filter 'colour'"),
        ("me/balls?state=done", "no run is 'done'"),
    ],
)
def test_addresses_that_are_none(address, words):
    with pytest.raises(ComparisonError, match=words):
        parse_address(address)
