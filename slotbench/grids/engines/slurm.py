"""The SLURM engine: points of a grid as arrays of jobs, through submitit."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slotbench.errors import did_you_mean
from slotbench.grids.engines import STOPPED, CommandProcess, Engine, EngineError, Job, Outcome
from slotbench.io import dump_json, read_json_object_or_none, write_atomically

__all__ = ["SUBMISSION_FILE", "SlurmEngine", "SlurmTask", "slurm_options"]

SUBMISSION_FILE = "slurm.json"

# name of --slurm.NAME -> its type
_OPTIONS: Mapping[str, type] = {
    **dict.fromkeys(("partition", "time", "gres", "account", "qos", "constraint", "exclude"), str),
    **dict.fromkeys(("nodes", "tasks_per_node", "gpus_per_node", "cpus_per_task", "save_seconds", "requeues"), int),
    **dict.fromkeys(("mem_gb", "ask_seconds"), float),
    **dict.fromkeys(("setup", "sbatch"), list),
}
_DEFAULTS = {"time": "60", "nodes": 1, "tasks_per_node": 1, "save_seconds": 90, "requeues": 100, "ask_seconds": 10.0}

_ENDED = {
    *("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"),
    *("PREEMPTED", "REVOKED"),
}
"""States from which a job does not come back."""
_ARRAY_SIZE = 1000  # SLURM refuses larger arrays, unless its MaxArraySize has been raised
_CANCEL_SECONDS = 45.0
_SIGNAL_SECONDS = 3.0
# A command of one process is not to know that it is in SLURM: Lightning would want to be started by srun, and would
# requeue the job by itself.
_HIDDEN = ("SLURM_", "SLURMD_", "SRUN_", "PMI_", "PMIX_", "SUBMITIT_")


def slurm_options(settings: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The options of pairs of KEY and VALUE of `--slurm.KEY VALUE`; `setup` and `sbatch` may be given several times."""
    found: dict[str, Any] = {**_DEFAULTS, "setup": [], "sbatch": []}
    for given, text in settings:
        key = given.replace("-", "_")
        if key not in _OPTIONS:
            near = did_you_mean(key, _OPTIONS).replace("mean ", "mean --slurm.")
            more = f'any other option of sbatch: --slurm.sbatch "{key.replace("_", "-")}=VALUE"'
            raise EngineError(f"no option --slurm.{key}{near}\n  options: {', '.join(_OPTIONS)}\n  {more}")
        try:
            found[key] = [*found[key], text] if _OPTIONS[key] is list else _OPTIONS[key](text)
        except ValueError as error:
            raise EngineError(f"--slurm.{key} {text}: expected a number") from error
    return found


