"""Times several ways to do one piece of work, in turns, so that other load on the machine hits all alike.

A subject (`slotbench.bench.subjects`) is a list of contests. What to read are the ratios: each is of one round, and
shown are their median, the smallest and the largest. On one thread of a CPU times are the processor's, which does not
count the waiting for a busy machine; on several the wall clock's.

Peak memory of one way of one contest is measured in a process of its own: `python -m` this module, a request on its
input. What is counted is the highest resident size during one turn, after the same way has run on small inputs (which
compiles and loads everything), less what was resident with the inputs in place.
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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import torch

from slotbench.bench.core_process import count_flops
from slotbench.bench.harness import MemoryMeter, Say, messages, python, serve, thread_variables
from slotbench.bench.report import Table, exponent, markdown, number
from slotbench.bench.subjects import SUBJECTS, contests_of
from slotbench.files import dump_json, write_atomically
from slotbench.runs.provenance import describe_environment, processor

__all__ = ["Contest", "Seconds", "Way", "by_shape", "run_contest", "run_process", "run_subject", "tables"]

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
        flops: the ways whose operations are counted, in a turn of its own (`count_flops`).
        derived: what follows from the median seconds of a turn, by the heading of its column.
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
    flops: tuple[str, ...] = ()
    derived: Callable[[float], Mapping[str, float | str]] | None = None


def by_shape(
    shapes: Iterable[tuple[int, ...]],
    ways: Callable[..., Mapping[str, Way]],
    base: str,
    small: Callable[..., tuple[int, ...]] | None = None,
    **fields: Any,
) -> list[Contest]:
    """A contest per shape, which is its label.

    Args:
        shapes: of the inputs.
        ways: makes the ways for a shape, whose sizes are its arguments.
        base: the way that ratios are relative to.
        small: of those arguments, a shape that is quick to run and compiles the same; where memory is measured.
        **fields: further fields of the contests, such as `memory`, `rare` and `group`.
    """
    return [
        Contest(
            ", ".join(map(str, shape)),
            partial(ways, *shape),
            base,
            small=None if small is None else partial(ways, *small(*shape)),
            **fields,
        )
        for shape in shapes
    ]


Measured = list[dict[str, Any]]
"""Each way of a contest: "way", "ms" and "ratio" as "median", "low" and "high", "memory_mb", "flops", "derived", and
its "turns"."""


def run_contest(contest: Contest, rounds: int, *, wall: bool = False) -> Measured:
    """Times every way in `rounds` rounds, after one turn of each that does not count.

    Args:
        contest: the ways.
        rounds: how often each takes its turn.
        wall: whether to read the wall clock; the processor's otherwise.

    Returns:
        The ways. A ratio is to the base within a round, or the share of a round where there is no base.

    Raises:
        ValueError: the base is none of the ways.
    """
    ways, base = dict(contest.ways()), contest.base
    if base is not None and base not in ways:
        raise ValueError(f"the base {base} of {contest.label} is none of its ways: {', '.join(ways)}")
    clock = time.perf_counter if wall else time.process_time
    for name, way in ways.items():
        if name not in contest.rare:
            way()
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    memory: dict[str, float] = {}
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
                        memory[name] = max(result.memory_mb, memory.get(name, 0.0))
                del result
                seconds[name].append(took)
            gc.collect(1)
    finally:
        gc.enable()
    # a rare way has the first round alone
    whole = [sum(parts) for parts in zip(*seconds.values(), strict=False)] if base is None else seconds[base]
    return [
        {
            "way": name,
            "ms": _around([1e3 * value for value in values]),
            "ratio": _around([value / other for value, other in zip(values, whole, strict=False)]),
            "memory_mb": memory.get(name),
            "flops": count_flops(ways[name]) if name in contest.flops else None,
            "derived": {} if contest.derived is None else dict(contest.derived(statistics.median(values))),
            "turns": values,
        }
        for name, values in seconds.items()
    ]


def _around(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


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
        starter = [sys.executable, "-I", "-S", "-c", _STARTER, str(record), *command]
        done = subprocess.run(starter, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        found = json.loads(record.read_text()) if record.is_file() else {"code": done.returncode}
    if found["code"] not in codes:
        output = done.stdout[-2000:].decode(errors="replace")
        raise RuntimeError(f"exit code {found['code']} of {' '.join(command)[:300]}\n{output}")
    return Seconds(found["seconds"], found["kilobytes"] / 1024)


def run_subject(
    name: str,
    out: Path,
    report: Callable[[str, int, int], None],
    *,
    command: str,
    rounds: int | None = None,
    threads: int = 1,
    quick: bool = False,
    memory: bool = True,
    only: str = "",
    options: dict[str, str] | None = None,
) -> tuple[list[str], list[Table]]:
    """Times every contest of a subject and writes NAME.json, anew after each contest, and NAME.md.

    Args:
        name: one of `SUBJECTS`.
        out: the folder of the two files.
        report: is told which contest begins, which it is, counted from 1, and of how many.
        command: the command line, for the record.
        rounds: how often each way takes its turn; the subject's own number by default.
        threads: of torch and of compiled kernels.
        quick: small sizes and two rounds.
        memory: whether to measure memory, where the subject has ways for it.
        only: a part of the labels of the contests to run; all by default.
        options: further arguments of the subject.

    Returns:
        The lines that say on what machine it was, and the tables.
    """
    subject, options = SUBJECTS[name], options or {}
    rounds = rounds or (2 if quick else subject.rounds)
    torch.set_num_threads(threads)
    out.mkdir(parents=True, exist_ok=True)
    record = {"bench": name, "command": command, "rounds": rounds, "environment": describe_environment()}
    results: list[tuple[Contest, Measured]] = []
    chosen = [contest for contest in contests_of(name, quick, **options) if only in f"{contest.group} {contest.label}"]
    for index, contest in enumerate(chosen, start=1):
        report(f"{contest.group} {contest.label}".strip(), index, len(chosen))
        measured = run_contest(contest, rounds, wall=threads > 1)
        for one in measured if memory else ():
            if one["way"] in contest.memory:
                request = {"subject": name, "label": contest.label, "way": one["way"], "quick": quick}
                one["memory_mb"] = _peak_memory({**request, "options": options}, threads)
        results.append((contest, measured))
        fields = ("group", "base", "amount", "unit")
        contests = [
            {"case": done.label, **{field: getattr(done, field) for field in fields}, "ways": ways}
            for done, ways in results
        ]
        write_atomically(out / f"{name}.json", dump_json({**record, "contests": contests}, indent=1) + "\n")
    made = tables(subject.what, subject.case, results)
    machine = f"{processor()}, {threads} thread{'s' * (threads > 1)}, torch {torch.__version__}, {date.today()}"
    lines = [f"{machine}; medians of {rounds} rounds (smallest to largest), ways in turns."]
    write_atomically(out / f"{name}.md", markdown(made, name, [f"    {command}", *lines]))
    return lines, made


def tables(title: str, case: str, results: Sequence[tuple[Contest, Measured]]) -> list[Table]:
    """One table per group of contests, columns without a value left out; then how times grow.

    Args:
        title: of the tables.
        case: heading of the first column: what tells the contests apart.
        results: the contests and what was measured.
    """
    groups: dict[str, list[tuple[Contest, Measured]]] = {}
    for contest, measured in results:
        groups.setdefault(contest.group, []).append((contest, measured))
    made = [_table(f"{title}: {group}" if group else title, case, entries) for group, entries in groups.items()]
    return made + [table for group, entries in groups.items() if (table := _growth_table(group, entries)).rows]


def _table(title: str, case: str, entries: list[tuple[Contest, Measured]]) -> Table:
    (base,) = {contest.base for contest, _ in entries}
    units = "/".join(dict.fromkeys(contest.unit for contest, _ in entries if contest.unit))
    with_memory = any(one["memory_mb"] is not None for _, measured in entries for one in measured)
    headings = [case, "way", "ms", "share" if base is None else f"x {base}", "min to max"]
    with_flops = any(contest.flops for contest, _ in entries)
    headings += [f"{units}/s"] * bool(units) + ["MB"] * with_memory + ["GFLOP"] * with_flops
    headings += list(entries[0][1][0]["derived"])
    rows = []
    for contest, measured in entries:
        for index, one in enumerate(measured):
            ms, ratio = one["ms"]["median"], one["ratio"]
            row = ["" if index else contest.label, one["way"], number(ms), number(ratio["median"])]
            row.append("" if one["way"] == base else f"{number(ratio['low'])} to {number(ratio['high'])}")
            if units:
                row.append(f"{1e3 * contest.amount / ms:,.0f}")
            if with_memory:
                row.append("" if one["memory_mb"] is None else f"{one['memory_mb']:,.0f}")
            if with_flops:
                row.append("" if one["flops"] is None else number(1e-9 * one["flops"]))
            row += [value if isinstance(value, str) else number(value) for value in one["derived"].values()]
            rows.append(row)
    return Table(title, headings, rows, words=2)


def _growth_table(group: str, entries: list[tuple[Contest, Measured]]) -> Table:
    """How the time of each way grows with the size of the contests; no rows where these have no size."""
    series: dict[str, list[tuple[float, float]]] = {}
    for contest, measured in entries:
        for one in measured:
            if contest.size is not None:
                series.setdefault(one["way"], []).append((contest.size, one["ms"]["median"]))
    rows = []
    for way, points in series.items():
        sizes, ms = zip(*sorted(points), strict=True)
        if len(set(sizes)) > 1:
            rows.append(["", way, f"{min(sizes):g} to {max(sizes):g}", f"T^{exponent(sizes, ms):.2f}"])
    return Table(f"growth{f': {group}' if group else ''}", ["", "way", "over", "grows as"], rows, words=2)


def _peak_memory(request: dict[str, Any], threads: int) -> float:
    """Megabytes beyond the inputs.

    Raises:
        RuntimeError: the process failed; its error is on the terminal.
    """
    for message in messages(python("slotbench.bench.contests"), request, math.inf, env=thread_variables(threads)):
        if "ended" not in message:
            return float(message["memory_mb"])
    raise RuntimeError(f"memory of {request['way']} on {request['label']} could not be measured")


def _measure(request: dict[str, Any], say: Say) -> None:
    contests = contests_of(request["subject"], request["quick"], **request["options"])
    contest = next(contest for contest in contests if contest.label == request["label"])
    if contest.small is not None:
        contest.small()[request["way"]]()
    way = contest.ways()[request["way"]]
    meter = MemoryMeter("cpu")
    meter.reset()
    result = way()
    say({"memory_mb": meter.peak()})
    del result


if __name__ == "__main__":
    serve(_measure)
