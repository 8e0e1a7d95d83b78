"""Whether a run that says it trains does, where nobody can be asked."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

from slotbench.comparison.run_folders import read_run_folder
from slotbench.errors import FileError
from slotbench.locks import Lock, is_locked
from slotbench.runs.folder import RunFolder, RunFolderError

HOUR = 3600


def silent_for(folder: RunFolder, hours: float) -> None:
    moment = time.time() - hours * HOUR
    for path in (folder.path / "run.json", folder.path / "metrics.jsonl"):
        os.utime(path, (moment, moment))


@pytest.fixture
def running(tmp_path: Path) -> RunFolder:
    folder = RunFolder.create(tmp_path, "tiny")
    folder.append(0, {"val/loss": 1.0})
    folder.write_config("model: {}\n")
    folder.update(state="running")
    return folder


def test_a_run_of_another_machine_has_stopped_once_it_is_silent(running: RunFolder) -> None:
    running.update(host="node7")
    assert running.state == "running"
    silent_for(running, 3)
    assert running.state == "killed"
    assert running.standing.words == "running, last row 3 h ago on host node7: presumably stopped"
    assert read_run_folder(running.path).facts["state"] == "killed"


def test_a_checkpoint_is_a_sign_of_life_and_a_clock_that_is_wrong_is_none(running: RunFolder) -> None:
    running.update(host="node7")
    silent_for(running, 3)
    (running.checkpoints / "last.ckpt").write_bytes(b"")
    assert running.state == "running"
    (running.checkpoints / "last.ckpt").unlink()
    silent_for(running, -30 * 24)
    assert running.state == "killed"


def test_a_copy_without_its_lock_is_silent_too(running: RunFolder) -> None:
    # the process of the original lives
    running.update(host=socket.gethostname(), pid=os.getpid())
    assert running.state == "running"
    silent_for(running, 60)
    assert running.state == "killed"
    assert "3 days ago" in running.standing.words or "2 days ago" in running.standing.words


def test_a_run_that_holds_its_lock_trains_however_silent_it_is(running: RunFolder) -> None:
    running.update(host="node7")
    with Lock(running.path / ".lock"):
        silent_for(running, 300)
        assert running.state == "running"


def test_a_lock_that_is_no_file_is_a_sentence_and_nobodys(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    os.mkfifo(tmp_path / "pipe")
    for name, words in (("folder", "is a folder"), ("link", "is a link"), ("pipe", "is a named pipe")):
        with pytest.raises(FileError, match=f"{name} {words}"):
            Lock(tmp_path / name).acquire()
        assert not is_locked(tmp_path / name)
    assert not (tmp_path / "victim").exists()


def test_a_lock_that_may_not_be_made_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **more: object) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path))

    monkeypatch.setattr("os.open", refuse)
    with pytest.raises(FileError, match=r"\.lock cannot be locked: its permissions do not allow it"):
        Lock(tmp_path / ".lock").acquire()


def test_a_folder_that_may_not_be_read_is_a_sentence(running: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise PermissionError(13, "Permission denied", str(running.path))

    monkeypatch.setattr("os.scandir", refuse)
    with pytest.raises(RunFolderError, match="may not be read: its permissions do not allow it"):
        RunFolder.open(running.path)
