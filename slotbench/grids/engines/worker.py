"""A job's command as a child process on the node, its output appended to the job's log."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import threading
import time
from pathlib import Path

from slotbench.files import make_folder, open_to_append
from slotbench.grids.engines.base import Job
from slotbench.grids.ledger import PointFolder, now
from slotbench.locks import Lock, LockedError

__all__ = ["STOPPED", "THREAD_VARIABLES", "CommandProcess", "PointTaken"]

STOPPED = frozenset({128 + signal.SIGTERM, 128 + signal.SIGINT, -signal.SIGTERM, -signal.SIGINT, -signal.SIGUSR2})
"""Exit codes of a command that a signal has stopped, so that it can be resumed."""

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

_LOOK_SECONDS = 0.1


class PointTaken(Exception):  # noqa: N818  a fact, not a failure
    """Another process runs the point."""


class CommandProcess:
    """A job's command, running, which holds the lock of the point's folder through an inherited descriptor.

    May be used from a signal handler: nothing here waits for a lock that the interrupted code could hold.

    Args:
        job: what to run.
        without: beginnings of names of environment variables that the command is not to see.
        threads: for the command, where this machine knows better than the driver's; None leaves them.
        locked: whether to take the folder's lock; False in the further processes of one point.
        own_session: whether it runs in a session of its own, which Ctrl-C on the terminal does not reach.

    Raises:
        PointTaken: another process has the lock.
    """

    def __init__(
        self,
        job: Job,
        without: tuple[str, ...] = (),
        threads: int | None = None,
        locked: bool = True,
        own_session: bool = False,
    ) -> None:
        environment = {key: value for key, value in os.environ.items() if not (without and key.startswith(without))}
        environment |= job.environment
        if threads is not None:
            environment |= dict.fromkeys(THREAD_VARIABLES, str(threads))
        make_folder(job.folder)
        lock = _lock(job.folder) if locked else None
        try:
            with open_to_append(job.log) as log:
                if locked:
                    log.write(f"=== {now()} {shlex.join(job.command)}\n".encode())
                self._process = subprocess.Popen(
                    list(job.command),
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=own_session,
                    pass_fds=() if lock is None else (lock.descriptor,),
                )
        finally:
            if lock is not None:
                lock.release()
        self.exit_code: int | None = None
        threading.Thread(target=self._reap, daemon=True).start()

    def _reap(self) -> None:
        self.exit_code = self._process.wait()

    @property
    def pid(self) -> int:
        """Of the command's process."""
        return self._process.pid

    def wait(self, seconds: float | int = float("inf")) -> int | None:
        """The exit code, negative for a signal, or None if the command is still running after that many seconds."""
        end = time.monotonic() + seconds
        while self.exit_code is None and time.monotonic() < end:
            time.sleep(_LOOK_SECONDS)
        return self.exit_code

    def terminate(self) -> None:
        """Asks it to save and end."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def stop(self, seconds: float | int) -> int:
        """Asks it to save and end, and kills it if it has not after that many seconds; returns the exit code."""
        self.terminate()
        if self.wait(seconds) is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        code = self.wait()
        assert code is not None
        return code


def _lock(folder: Path) -> Lock:
    lock = Lock(PointFolder(folder).lock)
    try:
        lock.acquire()
    except LockedError as error:
        raise PointTaken("another process runs it") from error
    return lock
