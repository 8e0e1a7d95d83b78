"""What runs on the node: a job's command as a child process, its output appended to the job's log."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from slotbench.grids.engine import Job

__all__ = ["STOPPED", "CommandProcess", "read_json"]

STOPPED = frozenset({128 + signal.SIGTERM, 128 + signal.SIGINT, -signal.SIGTERM, -signal.SIGINT, -signal.SIGUSR2})
"""Exit codes of a command that somebody has stopped, so that it can go on another time."""

_LOOK_SECONDS = 0.1


class CommandProcess:
    """A job's command, running.

    May be used from a signal handler: nothing here waits for a lock that the interrupted code could hold.

    Args:
        job: what to run.
        without: beginnings of names of environment variables that the command is not to see.
    """

    def __init__(self, job: Job, without: tuple[str, ...] = ()) -> None:
        environment = {key: value for key, value in os.environ.items() if not (without and key.startswith(without))}
        job.folder.mkdir(parents=True, exist_ok=True)
        job.log.parent.mkdir(parents=True, exist_ok=True)
        with open(job.log, "ab") as log:
            self._process = subprocess.Popen(
                list(job.command),
                env={**environment, **job.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.exit_code: int | None = None
        threading.Thread(target=self._reap, daemon=True).start()

    def _reap(self) -> None:
        self.exit_code = self._process.wait()

    @property
    def pid(self) -> int:
        """Of the command's process."""
        return self._process.pid

    def wait(self, seconds: float = float("inf")) -> int | None:
        """The exit code, negative for a signal, or None if the command is still running after that many seconds."""
        end = time.monotonic() + seconds
        while self.exit_code is None and time.monotonic() < end:
            time.sleep(_LOOK_SECONDS)
        return self.exit_code

    def terminate(self) -> None:
        """Asks it to save and end."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def stop(self, seconds: float) -> int:
        """Asks it to save and end, and kills it if it has not after that many seconds; returns the exit code."""
        self.terminate()
        if self.wait(seconds) is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        code = self.wait()
        assert code is not None
        return code


def read_json(path: Path) -> dict[str, Any]:
    """What a small file holds; nothing if it is not there or is not one."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