class SlurmEngine(Engine):
    """Points as array jobs of SLURM, requeued by themselves when they are preempted or run into the time limit.

    A driver finds the jobs of the one before by the ids in the points' folders (`slurm.json`). How a job has ended is
    read from the file that submitit leaves; squeue is asked for jobs that left none.
    """

    name = "slurm"

    def __init__(self, options: Mapping[str, Any], jobs: int | None = None) -> None:
        if importlib.util.find_spec("submitit") is None:
            raise EngineError('--engine slurm needs submitit: pip install "slotbench[grid]"; or use --engine local')
        if shutil.which("sbatch") is None:
            raise EngineError("--engine slurm needs the commands of SLURM, as on a login node; or use --engine local")
        self._options, self._jobs = options, jobs
        self._num_tasks = options["nodes"] * options["tasks_per_node"]
        # whatever the driver's machine has
        self.threads = options.get("cpus_per_task", 1)
        self._watched: dict[str, Any] = {}
        self._queue: dict[str, tuple[str, str]] = {}
        self._gone: set[str] = set()
        self._asked = float("-inf")

    def submit(self, jobs: Sequence[Job]) -> None:
        """Submits jobs with sbatch, except those that an earlier driver submitted and that have not ended."""
        import submitit

        if not self._ask():
            raise EngineError("squeue does not answer, so the points may be in the queue already; try again later")
        new = []
        for job in jobs:
            earlier = str((read_json_object_or_none(job.folder / SUBMISSION_FILE) or {}).get("job"))
            if self._state(earlier) in _ENDED:
                new.append(job)
            else:
                self._watched[job.id] = submitit.SlurmJob(_scripts(job), earlier, range(self._num_tasks))
        for start in range(0, len(new), _ARRAY_SIZE):
            self._submit_array(new[start : start + _ARRAY_SIZE])

    def poll(self) -> list[Outcome]:
        """The jobs that have ended; asks squeue every `ask_seconds`."""
        ended = {key: _outcome(key, job) for key, job in self._watched.items() if _has_ended(job)}
        if time.monotonic() - self._asked >= self._options["ask_seconds"] and self._ask():
            # a node's last words may take longer on a shared disk than squeue takes to forget the job
            gone = {key for key, job in self._watched.items() if self._state(job.job_id) in _ENDED}
            for key in sorted(gone & self._gone - ended.keys()):
                state = self._queue.get(self._watched[key].job_id, ("ended without a word", ""))[0]
                ended[key] = Outcome(key, None, state.lower().replace("_", " "))
            self._gone = gone
        for key in ended:
            del self._watched[key]
        return list(ended.values())

    def running(self) -> Mapping[str, str]:
        """Jobs on a node, by the last answer of squeue: "slurm job 7_2 on node1"."""
        return {
            key: f"slurm job {job.job_id} on {self._queue[job.job_id][1]}"
            for key, job in self._watched.items()
            if self._state(job.job_id) not in {*_ENDED, "PENDING", "CONFIGURING", "REQUEUED"}
        }

    def cancel(self) -> None:
        """scancel for all: those that wait are gone, those that run save and end, which is waited for."""
        left = [job.job_id for job in self._watched.values()]
        for start in range(0, len(left), 100):
            # --quiet: a job that has ended in the meantime is no error
            subprocess.run(["scancel", "--quiet", *left[start : start + 100]], capture_output=True, check=False)
        end = time.monotonic() + _CANCEL_SECONDS
        while time.monotonic() < end and not all(map(_has_ended, self._watched.values())):
            if self._ask() and all(self._state(job) in _ENDED for job in left):
                break
            time.sleep(1.0)
        # the driver polls once more, and then nothing waits for a node's last output
        self._gone, self._asked = set(self._watched), float("-inf")

    def _state(self, job_id: str) -> str:
        """Of a job, by the last answer of squeue; one that SLURM has forgotten has completed."""
        return self._queue.get(job_id, ("COMPLETED", ""))[0]

    def _submit_array(self, jobs: Sequence[Job]) -> None:
        import submitit
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        # -P: the working folder is not for imports
        executor = submitit.SlurmExecutor(
            _scripts(jobs[0]), max_num_timeout=self._options["requeues"], python=f"{shlex.quote(sys.executable)} -P"
        )
        name = re.sub(r"[^A-Za-z0-9_.-]", "-", f"slotbench-{jobs[0].folder.parent.name}")
        parallel = self._jobs or _ARRAY_SIZE
        executor.update_parameters(job_name=name, array_parallelism=parallel, **_for_submitit(self._options))
        try:
            with executor.batch():
                submitted = [
                    executor.submit(SlurmTask(job, self._num_tasks, self._options["save_seconds"])) for job in jobs
                ]
        except (FailedJobError, FailedSubmissionError) as error:
            said = [line.partition("sbatch: error: ")[2] for line in str(error).splitlines()]
            raise EngineError(f"sbatch refuses the points: {'; '.join(filter(None, said)) or error}") from error
        for job, handle in zip(jobs, submitted, strict=True):
            write_atomically(job.folder / SUBMISSION_FILE, dump_json({"job": handle.job_id}))
            self._watched[job.id] = handle
        # so that they are soon seen to run
        self._asked = float("-inf")

    def _ask(self) -> bool:
        """Asks squeue for all jobs of this user that SLURM still knows; False if it does not answer now."""
        self._asked = time.monotonic()
        command = ["squeue", "--me", "--states=all", "--array", "--noheader", "--format=%i|%T|%N"]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
        except (subprocess.SubprocessError, OSError):
            return False  # a busy controller: what was known stays true until it answers
        rows = [line.strip().split("|") for line in answer.splitlines()]
        self._queue = {row[0]: (row[1], row[2]) for row in rows if len(row) == 3}
        return True


