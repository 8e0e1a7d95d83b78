"""A run folder can be read at any moment, whatever happened to the process that writes it."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotbench.io import lock
from slotbench.runs import folder as module
from slotbench.runs.folder import RunFolder, RunFolderError

VALUES = st.dictionaries(st.text(min_size=1).filter(lambda key: key != "step"), st.floats() | st.integers(), max_size=5)


def strict(line: str) -> dict:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(line, parse_constant=refuse)


def equal(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def test_new_run_says_what_made_it(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "balls", group="ablation")
    info = RunFolder.open(run.path).info
    assert run.path.parent == tmp_path / "balls"
    assert run.path.name == info["id"]
    assert (info["name"], info["group"], info["state"]) == ("balls", "ablation", "starting")
    assert set(info["versions"]) == {"python", "slotbench", "torch", "lightning", "numpy"}
    assert all(info["versions"].values())
    assert info["threads"] >= 1
    assert info["device"]
    assert "command" in info
    assert run.checkpoints.is_dir()
    assert run.media.is_dir()
    assert run.history() == []
    assert run.last_checkpoint() is None


@pytest.mark.parametrize(
    ("step", "is_validated", "left"),
    [
        (9, True, [(0, "train"), (1, "train"), (1, "val"), (2, "train"), (3, "train"), (3, "val")]),
        (2, True, [(0, "train"), (1, "train"), (1, "val")]),
        # the checkpoint was written before the validation of its step
        (2, False, [(0, "train"), (1, "train")]),
        (4, False, [(0, "train"), (1, "train"), (1, "val"), (2, "train"), (3, "train")]),
        (0, True, []),
    ],
)
def test_rows_from_a_step_on_are_dropped(
    tmp_path: Path, step: int, is_validated: bool, left: list[tuple[int, str]]
) -> None:
    run = RunFolder.create(tmp_path)
    for at in range(4):
        run.append(at, {"train/loss": 1.0})
        if at % 2:
            run.append(at, {"val/loss": 2.0, "val/iou": math.nan})
    dropped = run.drop_rows_from(step, is_validated=is_validated)
    kept = [(row["step"], "val" if "val/loss" in row else "train") for row in run.history()]
    assert kept == left
    assert dropped == 6 - len(left)
    run.append(step, {"train/loss": 3.0})
    assert run.history()[-1] == {"step": step, "train/loss": 3.0}
    assert all(strict(line) for line in (run.path / "metrics.jsonl").read_text().splitlines())


def test_two_runs_of_one_second_never_share_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class OneMoment(module.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2026, 1, 2, 3, 4, 5, tzinfo=tz)

    digits = iter(["aaaa", "aaaa", "aaaa", "bbbb"])
    monkeypatch.setattr(module, "datetime", OneMoment)
    real = module.secrets.token_hex
    monkeypatch.setattr(module.secrets, "token_hex", lambda size: next(digits) if size == 2 else real(size))
    first, second = RunFolder.create(tmp_path), RunFolder.create(tmp_path)
    assert [first.path.name, second.path.name] == ["20260102-030405-aaaa", "20260102-030405-bbbb"]
    assert second.info["id"] == second.path.name
    assert not list((tmp_path / "run").glob(".*"))


@pytest.mark.parametrize(("name", "usable"), [("../up", "up"), ("a b", "a-b"), ("", "run"), (".hidden", "hidden")])
def test_name_that_is_no_folder_name_is_refused_with_one_that_is(tmp_path: Path, name: str, usable: str) -> None:
    with pytest.raises(RunFolderError, match=f"try '{usable}'"):
        RunFolder.create(tmp_path, name)
    assert RunFolder.create(tmp_path, usable).path.is_dir()


def test_opening_what_is_no_run_folder_says_what_is_missing(folder: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="no such path"):
        RunFolder.open(tmp_path / "nowhere" / "at" / "all")
    with pytest.raises(RunFolderError, match=r"it has no run\.json"):
        RunFolder.open(folder.path.parent)
    with pytest.raises(RunFolderError, match="it is a file"):
        RunFolder.open(folder.path / "run.json")
    (folder.path / "run.json").write_text("{")
    with pytest.raises(RunFolderError, match="not valid JSON"):
        RunFolder.open(folder.path)


def test_update_merges_into_the_record(folder: RunFolder) -> None:
    before = folder.info
    folder.update(state="running", loss=float("inf"), path=Path("x"))
    assert folder.info == before | {"state": "running", "loss": "Infinity", "path": "x"}
    strict((folder.path / "run.json").read_text())


@given(rows=st.lists(VALUES, max_size=5))
def test_history_is_what_was_appended_and_every_line_is_strict_json(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, float]]
) -> None:
    run = RunFolder(tmp_path_factory.mktemp("run"))
    for step, row in enumerate(rows):
        run.append(step, row)
    read = run.history()
    assert [row.pop("step") for row in read] == list(range(len(rows)))
    for got, given_ in zip(read, rows, strict=True):
        assert got.keys() == given_.keys()
        assert all(equal(got[key], given_[key]) for key in given_)
    if rows:
        for line in (run.path / "metrics.jsonl").read_text().splitlines():
            strict(line)


@given(cut=st.integers(1, 60))
def test_torn_last_line_is_not_read_and_the_next_writer_removes_it(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("run")
    writer = RunFolder(path)
    writer.append(0, {"loss": 1.5})
    writer.append(1, {"Verlust ÄÖ": 0.25, "many": 1e300})
    whole = (path / "metrics.jsonl").read_bytes()
    first = whole.index(b"\n") + 1
    torn = whole[: max(first, len(whole) - cut)]
    (path / "metrics.jsonl").write_bytes(torn)
    assert RunFolder(path).history() == [{"step": 0, "loss": 1.5}]
    RunFolder(path).append(2, {"loss": 3.0})
    assert RunFolder(path).history() == [{"step": 0, "loss": 1.5}, {"step": 2, "loss": 3.0}]


def test_a_value_called_step_is_refused(folder: RunFolder) -> None:
    with pytest.raises(ValueError, match="'step' is the argument"):
        folder.append(1, {"step": 2})


def test_a_run_whose_process_is_gone_is_killed_and_one_that_ended_is_not(folder: RunFolder) -> None:
    folder.update(state="running")
    assert folder.state == "running"
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    folder.update(pid=gone.pid)
    assert folder.state == "killed"
    with lock(folder.path / ".lock"):
        assert folder.state == "running"
    assert folder.state == "killed"
    folder.update(host="elsewhere")
    assert folder.state == "running"
    folder.update(host=os.uname().nodename, state="finished")
    assert folder.state == "finished"


WRITER = """
import sys
from slotbench.runs import folder
from slotbench.runs.folder import RunFolder
folder.describe_environment = lambda: {"versions": {}}
while True:
    run = RunFolder.create(sys.argv[1], "killed")
    run.write_config("model: " + "x" * 20000)
    for step in range(50):
        run.append(step, {"loss": 1.0 / (step + 1), "text": 0.1})
        run.update(step=step, filler="y" * 20000)
