"""`slotbench prepare`: what it takes, what it writes, and what it says when it cannot."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from slotbench.cli import run
from slotbench.data.movi import MOVi

sys.path.insert(0, str(Path(__file__).parents[1] / "data"))
from tfrecord_files import movi_video, write_movi


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_movi(tmp_path / "movi_a", {"train": [movi_video(i, 8) for i in range(3)]})


def test_a_cache_is_written_and_can_be_read(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "cache"
    arguments = ["--path", str(folder), "--out", str(out), "--resolution", "4"]
    assert run(["prepare", "MOVi", *arguments]) == 0
    assert f"--data.path {out}" in capsys.readouterr().out
    clip = MOVi(str(out), resolution=4).dataset("train")[2]
    assert clip.frames.shape == (1, 6, 3, 4, 4)
    # again: it is complete
    assert run(["prepare", "MOVi", *arguments]) == 0


def test_help_needs_no_set_and_lists_what_can_be_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prepare", "--help"]) == 0
    assert "slotbench prepare MOVi" in capsys.readouterr().out
    assert run(["prepare", "MOVi", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--resolution" in shown
    assert "--out" in shown
    assert "--batch_size" not in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["Movi"], "no data set named Movi; did you mean MOVi?"),
        (
            ["BouncingBalls", "--out", "x"],
            "BouncingBalls has nothing to prepare: it is used as it is available: CLEVR, MOVi",
        ),
        (["--out", "x"], "no data set is named"),
        (["MOVi", "--path", "x"], "out"),
        (["MOVi", "--path", "x", "--out", "y", "--resolution", "0"], "resolution is 0; expected 1 or more"),
        (["MOVi", "--path", "nowhere", "--out", "y"], "the folder nowhere does not exist"),
        (["MOVi", "--path", "x", "--out", "y", "--batch_size", "3"], "batch_size"),
    ],
)
def test_what_cannot_be_done_is_said(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["prepare", *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert list(tmp_path.iterdir()) == []
