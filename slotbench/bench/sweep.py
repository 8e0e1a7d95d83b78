"""Measures every core at every length, one process after the other, and keeps what each of them came to."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from slotbench.bench.job import OUT_OF_MEMORY, Job
from slotbench.bench.results import OUT_OF_TIME, SKIPPED, Results

__all__ = ["Outcome", "run_job", "sweep"]

_STAGES = ("inference", "training")
# Seconds that a process may take beyond the limit until it measures: imports, compilation.
_START = 300.0


@dataclass(frozen=True)
class Outcome:
    """What a process said of one stage: its numbers, or its problem.

    Attributes:
        stage: "inference", "training" or "streaming".
        result: what was measured.
        problem: `OUT_OF_MEMORY`, `OUT_OF_TIME` or "error"; "" if there is none.
        message: more about the problem.
    """

    stage: str
    result: dict[str, Any]
    problem: str = ""
    message: str = ""


def sweep(results: Results, report: Callable[[dict[str, Any]], None]) -> None:
    """Fills in the points that are missing.

    Cores take turns at each length, so that a change of the machine's load is not a difference between cores. Where a
    core fails at a measure, its longer lengths of that measure are skipped.

    Args:
        results: where points are looked up and added.
        report: called with each new point.
    """
    settings = results.settings
    for length in settings.lengths:
        for core in settings.cores:
            stages = []
            for stage in _STAGES:
                if results.get(core, stage, length) is not None:
                    continue
                if (failed := _failed_before(results, core, stage, length)) is not None:
                    own = failed["problem"] != SKIPPED
                    message = f"{failed['problem']} at {failed['length']}" if own else failed["message"]
                    report(results.add(core, stage, length, problem=SKIPPED, message=message))
                else:
                    stages.append(stage)
            _measure(results, core, length, tuple(stages), report)
    for core in settings.cores:
        longest = max(settings.lengths)
        if results.get(core, "streaming", longest) is None:
            _measure(results, core, longest, ("streaming",), report)


def _failed_before(results: Results, core: str, measure: str, length: int) -> dict[str, Any] | None:
    shorter = [point for point in results.series(core, measure) if point["length"] < length]
    return next((point for point in shorter if point.get("problem") not in (None, SKIPPED)), None) or next(
        (point for point in shorter if point.get("problem") == SKIPPED), None
    )


def _measure(
    results: Results, core: str, length: int, stages: tuple[str, ...], report: Callable[[dict[str, Any]], None]
) -> None:
    if not stages:
        return
    settings = results.settings
    limits = {OUT_OF_MEMORY: settings.memory, OUT_OF_TIME: settings.seconds}
    failed: Outcome | None = None
    for outcome in run_job(Job(core, stages, length, settings)):
        if outcome.problem:
            failed = outcome
            limit = {"limit": limits[outcome.problem]} if outcome.problem in limits else {}
            point = results.add(core, outcome.stage, length, problem=outcome.problem, message=outcome.message, **limit)
        else:
            point = results.add(core, outcome.stage, length, **outcome.result)
        report(point)
    for stage in stages:
        if failed is not None and results.get(core, stage, length) is None:
            message = f"{failed.stage}: {failed.problem}"
            report(results.add(core, stage, length, problem=SKIPPED, message=message))


def run_job(job: Job) -> Iterator[Outcome]:
    """What the process says, as it says it; the last outcome is a problem if it does not come to its end."""
    settings = job.settings
    threads = {name: str(settings.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")}
    waiting = list(job.stages)
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors,
        subprocess.Popen(
            [sys.executable, "-P", "-m", "slotbench.bench.measure"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **threads},
        ) as process,
    ):
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(job.to_json())
            process.stdin.close()
            for message in _messages(process.stdout, settings.seconds):
                if message is None:
                    yield Outcome(waiting[0], {}, OUT_OF_TIME, f"longer than {settings.seconds:g} s")
                    return
                if "begin" in message:
                    continue
                if "result" in message:
                    waiting.remove(stage := message.pop("result"))
                    yield Outcome(stage, message)
                else:
                    text = (
                        f"above {settings.memory:g} GiB" if message["problem"] == OUT_OF_MEMORY else message["message"]
                    )
                    yield Outcome(waiting[0], {}, message["problem"], text)
                    return
            code = process.wait()
            if waiting:
                errors.seek(0)
                yield _death(job, waiting[0], code, errors)
        finally:
            process.kill()


def _messages(stream: Iterable[str], seconds: float) -> Iterator[dict[str, Any] | None]:
    """The messages of a process; None, at last, if a stage takes longer than it may."""
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        for line in stream:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    allowed = seconds + _START
    while True:
        try:
            line = lines.get(timeout=allowed)
        except queue.Empty:
            yield None
            return
        if line is None:
            return
        message = json.loads(line)
        allowed = seconds + (_START if message.get("begin") == "setup" else 0)
        yield message


def _death(job: Job, stage: str, code: int, errors: Iterable[str]) -> Outcome:
    """A process that ended without a word: a library that cannot allocate aborts, and the system kills the large."""
    said = [line.strip() for line in errors if line.strip()]
    last = said[-1] if said else ""
    if code == -9 or "bad_alloc" in "".join(said):
        return Outcome(stage, {}, OUT_OF_MEMORY, f"above {job.settings.memory:g} GiB")
    return Outcome(stage, {}, "error", f"the process ended with code {code}{f': {last}' if last else ''}")