"""


def test_killing_the_writer_at_any_moment_leaves_folders_that_can_be_read(tmp_path: Path) -> None:
    moments = random.Random(0)
    lines = 0
    for kill in range(12):
        root = tmp_path / str(kill)
        child = subprocess.Popen([sys.executable, "-c", WRITER, str(root)])
        while not list(root.glob("killed/[0-9]*")):
            assert child.poll() is None
            time.sleep(0.001)
        time.sleep(moments.uniform(0, 0.08))
        child.send_signal(signal.SIGKILL)
        child.wait()
        for path in root.glob("killed/[0-9]*"):
            run = RunFolder.open(path)
            assert run.state == "killed"
            assert run.checkpoints.is_dir()
            steps = [row["step"] for row in run.history()]
            assert steps == list(range(len(steps)))
            # the line is written before the record, so it is never behind
            assert len(steps) - 1 <= max(run.info["step"], 0) + 1
            assert run.info["step"] <= max(len(steps) - 1, 0)
            if (path / "config.yaml").exists():
                assert len((path / "config.yaml").read_text()) == 20007
            lines += len(steps)
    assert lines > 0


def test_reading_runs_does_not_import_torch(folder: RunFolder) -> None:
    code = (
        "import sys; from slotbench.runs.folder import RunFolder; "
        f"RunFolder.open({str(folder.path)!r}).history(); print('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"
