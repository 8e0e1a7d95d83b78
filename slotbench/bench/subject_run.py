"""Runs a subject and writes NAME.json and NAME.md.

Peak memory of one way of one contest is measured in a process of its own: `python -m` this module, a request on its
input. What is counted is the highest resident size during one turn, after the same way has run on small inputs (which
compiles and loads everything), less what was resident with the inputs in place.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from typing import Any

import torch

from slotbench.bench.memory import MemoryMeter
from slotbench.bench.subjects import load_subject
from slotbench.bench.tables import Table, markdown, number
from slotbench.bench.timing import Contest, Measured, Spread, growth, run_contest
from slotbench.files import dump_json, write_atomically
from slotbench.runs.provenance import describe_environment, processor

__all__ = ["as_json", "peak_memory", "run_subject", "tables"]

Results = Sequence[tuple[Contest, list[Measured]]]


def run_subject(
    name: str,
    out: Path,
    report: Callable[[str], None],
    *,
    command: str,
    rounds: int | None = None,
    threads: int = 1,
    quick: bool = False,
    memory: bool = True,
    only: str = "",
    options: dict[str, str] | None = None,
) -> tuple[str, list[Table], str]:
    """Times every contest of a subject; what there is so far is written after each.

    Args:
        name: one of `SUBJECTS`.
        out: the folder of the two files.
        report: is told which contest begins.
        command: the command line, for the record.
        rounds: how often each way takes its turn; the subject's own number by default.
        threads: of torch and of compiled kernels.
        quick: small sizes and two rounds.
        memory: whether to measure memory, where the subject has ways for it.
        only: a part of the labels of the contests to run; all by default.
        options: further arguments of the subject.

    Returns:
        The line that says on what machine, the tables, and the subject's note.
    """
    subject, options = load_subject(name), options or {}
    rounds = rounds or (2 if quick else subject.rounds)
    torch.set_num_threads(threads)
    machine = f"{processor()}, {threads} thread{'s' * (threads > 1)}, torch {torch.__version__}, {date.today()}"
    out.mkdir(parents=True, exist_ok=True)
    environment = describe_environment()
    results: list[tuple[Contest, list[Measured]]] = []
    for contest in subject.contests(quick, **options):
        if only not in f"{contest.group} {contest.label}":
            continue
        report(f"{contest.group} {contest.label}".strip())
        measured = run_contest(contest, rounds, wall=threads > 1)
        if memory:
            measured = [
                replace(one, memory_mb=peak_memory(name, contest.label, one.way, quick, threads, options))
                if one.way in contest.memory
                else one
                for one in measured
            ]
        results.append((contest, measured))
        record = {"bench": name, "command": command, "rounds": rounds, "environment": environment}
        write_atomically(out / f"{name}.json", dump_json({**record, "contests": as_json(results)}, indent=1) + "\n")
    made = tables(subject.title, subject.case, results)
    lines = [f"    {command}", f"{machine}; medians of {rounds} rounds (smallest to largest), ways in turns."]
    lines += [subject.note] if subject.note else []
    write_atomically(out / f"{name}.md", markdown(made, name, lines))
    return f"{machine}; medians of {rounds} rounds", made, subject.note


def tables(title: str, case: str, results: Results) -> list[Table]:
    """One table per group of contests, columns without a value left out; then how times grow.

    Args:
        title: of the tables.
        case: heading of the first column: what tells the contests apart.
        results: the contests and what was measured.
    """
    groups: dict[str, list[tuple[Contest, list[Measured]]]] = {}
    for contest, measured in results:
        groups.setdefault(contest.group, []).append((contest, measured))
    made = [_table(f"{title}: {group}" if group else title, case, entries) for group, entries in groups.items()]
    grown = [_growth_table(group, entries) for group, entries in groups.items()]
    return [*made, *(table for table in grown if table.rows)]


def _table(title: str, case: str, entries: Results) -> Table:
    contests = [contest for contest, _ in entries]
    (base,) = {contest.base for contest in contests}
    with_rate = any(contest.unit for contest in contests)
    with_memory = any(one.memory_mb is not None for _, measured in entries for one in measured)
    units = "/".join(dict.fromkeys(contest.unit for contest in contests if contest.unit))
    headings = [case, "way", "ms", "share" if base is None else f"x {base}", "min to max"]
    headings += [f"{units}/s"] * with_rate + ["MB"] * with_memory
    rows = []
    for contest, measured in entries:
        for index, one in enumerate(measured):
            row = ["" if index else contest.label, one.way, number(one.ms.median), number(one.ratio.median)]
            row.append("" if one.way == base else _range(one.ratio))
            if with_rate:
                row.append(f"{1e3 * contest.amount / one.ms.median:,.0f}")
            if with_memory:
                row.append("" if one.memory_mb is None else f"{one.memory_mb:,.0f}")
            rows.append(row)
    return Table(title, headings, rows, words=2)


def _growth_table(group: str, entries: Results) -> Table:
    """How the time of each way grows with the size of the contests; no rows where these have no size."""
    series: dict[str, list[tuple[float, float]]] = {}
    for contest, measured in entries:
        for one in measured:
            if contest.size is not None:
                series.setdefault(one.way, []).append((contest.size, one.ms.median))
    rows = []
    for way, points in series.items():
        sizes, ms = zip(*sorted(points), strict=True)
        if len(set(sizes)) > 1:
            rows.append(["", way, f"{min(sizes):g} to {max(sizes):g}", f"T^{growth(sizes, ms):.2f}"])
    return Table(f"growth{f': {group}' if group else ''}", ["", "way", "over", "grows as"], rows, words=2)


def as_json(results: Results) -> list[dict[str, Any]]:
    """Every number, the turns included."""
    return [
        {
            "case": contest.label,
            "group": contest.group,
            "base": contest.base,
            "amount": contest.amount,
            "unit": contest.unit,
            "ways": [asdict(one) for one in measured],
        }
        for contest, measured in results
    ]


def _range(spread: Spread) -> str:
    return f"{number(spread.low)} to {number(spread.high)}"


def peak_memory(subject: str, label: str, way: str, quick: bool, threads: int, options: dict[str, str]) -> float:
    """Megabytes beyond the inputs.

    Raises:
        RuntimeError: the process failed; with the last line that it wrote.
    """
    request = {"subject": subject, "label": label, "way": way, "quick": quick, "options": options}
    limits = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-P", "-m", __name__],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        env={**os.environ, **limits},
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise RuntimeError(f"memory of {way} on {label}: {last}")
    return float(done.stdout.split()[-1])


def _measure(request: dict) -> float:
    contests = load_subject(request["subject"]).contests(request["quick"], **request["options"])
    contest = next(contest for contest in contests if contest.label == request["label"])
    if contest.small is not None:
        contest.small()[request["way"]]()
    way = contest.ways()[request["way"]]
    meter = MemoryMeter("cpu")
    meter.reset()
    result = way()
    peak = meter.peak()
    del result
    return peak


if __name__ == "__main__":
    print(_measure(json.load(sys.stdin)))
