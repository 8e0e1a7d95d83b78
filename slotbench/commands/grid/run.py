"""`slotbench grid run FILE`, `slotbench grid retry FILE`: runs the points that are not done."""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import NoReturn

from slotbench.commands.arguments import Parser
from slotbench.commands.grid import check as grid_check
from slotbench.commands.grid.opening import OpenGrid, open_grid, text
from slotbench.errors import FileError, UserError
from slotbench.grids import jobs as job_making
from slotbench.grids.choosing import choose
from slotbench.grids.driver import Driver, Progress
from slotbench.grids.engines import ENGINES, EngineOptions, make_engine
from slotbench.grids.engines.base import TimeLimit
from slotbench.grids.expansion import Point, Stage
from slotbench.grids.ledger import RESUMABLE, STATES, State
from slotbench.grids.progress import make_listener, print_failure
from slotbench.grids.protocol import choice_lines, choices, variant_of
from slotbench.grids.status import counts, points, stage_name, status_lines
from slotbench.text import one_line

__all__ = ["USAGE", "main"]

USAGE = """Usage: slotbench grid run FILE [settings for all points] [options]
       slotbench grid retry FILE [options]

run starts every point that is not done: those that have not run yet, and those that were interrupted or killed, which
are resumed from their newest checkpoint. Points that have failed are left alone and reported; retry runs them too.
Points that have diverged (their loss was no longer finite) are left alone unless --diverged is given: the same settings
diverge again, as a rule. A point that is done is never run again. Before anything is started, the parser is asked about
every value of every axis.

  --jobs N              points that run at the same time (default: 1; slurm, ray: as many as get a place). Those of one
                        GPU have equal parts of its memory.
  --minutes M           ends all by then: begins no point in the last minute, has those that run save and stop half a
                        minute before the end, and kills what still runs at the end. The same command resumes them.
  --threads N           threads of each point (default: cores divided by jobs)
  --engine local|slurm|ray   where they run (default: local)
  --slurm.KEY VALUE     what to ask SLURM for, such as --slurm.partition gpu --slurm.time 120
  --only WHAT ...       points whose id is like WHAT ('*core=RIM*'), or KEY=VALUE; different keys must all hold
  --dry-run             print the points and what would be run; run nothing
  --retry-failed        run what has failed, too
  --diverged            run what has diverged, too, from its last checkpoint; its result is kept as result.1.json
  --runs_dir DIR        folder of all runs (default: runs)
  --name NAME           the grid's folder there (default: the file's name)

  --axis KEY+=VALUE     another value of an axis, such as core+=MyCore; --axis KEY=VALUE,... in place of the file's

A grid with a protocol is run in two stages: first one run per candidate value and variant, on a seed that is not
reported, then the reported seeds with what was best. What is done in either is not run again.

Options of fit hold for every point: --wandb, --plugin, --allow-import, --group (default: the grid's name).
Settings are those of fit: --trainer.max_steps 100 makes another, shorter grid, whose points lie beside those of the
file's own. retry, status and show then mean the grid that was run last.

Ctrl-C asks the running points to save and stop, and waits for them; a second Ctrl-C kills them. A driver that dies
leaves its points running; the next one waits for them. Exit code 0 if all points are done, 1 if not, 2 if the grid
cannot be run, 124 if the minutes are over and something is left, 130 or 143 if it was interrupted.

Examples:
  slotbench grid run experiments/grids/bouncing_balls_slots.yaml --dry-run
  slotbench grid run experiments/grids/bouncing_balls_slots.yaml --jobs 2
  slotbench grid run experiments/grids/bouncing_balls_slots.yaml --jobs 16 --minutes 10    # on a GPU, as far as it goes
  slotbench grid run experiments/grids/bouncing_balls_slots.yaml --only seed=0 --trainer.max_steps 20
  slotbench grid run experiments/grids/bouncing_balls_cores.yaml --plugin my_core.py --axis core+=MyCore
  slotbench grid retry experiments/grids/bouncing_balls_slots.yaml"""


_OUT_OF_TIME = 124
"""Exit code of a command whose time was up, as `timeout` has it."""
_SLURM = "--slurm."


class _Stopped(KeyboardInterrupt):
    """SIGTERM, which ends the grid as Ctrl-C does."""


