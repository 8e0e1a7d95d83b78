"""The task that submitit runs on a node: one point's command, until it ends or is to make room and be requeued."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from types import FrameType
from typing import Any

from slotbench.files import dump_json, read_json_object_or_none, remove_file, write_atomically
from slotbench.grids.engines.base import Job
from slotbench.grids.engines.worker import STOPPED, CommandProcess

__all__ = ["END_FILE", "SlurmTask", "end_of"]

END_FILE = "slurm_end.json"

# A command of one process is not to know that it is in SLURM: Lightning would want to be started by srun, and would
# requeue the job by itself.
_HIDDEN = ("SLURM_", "SLURMD_", "SRUN_", "PMI_", "PMIX_", "SUBMITIT_")

_SIGNAL_SECONDS = 3.0
_SPARE_SECONDS = 10


class SlurmTask:
    """The command of one point, in as many processes as SLURM starts.

    Ended by the command itself, it writes how into the point's folder. Told to make room (submitit's SIGUSR2: the time
    limit is near, or a job of higher priority wants the node) it lets the command save, and the job is requeued; there
    the same command resumes from its checkpoint. Cancelled (SIGTERM) it lets the command save, and ends.

    Args:
        job: what to run.
        token: names this submission of the job; written into the end file, so that a later submission is not taken
            for ended.
        num_tasks: processes of the point.
        save_seconds: how long the command may take to save.
    """

    def __init__(self, job: Job, token: str, num_tasks: int, save_seconds: int) -> None:
        self.job, self.token, self.num_tasks, self.save_seconds = job, token, num_tasks, save_seconds
        self._process: CommandProcess | None = None
        self._cancelled = False

    def __call__(self) -> None:
        """Runs the command to its end.

        Raises:
            RuntimeError: the command has failed, so that SLURM calls the job failed too.
        """
        if _rank() == 0:
            remove_file(self.job.folder / END_FILE)
        signal.signal(signal.SIGTERM, self._on_cancel)
        try:
            self._process = CommandProcess(
                self.job,
                without=_HIDDEN if self.num_tasks == 1 else ("SUBMITIT_",),
                threads=_threads(),
                locked=_rank() == 0,
            )
            if self._cancelled:
                self._process.terminate()
            code = self._process.wait()
            if code in STOPPED:
                # by whom? SLURM signals the command and this process at once, and the other signal may be on its way
                time.sleep(_SIGNAL_SECONDS)
        except Exception as error:
            # no such program, or out of submitit's handler: the job could not be requeued, or was too often
            self._write_end(None if self._process is None else self._process.exit_code, str(error), final=True)
            raise
        self._write_end(code, "", final=code not in STOPPED)
        if code != 0:
            raise RuntimeError(f"the command ended with {code}; its output is in {self.job.log}")

    def checkpoint(self) -> Any:
        """Called by submitit when the job is to make room: lets the command save, and says what to run next time."""
        from submitit.helpers import DelayedSubmission

        if self._process is None:
            return DelayedSubmission(self._anew())
        code = self._process.stop(max(1, self.save_seconds - _SPARE_SECONDS))
        # one that has just ended by itself is not run again
        return DelayedSubmission(self._anew()) if code in STOPPED or code == -signal.SIGKILL else None

    def _anew(self) -> SlurmTask:
        return SlurmTask(self.job, self.token, self.num_tasks, self.save_seconds)

    def _on_cancel(self, number: int, frame: FrameType | None) -> None:
        self._cancelled = True
        if self._process is not None:
            self._process.terminate()

    def _write_end(self, code: int | None, reason: str, final: bool) -> None:
        path = self.job.folder / END_FILE
        if _rank() != 0 and (code == 0 or not final):
            return
        if not final and path.exists():
            return  # another process of the point has failed, which is why this one was stopped
        end = {"token": self.token, "exit_code": code, "reason": reason, "final": final, "restarts": _restarts()}
        write_atomically(path, dump_json(end))


def _rank() -> int:
    return int(os.environ.get("SLURM_PROCID", "0"))


def _threads() -> int | None:
    """Cores that SLURM has given to this process, if it says so."""
    given = os.environ.get("SLURM_CPUS_PER_TASK")
    if given is None and os.environ.get("SLURM_NTASKS_PER_NODE", "1") == "1":
        given = os.environ.get("SLURM_CPUS_ON_NODE")
    return int(given) if given and given.isdigit() else None


def _restarts() -> int:
    return int(os.environ.get("SLURM_RESTART_COUNT", "0"))


def end_of(folder: Path, token: str) -> dict[str, Any]:
    """The outcome of a submission of a point; nothing while it runs."""
    end = read_json_object_or_none(folder / END_FILE) or {}
    return end if end.get("token") == token else {}
