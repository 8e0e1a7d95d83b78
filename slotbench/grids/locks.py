"""Locks that end with the process that holds them, however it ends."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

from slotbench.errors import FileError
from slotbench.files import read_text

__all__ = ["hold", "holder", "is_held", "release"]

_PATIENCE = 1.0


def hold(path: Path) -> int | None:
    """Takes a lock and returns its file descriptor, or None if somebody has it.

    The lock is that of the open file: a child that inherits the descriptor holds it too, until the last of them is
    gone. Nobody holds a lock after a kill.
    """
    if sys.platform == "win32":
        raise OSError("grids run on Linux and macOS; there is no such lock here")
    import fcntl

    # a pipe in the place of a lock must not be waited for
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # somebody who only asks holds it too, for a moment
            if time.monotonic() < until:
                time.sleep(0.02)
                continue
            os.close(descriptor)
            return None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        return descriptor


def release(descriptor: int) -> None:
    """Lets go of this process's share of a lock."""
    os.close(descriptor)


def is_held(path: Path) -> bool:
    """Whether somebody has the lock; leaves no file behind."""
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # a file system without locks
    finally:
        os.close(descriptor)
    return False


def holder(path: Path) -> str:
    """Who took the lock last, in words."""
    try:
        return read_text(path, limit=1000).strip() or "another process"
    except FileError:
        return "another process"