def main(action: str, arguments: list[str]) -> int:
    """Runs what is to be run; 0 if all points that were asked for are done afterwards."""
    arguments, slurm = _slurm_options(arguments)
    given, rest = _parser(action).parse_known_args(arguments)
    limit = None if given.minutes is None else TimeLimit.after(given.minutes)
    opened = open_grid(action, rest, remember=action == "retry")
    again = (("failed",) if given.retry_failed or action == "retry" else ()) + (("diverged",) * given.diverged)
    # of a grid with a protocol these are more than there are as yet
    everything = replace(opened.grid, points=opened.grid.candidates)
    chosen = choose(everything, [word for words in given.only for word in words])
    if given.dry_run:
        return _dry_run(opened, _there(opened, chosen), again)
    run = _run if opened.grid.file.protocol is None else _run_in_stages
    with opened.folder.driven(), _sigterm_as_interrupt():
        return run(opened, chosen, again, given, EngineOptions(given.jobs, slurm, limit))


def _parser(action: str) -> argparse.ArgumentParser:
    parser = Parser(f"slotbench grid {action}")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--engine", choices=ENGINES, default="local")
    parser.add_argument("--only", action="append", nargs="+", default=[])
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--retry-failed", action="store_true")
    parser.add_argument("--diverged", action="store_true")
    return parser


