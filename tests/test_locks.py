"""One process at a time holds a lock, and it ends with the process."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import pytest

from slotbench.locks import Lock, LockedError, is_locked


def test_the_second_is_refused_and_told_who_the_first_is(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    first, second = Lock(path), Lock(path)
    first.acquire()
    assert is_locked(path)
    with pytest.raises(LockedError) as refused:
        second.acquire()
    assert refused.value.holder == {"pid": os.getpid(), "host": socket.gethostname()}
    first.release()
    assert not is_locked(path)
    second.acquire()
    assert is_locked(path)
    second.release()


def test_asking_leaves_no_file_behind(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / ".lock")
    assert not is_locked(tmp_path / "nowhere" / ".lock")
    assert list(tmp_path.iterdir()) == []


def test_one_who_only_asks_does_not_keep_the_lock_from_one_who_wants_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    path = tmp_path / ".lock"
    path.touch()
    asking = open(path)  # noqa: SIM115
    fcntl.flock(asking, fcntl.LOCK_SH)
    monkeypatch.setattr(time, "sleep", lambda _: asking.close())  # done by the time that it is tried again
    lock = Lock(path)
    lock.acquire()
    assert is_locked(path)
    lock.release()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_that_lives_on_does_not_hold_the_lock(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    lock = Lock(path)
    lock.acquire()
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        os.write(write, b"x")
        signal.pause()
        os._exit(0)
    try:
        os.read(read, 1)
        assert is_locked(path)
        lock.release()
        assert not is_locked(path)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(read)
        os.close(write)
