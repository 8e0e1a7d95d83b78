"""A folder of a grid from somebody else: nothing is written, or copied, through a link in it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import stand_in_grid
from foreign_links import put_in_place_of

from slotbench.cli import run
from slotbench.errors import FileError
from slotbench.grids.adoption import copy_in
from slotbench.grids.expansion import Grid
from slotbench.grids.grid_folder import GridFolder
from slotbench.runs.folder import RunFolder


@pytest.fixture
def grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Grid:
    """A grid of two points of which one has failed; the working directory, in which the stand-in trains."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    stand_in_grid.stand_in(monkeypatch)
    made = stand_in_grid.write_grid(Path("."), (1, 2))
    raising = stand_in_grid.fault(Path("."), 1, 0, "raise")
    assert run(["grid", "run", "widths.yaml"]) == 1
    raising.unlink()
    return made


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "file").write_text("mine\nhalf a line")
    return tmp_path / "victim"


def test_no_link_in_the_place_of_what_a_grid_writes_is_followed(grid, victim, capsys):
    folder = Path("runs/widths")
    whole = shutil.copytree(folder, "whole", copy_function=shutil.copy2)
    names = [str(path.relative_to(folder)) for path in sorted(folder.rglob("*"))]
    failed = next(point.id for point in grid.points if point.labels["dim"] == "1")
    own = {f"{failed}/{name}" for name in ("", "log.txt", "attempts.jsonl", ".attempt.lock", "point.json")}
    assert {*map(str, map(Path, own)), ".driver.lock", "grid.json", "grid.yaml"} <= {*names}
    for name in names:
        for pipe in (False, True):
            path = folder / name
            is_folder = path.is_dir()
            put_in_place_of(path, None if pipe else victim if is_folder else victim / "file")
            capsys.readouterr()
            code = run(["grid", "retry", "widths.yaml"])
            said = " ".join("".join(capsys.readouterr()).split())
            assert "slotbench/cli.py" not in said  # a traceback of ours; that of the point is shown
            assert [path.name for path in victim.iterdir()] == ["file"]
            assert (victim / "file").read_text() == "mine\nhalf a line"
            if name.startswith(failed) or "/" not in name:  # the other point is done, and left alone
                assert code in (1, 2), (name, pipe, said)
                assert f"{path} is a" in said or "grid.json is not valid JSON" in said, (name, pipe, said)
            shutil.rmtree(folder)
            shutil.copytree(whole, folder, copy_function=shutil.copy2)
    assert run(["grid", "retry", "widths.yaml"]) == 0


def finished_run(folder: Path) -> RunFolder:
    made = RunFolder.create_at(folder, "mine")
    made.write_config("model: {}\n")
    made.append(0, {"val/loss": 1.0})
    made.update(state="finished", step=1)
    (made.checkpoints / "last.ckpt").write_bytes(b"weights")
    return made


@pytest.mark.parametrize("name", ["metrics.jsonl", "media", "checkpoints/last.ckpt", "media/deep/down/video.gif"])
@pytest.mark.parametrize("what", ["/dev/zero", "victim", None])
def test_a_run_is_not_adopted_through_its_links(grid, victim, tmp_path, name, what):
    mine = finished_run(tmp_path / "mine")
    (mine.path / name).parent.mkdir(parents=True, exist_ok=True)
    put_in_place_of(mine.path / name, victim / "file" if what == "victim" else what and Path(what))
    folder = GridFolder(tmp_path / "grid")
    folder.path.mkdir()
    with pytest.raises(FileError, match=r"is a link that leads out of|is a named pipe"):
        copy_in(folder, grid.points[0], mine, ["fit"], "model: {}\n")
    assert list(folder.path.iterdir()) == []


def test_a_run_with_links_to_its_own_files_is_adopted(grid, tmp_path):
    mine = finished_run(tmp_path / "mine")
    (mine.checkpoints / "chosen.ckpt").symlink_to("last.ckpt")
    (mine.path / "round").symlink_to(".")
    folder = GridFolder(tmp_path / "grid")
    folder.path.mkdir()
    copied = copy_in(folder, grid.points[0], mine, ["fit"], "model: {}\n").path
    assert (copied / "checkpoints" / "chosen.ckpt").read_bytes() == b"weights"
    assert not (copied / "checkpoints" / "chosen.ckpt").is_symlink()
    assert not os.path.lexists(copied / "round")
    assert json.loads((copied / "result.json").read_text())["state"] == "finished"
