"""The lock of a run folder: one process trains a run at a time."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import IO, Any

__all__ = ["LockedError", "RunLock", "is_locked"]

# a process that only asks whether a run is locked holds the lock for some microseconds
_PATIENCE = 0.5


class LockedError(Exception):
    """Another process holds the lock.

    Attributes:
        holder: what it wrote about itself: "pid" and "host", if it has come to that.
    """

    def __init__(self, holder: dict[str, Any]) -> None:
        super().__init__(f"locked by {holder}")
        self.holder = holder


class RunLock:
    """An advisory lock on a file, which the operating system takes back when the process ends, however it ends.

    The file stays when the lock is given back: removing it would let two processes lock two files of one name. On
    Windows, and on file systems without locks, nothing is locked.

    Args:
        path: the file; made if absent.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None

    def acquire(self) -> None:
        """Takes the lock, and writes into the file who has it.

        Raises:
            LockedError: another process has it.
        """
        if sys.platform == "win32":
            return
        import fcntl

        file = open(self._path, "a+", encoding="utf-8")  # noqa: SIM115  open for as long as the lock is held
        patience = time.monotonic() + _PATIENCE
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() < patience:
                    time.sleep(0.02)
                    continue
                file.seek(0)
                holder = _parsed(file.read())
                file.close()
                raise LockedError(holder) from error
            except OSError:
                break  # a file system without locks: better unguarded than not at all
        file.truncate(0)
        file.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
        file.flush()
        self._file = file
        # a data loader's worker outlives a trainer that is killed by some seconds, and would hold the lock as long
        os.register_at_fork(after_in_child=self._forget)

    def release(self) -> None:
        """Gives the lock back, if this process has it."""
        self._forget()

    def _forget(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock; returns at once and leaves no file behind."""
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        with open(path, encoding="utf-8") as file:
            # shared, so that two that ask do not take each other for the holder
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # no file, or a file system without locks
    return False


def _parsed(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
