"""A lock between processes that ends with the process that holds it, however that ends.

It is `flock` on a small file, on Linux and macOS. NFS (since Linux 2.6.12), CephFS and GPFS hold it between machines;
when a node dies, its server gives the lock back once the node's lease ends (NFSv4: 90 s) or the node is up again.
Lustre holds it between machines if mounted with `flock`, and on each machine alone with `localflock`. Where the file
system has no locks, and on Windows, nothing is locked: better unguarded than not at all.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import weakref
from pathlib import Path
from types import TracebackType

from slotbench.errors import FileError
from slotbench.files import open_own, read_json_object_or_none, why_unwritable

__all__ = ["Lock", "LockedError", "is_locked", "lock_holder"]

_FIRST_WAIT, _LONGEST_WAIT = 0.02, 0.5
_held: weakref.WeakSet[Lock] = weakref.WeakSet()


class LockedError(Exception):
    """Another process holds the lock; the message names it.

    Attributes:
        holder: what it wrote about itself: "pid" and "host", if it has come to that.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(lock_holder(path))
        self.holder = read_json_object_or_none(path, limit=1000) or {}


class Lock:
    """An advisory lock on a file, for a `with` block or for as long as the process lives.

    The file stays when the lock is given back: removing it would let two processes lock two files of one name. A forked
    child (a data loader's worker, which outlives a killed trainer by seconds) does not hold it; a program that is
    started with `pass_fds=[lock.descriptor]` does, until the last of the two is gone.

    Args:
        path: the file; made if absent.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._descriptor: int | None = None

    @property
    def descriptor(self) -> int:
        """The open file that holds the lock."""
        assert self._descriptor is not None
        return self._descriptor

    def acquire(self, timeout: float = 0.5, waiting: str = "") -> None:
        """Takes the lock, and writes into the file who has it.

        Args:
            timeout: seconds to wait for another holder; a process in `is_locked` is one too, for microseconds.
            waiting: printed on stderr if the lock is not free at once.

        Raises:
            LockedError: another process has it.
            FileError: the file cannot be made, or in its place is a folder, a link or a device; the message names it.
        """
        try:
            descriptor = open_own(self._path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise FileError(f"{self._path} cannot be locked: {why_unwritable(error)}") from error
        try:
            _take(descriptor, self._path, time.monotonic() + timeout, waiting)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        _held.add(self)
        try:
            if os.fstat(descriptor).st_nlink > 1:
                return  # another name of a file that may not be ours: it is locked, and stays as it is
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)
        except OSError:  # a full disk: it is held all the same
            pass

    def release(self) -> None:
        """Gives this process's share of the lock back, if it has one."""
        descriptor, self._descriptor = self._descriptor, None
        _held.discard(self)
        if descriptor is not None:
            os.close(descriptor)

    def __enter__(self) -> Lock:
        """Takes the lock."""
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Gives it back."""
        self.release()


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock; returns at once and leaves no file behind."""
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        descriptor = open_own(path, os.O_RDONLY)
    except (OSError, FileError):  # a foreign file is no lock
        return False
    try:
        # shared, so that two that ask do not take each other for the holder
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # a file system without locks
    finally:
        os.close(descriptor)
    return False


def lock_holder(path: Path) -> str:
    """Who took the lock last, in words."""
    record = read_json_object_or_none(path, limit=1000) or {}
    pid, host = record.get("pid"), record.get("host")
    return f"process {pid} on {host}" if isinstance(pid, int) and isinstance(host, str) else "another process"


def _take(descriptor: int, path: Path, until: float, waiting: str) -> None:
    """Waits for the lock of an open file.

    Raises:
        LockedError: it is not free by then.
    """
    if sys.platform == "win32":
        return
    import fcntl

    wait = _FIRST_WAIT
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() >= until:
                raise LockedError(path) from error
            if waiting and wait > _FIRST_WAIT:
                print(waiting, file=sys.stderr, flush=True)
                waiting = ""
        except OSError:
            return  # a file system without locks
        time.sleep(wait)
        wait = min(2 * wait, _LONGEST_WAIT)


def _release_in_child() -> None:
    for lock in list(_held):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)
