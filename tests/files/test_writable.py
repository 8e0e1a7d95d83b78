"""A folder that cannot be written is found out by writing, with the reason and what to do."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from slotbench.cli import run
from slotbench.errors import FileError
from slotbench.files import check_writable

EXPERIMENT = Path(__file__).parents[2] / "experiments" / "blinking_balls.yaml"


def failing(monkeypatch: pytest.MonkeyPatch, call: str, number: int) -> None:
    def fail(*arguments: object, **more: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(f"os.{call}", fail)


def test_a_folder_that_can_be_written_is_left_as_it_was(tmp_path):
    check_writable(tmp_path / "runs" / "deep", "...")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("call", "number", "why"),
    [
        ("open", errno.EROFS, "a file system that can only be read"),
        ("open", errno.EACCES, "its permissions do not allow it"),
        ("write", errno.ENOSPC, "the disk is full"),
        ("fsync", errno.EDQUOT, "your quota on this disk is used up"),
    ],
)
def test_the_reason_is_said_and_nothing_is_left(call, number, why, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        failing(patched, call, number)
        with pytest.raises(FileError, match=why) as error:
            check_writable(tmp_path / "runs", "try another")
    assert str(error.value).startswith(f"{tmp_path / 'runs'} cannot be written: ")
    assert str(error.value).endswith("; try another")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="file is no folder"):
        check_writable(tmp_path / "file" / "runs", "...")


@pytest.mark.parametrize("option", ["--runs_dir", "--run_dir"])
def test_fit_finds_it_out_before_anything_is_read(option, tmp_path, monkeypatch, capsys):
    failing(monkeypatch, "write", errno.ENOSPC)
    monkeypatch.setattr("slotbench.config.command_line.read_settings", lambda arguments: pytest.fail("read"))
    assert run(["fit", "--config", str(EXPERIMENT), option, str(tmp_path / "runs")]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"the disk is full; give another place with {option} DIR" in said
