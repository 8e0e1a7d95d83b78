"""`slotbench prepare`: what it takes, writes and says; checksums, and several processes that write the same bytes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slotbench.cli import run
from slotbench.data.movi.movi import MOVi
from slotbench.data.preparing import in_order, processes_for
from slotbench.errors import DataFilesError

sys.path.insert(0, str(Path(__file__).parents[1] / "data"))
from tfrecord_files import movi_video, write_movi


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_movi(tmp_path_factory.mktemp("set") / "movi_a", {"train": [movi_video(i, 8) for i in range(6)]})


@pytest.fixture
def cache(records: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    out = tmp_path / "cache"
    assert run(["prepare", "MOVi", "--path", str(records), "--out", str(out), "--resolution", "4", "--jobs", "1"]) == 0
    capsys.readouterr()
    return out


def test_a_cache_is_written_and_can_be_read(records: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "cache"
    arguments = ["--path", str(records), "--out", str(out), "--resolution", "4"]
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
            "BouncingBalls has nothing to prepare: it is used as it is",
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


@pytest.mark.slow
def test_the_bytes_do_not_depend_on_how_many_processes_wrote_them(
    records: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MOVi, "piece", 1)
    out = tmp_path / "two"
    assert run(["prepare", "MOVi", "--path", str(records), "--out", str(out), "--resolution", "4", "--jobs", "2"]) == 0
    assert (out / "train" / "frames.npy").read_bytes() == (cache / "train" / "frames.npy").read_bytes()


def test_processes_are_as_many_as_there_is_work_for() -> None:
    assert processes_for(3, 1) == 3
    assert processes_for(None, 3) == 1
    assert processes_for(None, 10_000) == len(os.sched_getaffinity(0))
    with pytest.raises(DataFilesError, match="jobs is 0; expected 1 or more"):
        processes_for(0, 5)
    for jobs in (1, 2):
        assert list(in_order(str, range(5), jobs)) == ["0", "1", "2", "3", "4"]


SLOW_PREPARE = """
import sys, time
from slotbench.data.movi.movi import MOVi
from slotbench.data.movi.record import MOViRecords

MOVi.piece = 1
read = MOViRecords.read

def slow(self, videos, starts, num_frames):
    time.sleep(0.5)
    return read(self, videos, starts, num_frames)

MOViRecords.read = slow

if __name__ == "__main__":
    from slotbench.cli import run
    sys.exit(run(["prepare", "MOVi", *sys.argv[1:]]))
"""


def children_of(process: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[1]) == process:
                found.append(int(stat.parent.name))
        except (OSError, ValueError):
            continue
    return found


@pytest.mark.slow
def test_it_goes_on_after_it_was_killed_and_leaves_no_process(records: Path, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "prepare_slowly.py").write_text(SLOW_PREPARE)
    out = tmp_path / "killed"
    arguments = ["--path", str(records), "--out", str(out), "--resolution", "4", "--jobs", "2"]
    process = subprocess.Popen([sys.executable, str(tmp_path / "prepare_slowly.py"), *arguments])
    progress = out / "train" / "progress.json"
    while not progress.is_file():
        assert process.poll() is None
        time.sleep(0.02)
    workers = children_of(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(workers) >= 2
    assert progress.is_file()
    waited_until = time.monotonic() + 60
    while any(Path(f"/proc/{worker}/stat").exists() for worker in workers):
        assert time.monotonic() < waited_until, "the workers outlive the process that was killed"
        time.sleep(0.1)
    assert run(["prepare", "MOVi", *arguments[:-1], "1"]) == 0
    assert (out / "train" / "frames.npy").read_bytes() == (cache / "train" / "frames.npy").read_bytes()
