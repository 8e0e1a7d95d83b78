"""Runs a subject of contests and writes NAME.json and NAME.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path

import torch

from slotbench.bench.contest import Contest, Measured, run_contest
from slotbench.bench.contest_memory import peak_memory
from slotbench.bench.contest_report import Table, as_json, markdown, tables
from slotbench.bench.subjects import load_subject
from slotbench.files import write_atomically
from slotbench.runs.files import dump_json
from slotbench.runs.provenance import describe_environment, processor

__all__ = ["run_subject"]


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
    lines = [f"    {command}", "", f"{machine}; medians of {rounds} rounds (smallest to largest), ways in turns."]
    lines += ["", subject.note] if subject.note else []
    write_atomically(out / f"{name}.md", markdown(made, name, lines))
    return f"{machine}; medians of {rounds} rounds", made, subject.note
