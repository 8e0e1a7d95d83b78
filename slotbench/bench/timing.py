"""Times several ways to do one piece of work, in turns, so that other load on the machine hits all alike.

A subject (`slotbench.bench.subjects`) is a list of contests. What to read are the ratios: each is of one round, and
shown are their median, the smallest and the largest. On one thread of a CPU times are the processor's, which does not
count the waiting for a busy machine; on several, and on CUDA, the wall clock's.
"""

from __future__ import annotations

import gc
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Contest", "Measured", "Seconds", "Spread", "Way", "growth", "run_contest", "run_process"]

Way = Callable[[], Any]
"""One way to do the work once. One that times itself (a process) returns `Seconds`."""

# On Linux a process begins with the memory of the one that starts it as its highest: a small one starts the command.
_STARTER = """
import json, os, subprocess, sys, time
began = time.perf_counter()
process = subprocess.Popen(sys.argv[2:])
_, status, usage = os.wait4(process.pid, 0)
seconds, code = time.perf_counter() - began, os.waitstatus_to_exitcode(status)
with open(sys.argv[1], "w") as file:
    json.dump({"seconds": seconds, "code": code, "kilobytes": usage.ru_maxrss}, file)
"""


@dataclass(frozen=True)
class Seconds:
    """What a way measured by itself: seconds, and megabytes where it knows them."""

    seconds: float
    memory_mb: float | None = None


@dataclass(frozen=True)
class Contest:
    """Ways to do the same work.

    Attributes:
        label: what the work is: sizes, a part, a setting.
        ways: makes inputs and returns the ways by name, in the order in which they take turns; called when the contest
            begins.
        base: the way that ratios are relative to; None where the ways are parts of a whole, whose shares are shown.
        memory: the ways whose peak memory is measured, each in a process of its own.
        small: makes the same ways on small inputs, called before memory is measured: what it compiles and loads does
            not count.
        amount: how much of `unit` one turn handles, for a rate.
        unit: "clips", "videos"; "" for no rate.
        rare: ways that run in the first round only, because they take minutes.
        size: the length that the work grows with, where contests differ by it: growth is fitted over it.
        group: a table of its own for all contests of one group.
    """

    label: str
    ways: Callable[[], Mapping[str, Way]]
    base: str | None
    memory: tuple[str, ...] = ()
    small: Callable[[], Mapping[str, Way]] | None = None
    amount: float = 1.0
    unit: str = ""
    rare: tuple[str, ...] = ()
    size: float | None = None
    group: str = ""


@dataclass(frozen=True)
class Spread:
    """Median, smallest and largest of one number over the rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """That of the values; there must be one at least."""
        return cls(statistics.median(values), min(values), max(values))


@dataclass
class Measured:
    """One way of one contest.

    Attributes:
        way: its name.
        ms: milliseconds of a turn.
        ratio: to the base within a round, or share of the round where there is no base.
        memory_mb: peak beyond the inputs, gradients included; None if not measured.
    """

    way: str
    ms: Spread
    ratio: Spread
    memory_mb: float | None = None
    turns: list[float] = field(default_factory=list, repr=False)


def run_contest(contest: Contest, rounds: int, *, wall: bool = False, device: str = "cpu") -> list[Measured]:
    """Times every way in `rounds` rounds, after one turn of each that does not count.

    Args:
        contest: the ways.
        rounds: how often each takes its turn.
        wall: whether to read the wall clock; the processor's otherwise.
        device: "cuda" waits for the GPU before the clock is read.

    Raises:
        ValueError: the base is none of the ways.
    """
    ways = dict(contest.ways())
    if contest.base is not None and contest.base not in ways:
        raise ValueError(f"the base {contest.base} of {contest.label} is none of its ways: {', '.join(ways)}")
    clock = _clock(wall, device)
    for name, way in ways.items():
        if name not in contest.rare:
            way()
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    memory: dict[str, list[float]] = {}
    gc.collect()
    gc.disable()  # a collection would fall on whichever way is running
    try:
        for turn in range(rounds):
            for name, way in ways.items():
                if name in contest.rare and turn:
                    continue
                began = clock()
                result = way()
                took = clock() - began
                if isinstance(result, Seconds):
                    took = result.seconds
                    if result.memory_mb is not None:
                        memory.setdefault(name, []).append(result.memory_mb)
                del result
                seconds[name].append(took)
            gc.collect(1)
    finally:
        gc.enable()
    return [
        Measured(
            name,
            Spread.of([1e3 * value for value in values]),
            Spread.of(_ratios(values, seconds, contest.base)),
            max(memory[name]) if name in memory else None,
            values,
        )
        for name, values in seconds.items()
    ]


def run_process(command: Sequence[str], folder: Path | None = None, codes: Collection[int] = (0,)) -> Seconds:
    """Seconds of the wall clock from start to end, and the most resident memory.

    Args:
        command: program and arguments.
        folder: where it runs.
        codes: the exit codes that are right.

    Raises:
        RuntimeError: it ended with another code; with the end of its output.
    """
    with tempfile.TemporaryDirectory() as scratch:
        record = Path(scratch) / "record.json"
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _STARTER, str(record), *command],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        found = json.loads(record.read_text()) if record.is_file() else {"code": done.returncode}
    if found["code"] not in codes:
        output = done.stdout[-2000:].decode(errors="replace")
        raise RuntimeError(f"exit code {found['code']} of {' '.join(command)[:300]}\n{output}")
    return Seconds(found["seconds"], found["kilobytes"] / 1024)


def growth(sizes: Sequence[float], ms: Sequence[float]) -> float:
    """The exponent p of time ~ size^p: the slope of a line through the logarithms."""
    x, y = [math.log(size) for size in sizes], [math.log(value) for value in ms]
    mean = statistics.fmean(x)
    return sum((a - mean) * b for a, b in zip(x, y, strict=True)) / sum((a - mean) ** 2 for a in x)


def _ratios(values: list[float], seconds: dict[str, list[float]], base: str | None) -> list[float]:
    # a rare way has the first round alone
    if base is not None:
        return [value / other for value, other in zip(values, seconds[base], strict=False)]
    return [value / sum(other[turn] for other in seconds.values()) for turn, value in enumerate(values)]


def _clock(wall: bool, device: str) -> Callable[[], float]:
    if device != "cuda":
        return time.perf_counter if wall else time.process_time
    import torch

    def after_the_gpu() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    return after_the_gpu
