"""`slotbench grid ...`, with the stand-in in the place of the training."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
from pathlib import Path

import pytest
import stand_in_grid

from slotbench.cli import run
from slotbench.commands.grid import run as grid_run
from slotbench.grids.choosing import covering
from slotbench.grids.expansion import expand
from slotbench.grids.grid_file import read_grid_file
from slotbench.grids.ledger import PointFolder


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory in which the stand-in trains."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    stand_in_grid.stand_in(monkeypatch)
    return tmp_path


def states(*, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    capsys.readouterr()
    run(["grid", "show", "widths.yaml"])
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line[:1].isdigit() and ":" not in line]
    return {f"dim={dim},seed={seed}": state for _, dim, seed, state, *_ in rows}


def refusal(*arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert run(["grid", *arguments]) == 2
    return capsys.readouterr().err


def test_a_grid_that_is_done_is_not_run_again(workspace, capsys):
    stand_in_grid.write_grid(workspace, (1, 2))
    assert run(["grid", "show", "widths.yaml"]) == 1
    assert run(["grid", "run", "widths.yaml"]) == 0
    assert run(["grid", "run", "widths.yaml"]) == 0
    assert stand_in_grid.starts(workspace / "runs/widths") == dict.fromkeys(
        stand_in_grid.starts(workspace / "runs/widths"), 1
    )
    assert run(["grid", "show", "widths.yaml"]) == 0
    said = capsys.readouterr().out
    assert "runs/widths: 2 points, 2 done" in said
    assert "compare them: slotbench compare widths.yaml" in said


def test_each_point_says_in_its_folder_what_it_is_and_how_it_is_run(workspace, monkeypatch):
    grid = stand_in_grid.write_grid(workspace, (1,))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(12))
    run(["grid", "run", "widths.yaml", "--jobs", "4", "--plugin", "mine.py", "--wandb", "offline"])
    (folder,) = (workspace / "runs/widths").glob("dim=*")
    record = json.loads((folder / "point.json").read_text())
    assert record["id"] == grid.points[0].id == folder.name
    assert record["settings"] == {"model.core.dim": 1, "seed_everything": 0}
    line = shlex.join(record["command"])
    for words in ("--run_dir runs/widths/dim=1,seed=0-", "--group widths", "--threads 3", "--wandb offline"):
        assert words in line
    assert line.endswith("--plugin mine.py --wandb offline --threads 3")
    assert (workspace / "runs/widths/grid.yaml").read_text() == (workspace / "widths.yaml").read_text()


def test_one_failed_point_stops_no_other_and_is_run_again_only_by_retry(workspace, capsys):
    stand_in_grid.write_grid(workspace, (1, 2, 3))
    fault = stand_in_grid.fault(workspace, 2, 0, "raise")
    assert run(["grid", "run", "widths.yaml"]) == 1
    said = capsys.readouterr().out
    assert "dim=2,seed=0 failed" in said
    assert "RuntimeError: the loss is not finite" in said
    assert "slotbench grid run widths.yaml --retry-failed" in said
    run(["grid", "show", "widths.yaml"])
    said = capsys.readouterr().out
    assert re.search(r"1 +1 +0 +done +4 +2\.0 s +val/loss 1\n2 +2 +0 +failed +1/4", said)
    assert "2 failed: RuntimeError: the loss is not finite" in said

    assert run(["grid", "run", "widths.yaml"]) == 1
    said = capsys.readouterr().out
    assert "dim=2,seed=0 has failed before, and is left alone" in said
    assert max(stand_in_grid.starts(workspace / "runs/widths").values()) == 1

    fault.unlink()
    assert run(["grid", "run", "widths.yaml", "--retry-failed"]) == 0
    assert sorted(stand_in_grid.starts(workspace / "runs/widths").values()) == [1, 1, 2]


def test_a_diverged_point_is_counted_apart_and_run_again_only_where_that_is_asked_for(workspace, capsys):
    stand_in_grid.write_grid(workspace, (1, 2))
    fault = stand_in_grid.fault(workspace, 2, 0, "diverge")
    assert run(["grid", "run", "widths.yaml"]) == 1
    said = capsys.readouterr().out
    assert "2 points, 1 done, 1 diverged" in said
    assert "slotbench grid run widths.yaml --diverged" in said
    assert states(capsys=capsys) == {"dim=1,seed=0": "done", "dim=2,seed=0": "diverged"}
    assert run(["grid", "show", "widths.yaml"]) == 1
    said = capsys.readouterr().out
    assert "2 diverged: the training has diverged" in said
    assert "2 points, 1 done, 1 diverged" in said
    for option in ([], ["--retry-failed"]):
        assert run(["grid", "run", "widths.yaml", *option]) == 1
        assert "has diverged before, and is left alone" in capsys.readouterr().out
    assert max(stand_in_grid.starts(workspace / "runs/widths").values()) == 1

    fault.unlink()
    assert run(["grid", "run", "widths.yaml", "--diverged"]) == 0
    assert set(states(capsys=capsys).values()) == {"done"}
    (kept,) = (workspace / "runs/widths").glob("*/result.1.json")
    assert json.loads(kept.read_text())["state"] == "diverged"


@pytest.mark.parametrize(
    ("only", "chosen"),
    [
        (["--only", "dim=1"], ["1-0", "1-1"]),
        (["--only", "model.core.dim=1", "seed=1"], ["1-1"]),
        (["--only", "dim=1", "--only", "dim=3"], ["1-0", "3-0", "1-1", "3-1"]),
        (["--only", "dim=[12]", "seed=0"], ["1-0", "2-0"]),
        (["--only", "*dim=3*"], ["3-0", "3-1"]),
    ],
)
def test_some_points_can_be_chosen(workspace, capsys, only, chosen):
    stand_in_grid.write_grid(workspace, (1, 2, 3), seeds=2)
    capsys.readouterr()
    run(["grid", "show", "widths.yaml", *only])
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line[:1].isdigit()]
    assert [f"{row[1]}-{row[2]}" for row in rows] == chosen


def test_settings_for_all_points_make_a_grid_of_its_own_that_show_remembers(workspace, capsys):
    stand_in_grid.write_grid(workspace, (1,))
    assert run(["grid", "run", "widths.yaml", "--trainer.max_steps", "2"]) == 0
    assert states(capsys=capsys) == {"dim=1,seed=0": "done"}
    assert run(["grid", "run", "widths.yaml"]) == 0  # the file's own
    assert len(stand_in_grid.starts(workspace / "runs/widths")) == 2


def test_a_running_driver_that_is_told_to_stop_lets_its_points_save_and_the_next_goes_on(workspace, capsys):
    grid = stand_in_grid.write_grid(workspace, (1, 2))
    waiting = stand_in_grid.fault(workspace, 1, 0, "wait")
    folder = PointFolder(workspace / "runs/widths" / grid.points[0].id)
    driver = stand_in_grid.driver(workspace, "grid", "run", "widths.yaml")
    stand_in_grid.wait_until(folder.record)
    assert "is being run already" in refusal("run", "widths.yaml", capsys=capsys)
    driver.send_signal(signal.SIGINT)
    said, _ = driver.communicate(timeout=300)
    assert driver.returncode == 130
    assert "to resume: slotbench grid run widths.yaml" in said
    assert states(capsys=capsys) == {"dim=1,seed=0": "interrupted", "dim=2,seed=0": "waiting"}
    (attempt,) = folder.attempts()
    assert attempt["exit_code"] == 143
    waiting.unlink()
    assert run(["grid", "run", "widths.yaml"]) == 0
    # it went on where it had been stopped
    assert re.findall(r"step \d", folder.log.read_text()) == ["step 1", "step 2", "step 3", "step 4"]


def test_a_grid_whose_minutes_are_over_saves_and_is_resumed_from_a_copy_of_its_folder(workspace, capsys):
    stand_in_grid.write_grid(workspace, (1, 2, 3))
    waiting = stand_in_grid.fault(workspace, 2, 0, "wait")
    assert run(["grid", "run", "widths.yaml", "--minutes", "0.1"]) == 124
    *_, counted, over, last = capsys.readouterr().out.splitlines()
    assert counted == "runs/widths: 3 points, 1 done, 1 interrupted, 1 waiting"
    assert over == "the time of --minutes 0.1 is over; the next call resumes what is left"
    assert last == "to resume: slotbench grid run widths.yaml --minutes 0.1"
    waiting.unlink()
    shutil.move(workspace / "runs", workspace / "elsewhere")
    assert run(["grid", "run", "widths.yaml", "--runs_dir", "elsewhere", "--jobs", "2", "--minutes", "8"]) == 0
    assert "is over" not in capsys.readouterr().out
    logs = {path.parent.name[4]: path.read_text() for path in (workspace / "elsewhere/widths").glob("*/log.txt")}
    steps = ["step 1", "step 2", "step 3", "step 4"]
    assert [re.findall(r"step \d", logs[width]) for width in "123"] == [steps] * 3


def test_a_covering_set_has_every_value_of_every_axis(workspace):
    stand_in_grid.write_grid(workspace)
    text = "base: base.yaml\nproduct: {data.a: [1, 2, 3], data.b: [1, 2]}\nlist: [{label: x}, {label: y, data.c: 1}]\n"
    (workspace / "g.yaml").write_text(text + "seeds: 3\n")
    points = expand(read_grid_file(workspace / "g.yaml")).points
    some = covering(points)
    assert {pair for point in some for pair in point.alternatives} == {
        pair for point in points for pair in point.alternatives
    }
    assert len(some) <= 4


def test_points_that_have_been_started_are_not_checked_again(workspace, monkeypatch):
    asked = []
    monkeypatch.setattr(grid_run, "_check_before_start", lambda opened, new, given: asked.append(len(new)))
    stand_in_grid.write_grid(workspace, (1, 2))
    run(["grid", "run", "widths.yaml", "--only", "dim=1"])
    run(["grid", "run", "widths.yaml"])
    stand_in_grid.write_grid(workspace, (1, 2, 3))
    run(["grid", "run", "widths.yaml"])
    assert asked == [1, 1, 1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run"], ["grid run needs a grid file", "slotbench grid run experiments/"]),
        (["rnu", "widths.yaml"], ["grid has no action rnu", "did you mean run?"]),
        (["run", "width.yaml"], ["no file width.yaml", "did you mean widths.yaml?"]),
        (["run", "widths.yaml", "--only", "width=1"], ["width does not vary", "dim, seed"]),
        (["run", "widths.yaml", "--model.core.dim", "9"], ["is an axis of widths.yaml"]),
        (["run", "widths.yaml", "--jobs", "0"], ["--jobs is 0"]),
        (["run", "widths.yaml", "--minutes", "0"], ["--minutes is 0; expected a number above 0"]),
        (["run", "widths.yaml", "--minutes", "8", "--engine", "ray"], ["--minutes is for --engine local"]),
        (["run", "widths.yaml", "--slurm.partition", "gpu"], ["--slurm.partition is for --engine slurm"]),
        (["show", "widths.yaml", "7"], ["no point 7", "a number from 1 to 2"]),
    ],
)  # fmt: skip
def test_slips_are_explained(workspace, capsys, arguments, words):
    stand_in_grid.write_grid(workspace, (1, 2))
    said = refusal(*arguments, capsys=capsys)
    for word in words:
        assert word in said
    assert "Traceback" not in said


def test_a_point_waits_until_the_one_of_another_grid_that_it_starts_from_is_done(workspace, capsys):
    stand_in_grid.write_grid(workspace, (1, 2), name="first")
    file = workspace / "second.yaml"
    file.write_text((workspace / "first.yaml").read_text() + "init_from: first.yaml\n")
    stand_in_grid.fault(workspace, 2, 0, "raise")
    assert run(["grid", "run", "first.yaml"]) == 1
    capsys.readouterr()
    assert run(["grid", "run", "second.yaml"]) == 1
    said = capsys.readouterr().out
    assert "dim=2,seed=0 waits: it starts from runs/first/dim=2,seed=0-" in said
    assert "2 points, 1 done, 1 waiting" in said
    (done,) = (workspace / "runs/second").glob("*/result.json")
    command = json.loads((done.parent / "point.json").read_text())["command"]
    (first,) = (workspace / "runs/first").glob("dim=1*")
    assert command[command.index("--model.init_from") + 1] == f"runs/first/{first.name}"