def _slurm_options(arguments: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Takes --slurm.KEY VALUE and --slurm.KEY=VALUE out of the arguments."""
    rest: list[str] = []
    pairs: list[tuple[str, str]] = []
    words = iter(arguments)
    for word in words:
        if not word.startswith(_SLURM):
            rest.append(word)
            continue
        key, equals, value = word.removeprefix(_SLURM).partition("=")
        if not equals:
            value = next(words, "")
            if not value:
                raise UserError(f"{word} needs a value, such as {word} gpu")
        pairs.append((key, value))
    return rest, pairs


def _dry_run(opened: OpenGrid, chosen: Sequence[Point], again: tuple[State, ...]) -> int:
    found = [opened.folder.point(point.id).status(opened.grid.file.metrics) for point in chosen]
    print("\n".join(status_lines(opened.grid, opened.folder, chosen, found)))
    startable = (*RESUMABLE, *again)
    start = [point for point, status in zip(chosen, found, strict=True) if status.state in startable]
    print(f"{points(len(start))} would be run; nothing has been started")
    if start:
        example = text(["slotbench", "grid", "show", str(opened.grid.file.path), start[0].id, *opened.typed_each_time])
        print(f"{example}  shows one of them")
    return 0


def _there(opened: OpenGrid, chosen: Sequence[Point], stage: Stage | None = None) -> list[Point]:
    """Those of the chosen points that the grid has by now."""
    there = {point.id for point in opened.grid.points if stage in (None, point.stage)}
    return [point for point in chosen if point.id in there]


def _run_in_stages(
    opened: OpenGrid,
    chosen: Sequence[Point],
    again: tuple[State, ...],
    given: argparse.Namespace,
    wanted: EngineOptions,
) -> int:
    """First the points that choose, then those that are reported; 0 if all of the latter are done."""
    codes = []
    stages: tuple[Stage, ...] = ("choose", "report")
    for number, stage in enumerate(stages, 1):
        opened = opened.restaged()
        if points_of_stage := _there(opened, chosen, stage):
            print(f"stage {number} of 2: {stage_name(opened.grid, stage)}", flush=True)
            codes.append(_run(opened, points_of_stage, again, given, wanted, is_last=stage == "report"))
            if codes[-1] == _OUT_OF_TIME:
                opened.restaged().write()
                return _OUT_OF_TIME
        if stage == "choose":
            opened = opened.restaged()
            print("\n".join(map(one_line, choice_lines(opened.grid, choices(opened.grid, opened.folder)))), flush=True)
    opened.write()
    # a candidate that has diverged has done its part; a variant without a choice has not
    wanted_variants = {variant_of(opened.grid, point) for point in chosen if point.stage == "report"}
    reported = {variant_of(opened.grid, point) for point in opened.grid.points if point.stage == "report"}
    if wanted_variants <= reported:
        return codes[-1] if codes else 0
    left = points(len(wanted_variants - reported), "variant")
    print(f"{left} without reported seeds, because nothing has been chosen")
    return 1


def _run(
    opened: OpenGrid,
    chosen: Sequence[Point],
    again: tuple[State, ...],
    given: argparse.Namespace,
    wanted: EngineOptions,
    is_last: bool = True,
) -> int:
    grid, folder = opened.grid, opened.folder
    for point in chosen:
        folder.point(point.id).settle()
    states = {point.id: folder.point(point.id).state() for point in chosen}
    startable = (*RESUMABLE, *again)
    start = {point.id for point in chosen if states[point.id] in startable}
    engine = make_engine(given.engine, wanted)
    opened.write()
    if start and (unchecked := folder.unchecked(grid.points)):
        grid_check.check_before_start(opened, unchecked)
    _print_waiting(opened, chosen, states, start)
    threads = opened.threads or engine.threads or max(1, job_making.cores() // (given.jobs or 1))
    jobs = []
    # a point that runs elsewhere may turn out to have been cut off
    for point in [point for point in chosen if point.id in start or states[point.id] == "running"]:
        command = job_making.fit_command(point, folder, [*opened.options, "--threads", str(threads)])
        try:
            if states[point.id] == "diverged":
                folder.point(point.id).set_result_aside()
            folder.point(point.id).prepare(point, command)
        except (OSError, FileError) as error:
            print_failure(opened.folder, point, f"cannot be started: {error}")
            states[point.id] = "failed"
            continue
        jobs.append(job_making.make_job(point, folder, command, threads))
        if states[point.id] != "running":
            states[point.id] = "waiting"
    listener = make_listener(opened.grid, opened.folder, chosen, given.jobs)
    patience = 0.01 if given.engine == "local" else 1.0
    driver = Driver(folder, engine, given.engine, listener, patience, wanted.limit)
    interrupted: KeyboardInterrupt | None = None
    with listener:
        try:
            driver.run(chosen, jobs, states)
        except KeyboardInterrupt as interrupt:
            interrupted = interrupt
    left = [(point, states[point.id]) for point in chosen if point.id not in start]
    before = [(point, state) for point, state in left if state in ("failed", "diverged")]
    _conclude(opened, driver.progress, before, given, is_last)
    if interrupted is not None:
        raise SystemExit(128 + signal.SIGTERM if isinstance(interrupted, _Stopped) else 128 + signal.SIGINT)
    if driver.progress.out_of_time:
        return _OUT_OF_TIME
    return 0 if driver.progress.count("done") == len(chosen) else 1


def _print_waiting(opened: OpenGrid, chosen: Sequence[Point], states: dict[str, State], start: set[str]) -> None:
    """Names the points of chains that wait for a point which does not run."""
    run = {point_id for point_id, state in states.items() if point_id in start or state == "running"}
    for point in chosen:
        if point.id not in start or not point.after or point.after in run:
            continue
        if (state := opened.folder.point(point.after).state()) != "done":
            run.discard(point.id)
            print_failure(opened.folder, point, f"waits: it starts from {point.after}, which is {state}")


def _conclude(
    opened: OpenGrid,
    progress: Progress,
    ended_before: Sequence[tuple[Point, State]],
    given: argparse.Namespace,
    is_last: bool,
) -> None:
    """Prints the counts, the points left alone, and, after the last stage, what to type next."""
    for point, state in ended_before:
        print_failure(opened.folder, point, f"{'has ' * (state == 'diverged')}{state} before, and is left alone")
    states: dict[State, int] = {state: progress.count(state) for state in STATES}
    print(f"{opened.folder.path}: {points(len(progress.states))}, {counts(states)}")
    file = opened.grid.file.path
    usual = os.path.normpath(opened.folder.path) == os.path.normpath(f"runs/{opened.grid.file.folder}")
    name = str(file if usual else opened.folder.path)
    if states["done"] == len(progress.states):
        if is_last:
            print(f"compare them: {text(['slotbench', 'compare', name])}")
        return
    if states["failed"]:
        print(f"to run the failed ones again: {text(['slotbench', 'grid', 'retry', name, *opened.typed_each_time])}")
    if states["diverged"]:
        again = text(["slotbench", "grid", "retry", name, "--diverged", *opened.typed_each_time])
        print(f"to run the diverged ones again, which as a rule needs other settings: {again}")
    if sum(states[state] for state in RESUMABLE):
        words = ["slotbench", "grid", "run", name, *opened.options, *opened.changes]
        if progress.out_of_time:
            print(f"the time of --minutes {given.minutes:g} is over; the next call resumes what is left")
            words += [*(["--jobs", str(given.jobs)] if given.jobs else []), "--minutes", f"{given.minutes:g}"]
        print(f"to resume: {text(words)}")


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise _Stopped

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
