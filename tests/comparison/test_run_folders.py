"""Run folders as records, in whatever state they are."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import pytest
from made_up_runs import config, make_run

from slotbench.comparison.absence import baselines_over_absence, over_absence
from slotbench.comparison.records import ComparisonError
from slotbench.comparison.run_folders import find_run_folders, read_run_folder

ROWS = [{"step": 9, "seconds": 1.0, "train/loss": 0.5}, {"step": 9, "val/iou": 0.7, "val/baseline/iou/black": 0.1}]


def test_a_finished_run(tmp_path):
    settings = config("RIM", 3, top_k=4)
    run = read_run_folder(
        make_run(
            tmp_path / "balls" / "id", settings, {"val/iou": 0.75}, ROWS, best={"val/iou": {"value": 0.8, "step": 50}}
        )
    )
    assert (run.id, run.name, run.state) == ("id", "balls", "finished")
    assert run.source == str(tmp_path / "balls" / "id")
    assert run.settings["model.core"] == "RIM"
    assert run.settings["model.core.top_k"] == 4
    assert run.settings["model.optimizer"] == "AdamW"
    assert run.settings["seed_everything"] == 3
    assert run.summary == {"val/iou": 0.75}
    assert run.best == {"val/iou": 0.8}
    assert run.info["parameters"]["total"] == 1500
    assert run.curves(100)["val/iou"][1].tolist() == [0.7]


def test_scores_of_several_lengths_are_a_curve_over_the_length(tmp_path):
    folder = make_run(tmp_path / "r", rows=ROWS)
    scores = {"lengths/16T/mota/decoder": 0.2, "lengths/1T/mota/decoder": 0.9, "lengths/4T/mota/decoder": 0.5}
    (folder / "lengths-20260131-120000.json").write_text(
        json.dumps({"metrics": scores | {"lengths/4T/state_numbers": 64}})
    )
    curves = read_run_folder(folder).curves(100)
    assert [series.tolist() for series in curves["lengths/mota/decoder"]] == [[1, 4, 16], [0.9, 0.5, 0.2]]
    assert "lengths/state_numbers" not in curves
    assert curves["val/iou"][1].tolist() == [0.7]
    (folder / "metrics.jsonl").unlink()
    assert list(read_run_folder(folder).curves(100)) == ["lengths/mota/decoder"]


def test_last_scores_by_absence_are_a_curve_over_the_absence(tmp_path):
    scores = {"val/top1/unseen_25-48": 0.5, "val/top1/seen": 0.9, "val/top1/unseen_97+": 0.2, "val/l1/seen": 0.1}
    baselines = {"val/baseline/top1/seen/any cone": 0.3, "val/baseline/top1/unseen_97+/any cone": 0.6}
    curves = read_run_folder(make_run(tmp_path / "r", metrics=scores | baselines, rows=ROWS)).curves(100)
    assert [series.tolist() for series in curves["absence/top1"]] == [[0, 25, 97], [0.9, 0.5, 0.2]]
    assert [name for name in curves if name.startswith("absence/")] == ["absence/top1"]


def test_before_the_first_record_of_metrics_the_log_is_read(tmp_path):
    run = read_run_folder(make_run(tmp_path / "r", rows=ROWS, state="interrupted"))
    assert run.summary == {"train/loss": 0.5, "val/iou": 0.7, "val/baseline/iou/black": 0.1}
    assert run.state == "interrupted"


def test_a_result_outranks_the_record(tmp_path):
    folder = make_run(tmp_path / "r", metrics={"val/iou": 0.1}, state="running")
    (folder / "result.json").write_text(json.dumps({"metrics": {"val/iou": 0.9}, "seconds_per_step": 0.2}))
    run = read_run_folder(folder)
    assert (run.state, run.summary, run.info["seconds_per_step"]) == ("finished", {"val/iou": 0.9}, 0.2)
    (folder / "result.json").write_text('{"metrics": {"val/i')
    assert read_run_folder(folder).summary == {"val/iou": 0.1}


def test_a_run_whose_process_is_gone_was_killed(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    folder = make_run(tmp_path / "r", state="running", pid=gone.pid, host=socket.gethostname())
    assert read_run_folder(folder).state == "killed"


def test_numbers_that_are_not_finite(tmp_path):
    run = read_run_folder(make_run(tmp_path / "r", metrics={"val/iou": "NaN", "val/mse": "Infinity", "note": "text"}))
    assert set(run.summary) == {"val/iou", "val/mse"}
    assert run.summary["val/mse"] == float("inf")


@pytest.mark.parametrize(("text", "problem"), [(None, "has no config.yaml"), ("a: [1", "cut off"), ("", "empty")])
def test_a_configuration_that_is_not_there_is_a_note(tmp_path, text, problem):
    folder = make_run(tmp_path / "r", metrics={"val/iou": 0.5})
    (folder / "config.yaml").unlink()
    if text is not None:
        (folder / "config.yaml").write_text(text)
    run = read_run_folder(folder)
    assert run.settings == {}
    assert problem in run.info["problem"]
    assert run.summary == {"val/iou": 0.5}


@pytest.mark.parametrize("text", [None, '{"id": "x", "sta', "[]"])
def test_half_a_record_is_an_error(tmp_path, text):
    folder = make_run(tmp_path / "r")
    (folder / "run.json").unlink()
    if text is not None:
        (folder / "run.json").write_text(text)
    with pytest.raises(ComparisonError, match="half-written run"):
        read_run_folder(folder)


def test_pictures_and_videos_are_found(tmp_path):
    folder = make_run(tmp_path / "r")
    (folder / "media" / "predict").mkdir(parents=True)
    for name in ("b.png", "a.gif", "predict/c.mp4", "notes.txt"):
        (folder / "media" / name).touch()
    assert [path.name for path in read_run_folder(folder).media] == ["a.gif", "b.png", "c.mp4"]


def test_runs_are_found_at_any_depth_but_not_within_one_another(tmp_path):
    for name in ("b/1", "a/2", "a/deep/3", "a/deep/er/still/4", ".hidden/5"):
        make_run(tmp_path / name)
    make_run(tmp_path / "b" / "1" / "inner")
    (tmp_path / "other").mkdir()
    found = [str(path.relative_to(tmp_path)) for path in find_run_folders(tmp_path)]
    assert found == ["a/2", "a/deep/3", "b/1"]
    assert list(find_run_folders(tmp_path / "a" / "2")) == [tmp_path / "a" / "2"]


SCORES = {"val/top1/seen": 0.9, "val/top1/unseen_25-48": 0.5, "val/top1/unseen_97+": 0.2, "val/top1/free": 0.8}
CONE = {"val/baseline/top1/seen/any cone": 0.1, "val/baseline/top1/unseen_97+/any cone": 0.7}
LAST = {"val/baseline/top1/seen/last seen": 1.0, "val/baseline/top1/unseen_97+/last seen": 0.05}


def test_a_point_stands_at_the_first_frame_of_its_bin():
    assert over_absence(SCORES | CONE) == {"absence/top1": {0: 0.9, 25: 0.5, 97: 0.2}}
    knows = {name.replace("baseline", "oracle").replace("any cone", "knows"): 1.0 for name in CONE}
    assert baselines_over_absence([(SCORES | CONE | LAST | knows, {})]) == {
        "absence/top1": {
            "any cone": {0: 0.1, 97: 0.7},
            "last seen": {0: 1.0, 97: 0.05},
            "oracle: knows": {0: 1.0, 97: 1.0},
        }
    }


def test_baselines_that_runs_do_not_agree_on_and_single_points_are_left_out():
    elsewhere = CONE | {"val/baseline/top1/seen/any cone": 0.2}
    single = {"val/baseline/top1/seen/uniform": 0.03}
    found = baselines_over_absence(
        (summary, {}) for summary in (SCORES | CONE | LAST, SCORES, SCORES | elsewhere | LAST | single)
    )
    assert found == {"absence/top1": {"last seen": {0: 1.0, 97: 0.05}}}
    assert over_absence({"val/top1/seen": 0.9}) == {}