class SlurmTask:
    """What submitit runs on a node: the command of one point, in as many processes as SLURM starts.

    Told to make room (SIGUSR2) or cancelled (SIGTERM) it lets the command save; after SIGUSR2 the job is requeued.
    """

    def __init__(self, job: Job, num_tasks: int, save_seconds: int) -> None:
        self.job, self.num_tasks, self.save_seconds = job, num_tasks, save_seconds
        self._process: CommandProcess | None = None

    def __call__(self) -> int | None:
        """Runs the command to its end, and returns its exit code."""
        threads = os.environ.get("SLURM_CPUS_PER_TASK")
        process = self._process = CommandProcess(self.job, _HIDDEN if self.num_tasks == 1 else ("SUBMITIT_",), threads)
        signal.signal(signal.SIGTERM, lambda number, frame: process.terminate())
        code = process.wait()
        if code in STOPPED:
            # by whom? SLURM signals the command and this process at once, and the other signal may be on its way
            time.sleep(_SIGNAL_SECONDS)
        return code

    def checkpoint(self) -> Any:
        """Called by submitit when the job is to make room: lets the command save, and says what to run next time."""
        from submitit.helpers import DelayedSubmission

        if self._process is not None:
            self._process.stop(max(1, self.save_seconds - 10))
        return DelayedSubmission(SlurmTask(self.job, self.num_tasks, self.save_seconds))


def _for_submitit(options: Mapping[str, Any]) -> dict[str, Any]:
    """The same as parameters of submitit's SlurmExecutor."""
    others = ("tasks_per_node", "save_seconds", "requeues", "ask_seconds", "mem_gb", "sbatch")
    values = {key: value for key, value in options.items() if key not in others}
    values |= {"ntasks_per_node": options["tasks_per_node"], "signal_delay_s": options["save_seconds"]}
    if "mem_gb" in options:
        values["mem"] = f"{round(options['mem_gb'] * 1024)}M"
    # once one process of a point has ended, the others may finish what they write, but not wait forever for it; srun
    # takes the cores no longer from sbatch by itself
    cores = [f"--cpus-per-task={options['cpus_per_task']}"] if "cpus_per_task" in options else []
    values["srun_args"] = ["--kill-on-bad-exit=0", "--wait=300", *cores]
    more = (text.removeprefix("--").replace(" ", "=", 1).partition("=") for text in options["sbatch"])
    own = {name: value if equals else True for name, equals, value in more}
    return {**values, "additional_parameters": {"requeue": True, **own}}


def _scripts(job: Job) -> Path:
    """Where submitit keeps its scripts and what they print; hidden, since it is no point of the grid."""
    return job.folder.parent / ".slurm"


def _has_ended(job: Any) -> bool:
    return bool(job.task(0).paths.result_pickle.exists())


def _outcome(key: str, job: Any) -> Outcome:
    """How a job has ended that has left its result: of several processes the first that has failed by itself."""
    ended = [job.task(rank) for rank in range(job.num_tasks) if job.task(rank).paths.result_pickle.exists()]
    problems = [str(error) for task in ended if (error := task.exception()) is not None]
    if problems:
        return Outcome(key, None, "timeout" if "timed-out too many" in problems[0] else "failed")
    codes = [task.result() for task in ended]
    return Outcome(key, next((code for code in codes if code and code not in STOPPED), codes[0]))
