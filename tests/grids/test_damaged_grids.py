"""Damaged and hostile grids: a sentence, in bounded time and memory, and no other point is hidden."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from slotbench.commands.grid.opening import open_grid
from slotbench.errors import FileError, UserError
from slotbench.grids.grid_file import read_grid_file
from slotbench.grids.grid_folder import GridFolder
from slotbench.grids.ledger import STATES, PointFolder
from slotbench.locks import Lock, is_locked, lock_holder


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "base.yaml").write_text("model: {class_path: M}\ntrainer: {max_steps: 1}\n")
    path = tmp_path / "grid.yaml"
    path.write_text("base: base.yaml\nproduct: {model.dim: [1, 2]}\nseeds: 2\n")
    return path


@pytest.mark.parametrize("seeds", ["1000000000", "100001", "[0, 4294967296]", "9" * 400, "0x" + "f" * 9000])
def test_seeds_that_no_grid_has_are_refused_at_once(file: Path, seeds: str) -> None:
    file.write_text(f"base: base.yaml\nseeds: {seeds}\n")
    with pytest.raises(UserError, match=r"seeds"):
        read_grid_file(file)


def test_aliases_that_stand_for_billions_are_refused(file: Path) -> None:
    steps = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))
    file.write_text(f"base: base.yaml\na0: &a0 [x, x]\n{steps}product: {{model.dim: *a9}}\n")
    with pytest.raises(UserError, match="aliases"):
        read_grid_file(file)


@pytest.mark.parametrize(
    "content", ["[" * 100_000, "\x00", "a: " + "9" * 5000, "? {}", "base: [[[]]]", "- 1", "base: 7"]
)
def test_what_is_no_grid_gets_a_sentence(file: Path, content: str) -> None:
    file.write_text(content)
    with pytest.raises(UserError):
        read_grid_file(file)


def test_a_pipe_and_a_device_are_no_grid_files(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(UserError, match="no regular file"):
        read_grid_file(file)
    file.unlink()
    file.symlink_to("/dev/zero")
    with pytest.raises(UserError, match="no regular file"):
        read_grid_file(file)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ("[]", "holds a list; expected a JSON object"),
        ("{", "is not valid JSON"),
        ('{"file": 7}', "is damaged: its 'file' is 7; expected a text"),
        ('{"file": "x", "extra": "rm"}', "is damaged: its 'extra' is 'rm'; expected a list"),
        ('{"file": "x", "options": [1]}', r"is damaged: its 'options\[0\]' is 1; expected a text"),
        ('{"file": "x", "checked": 3}', "is damaged: its 'checked' is 3; expected a list"),
    ],
)
def test_a_grid_folder_with_a_damaged_record_gets_a_sentence(tmp_path: Path, record: str, said: str) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "grid.json").write_text(record)
    for read in (GridFolder(folder).record, lambda: open_grid("status", [str(folder)])):
        with pytest.raises(FileError, match=rf"grid.json {said}.*; give the grid file in place of its folder"):
            read()


def test_a_grid_folder_whose_record_is_empty_is_none(tmp_path: Path) -> None:
    (tmp_path / "grid.json").write_text('{"points": []}')
    with pytest.raises(UserError, match="not there any more"):
        open_grid("status", [str(tmp_path)])


WRONG = ["x", -1, [1], {"a": 1}, None, True, 1.5, 10**400, "NaN"]


@pytest.mark.parametrize("name", ["run.json", "result.json", "attempts.jsonl"])
def test_a_point_stands_somewhere_whatever_its_files_say(tmp_path: Path, name: str) -> None:
    fields = ("step", "total_steps", "seconds", "seconds_per_step", "metrics", "headlines", "state", "error")
    fields += ("attempt", "started", "ended", "exit_code", "reason")
    point = PointFolder(tmp_path / "point")
    point.path.mkdir()
    for field in fields:
        for wrong in WRONG:
            (point.path / name).write_text(json.dumps({"attempt": 1, "state": "failed", field: wrong}) + "\n")
            status = point.status(["val/loss"])
            assert status.state in STATES
            assert status.step is None or status.step >= 0
            point.settle()


@pytest.mark.parametrize("name", ["run.json", "result.json", "attempts.jsonl", "log.txt", ".attempt.lock", ".lock"])
def test_a_pipe_in_a_point_is_not_waited_for(tmp_path: Path, name: str) -> None:
    point = PointFolder(tmp_path / "point")
    point.path.mkdir()
    os.mkfifo(point.path / name)
    assert point.status().state in STATES
    assert point.last_lines() == []


def test_the_holder_of_a_lock_is_read_within_bounds(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.symlink_to("/dev/zero")
    assert lock_holder(path) == "another process"
    path.unlink()
    with Lock(path):
        assert is_locked(path)
    assert not is_locked(path)
