"""`slotbench grid run FILE`: runs the points that are not done."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from slotbench.commands.grid.opening import OpenGrid, open_grid
from slotbench.errors import UserError
from slotbench.grids.choosing import choose, covering
from slotbench.grids.driver import Driver, Progress
from slotbench.grids.engines import THREADS, Engine, EngineError, Job, TimeLimit
from slotbench.grids.expansion import Point, Stage
from slotbench.grids.ledger import RESUMABLE, State
from slotbench.grids.progress import Display, print_failure
from slotbench.grids.protocol import choice_lines, choices, variant_of
from slotbench.grids.status import counts, points, stage_name

__all__ = ["run"]

_OUT_OF_TIME = 124
"""Exit code of a command whose time was up, as `timeout` has it."""
_SLURM = "--slurm."
_FIT = (sys.executable, "-P", "-m", "slotbench", "fit")


class _Stopped(KeyboardInterrupt):
    """SIGTERM, which ends the grid as Ctrl-C does."""


def run(given: argparse.Namespace, settings: list[str]) -> int:
    """Runs what is to be run; 0 if all points that were asked for are done afterwards."""
    settings, slurm = _slurm_settings(settings)
    limit = TimeLimit.after(given.minutes)
    engine = _engine(given, slurm, limit)
    opened = open_grid(given, settings, remember=False)
    # of a grid with a protocol these are more than there are as yet
    chosen = choose(opened.grid, given.only)
    with opened.folder.driven(), _sigterm_as_interrupt():
        return _Run(given, engine, limit).stages(opened, chosen)


def _slurm_settings(arguments: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Takes --slurm.KEY VALUE and --slurm.KEY=VALUE out of the arguments."""
    rest: list[str] = []
    pairs: list[tuple[str, str]] = []
    words = iter(arguments)
    for word in words:
        if word.startswith(_SLURM):
            key, equals, value = word.removeprefix(_SLURM).partition("=")
            pairs.append((key, value if equals else next(words, "")))
        else:
            rest.append(word)
    return rest, pairs


def _engine(given: argparse.Namespace, slurm: Sequence[tuple[str, str]], limit: TimeLimit) -> Engine:
    if slurm and given.engine != "slurm":
        raise EngineError(f"--slurm.{slurm[0][0]} is for --engine slurm; the engine is {given.engine}")
    if given.minutes is not None and given.engine != "local":
        instead = "; --slurm.time N gives each job N minutes" if given.engine == "slurm" else ""
        raise EngineError(f"--minutes is for --engine local; the engine is {given.engine}{instead}")
    if given.engine == "slurm":
        from slotbench.grids.engines.slurm import SlurmEngine, slurm_options

        return SlurmEngine(slurm_options(slurm), given.jobs)
    if given.engine == "ray":
        from slotbench.grids.engines.ray_engine import RayEngine

        return RayEngine(given.jobs)
    from slotbench.grids.engines.local import LocalEngine

    return LocalEngine(1 if given.jobs is None else given.jobs, limit)


def _startable(given: argparse.Namespace) -> tuple[State, ...]:
    return (*RESUMABLE, *(("failed",) if given.retry_failed else ()), *(("diverged",) if given.diverged else ()))


class _Run:
    """One run of a grid, in one stage or two."""

    def __init__(self, given: argparse.Namespace, engine: Engine, limit: TimeLimit) -> None:
        self._given, self._engine, self._limit = given, engine, limit
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self._threads = given.threads or engine.threads or max(1, cores // (given.jobs or 1))

    def stages(self, opened: OpenGrid, chosen: Sequence[Point]) -> int:
        """With a protocol first the points that choose, then those that are reported; 0 if all of the last are done."""
        if opened.grid.file.protocol is None:
            return self._stage(opened, chosen, is_last=True)
        code = 0
        stages: tuple[Stage, ...] = ("choose", "report")
        for number, stage in enumerate(stages, 1):
            opened = opened.restaged()
            if points_of_stage := [point for point in chosen if point.stage == stage and point in opened.grid.points]:
                print(f"stage {number} of 2: {stage_name(opened.grid, stage)}", flush=True)
                code = self._stage(opened, points_of_stage, is_last=stage == "report")
            if code == _OUT_OF_TIME:
                break
            if stage == "choose":
                opened = opened.restaged()
                print("\n".join(choice_lines(opened.grid, choices(opened.grid, opened.folder))), flush=True)
        opened = opened.restaged()
        opened.write()
        if code == _OUT_OF_TIME:
            return code
        # a candidate that has diverged has done its part; a variant without a choice has not
        file = opened.grid.file
        wanted = {variant_of(file, point) for point in chosen if point.stage == "report"}
        reported = {variant_of(file, point) for point in opened.grid.points if point.stage == "report"}
        if wanted <= reported:
            return code
        print(f"{points(len(wanted - reported), 'variant')} without reported seeds, because nothing has been chosen")
        return 1

    def _stage(self, opened: OpenGrid, chosen: Sequence[Point], is_last: bool) -> int:
        folder = opened.folder
        states = {point.id: folder.point(point.id).state() for point in chosen}
        start = {point.id for point in chosen if states[point.id] in _startable(self._given)}
        opened.write()
        if new := [point for point in chosen if point.id in start and not folder.point(point.id).path.exists()]:
            _check_before_start(opened, new, self._given)
        left = [(point, states[point.id]) for point in chosen if point.id not in start]
        # a point that runs elsewhere may turn out to have been cut off
        wanted = [point for point in chosen if point.id in start or states[point.id] == "running"]
        jobs = [job for point in wanted if (job := self._job(opened, point, states)) is not None]
        display = Display(opened.grid, folder, chosen)
        driver = Driver(folder, self._engine, display, self._limit)
        interrupted: KeyboardInterrupt | None = None
        with display:
            try:
                driver.run(chosen, jobs, states)
            except KeyboardInterrupt as interrupt:
                interrupted = interrupt
        for point, state in left:
            if state in ("failed", "diverged"):
                print_failure(folder, point, f"has {state} before, and is left alone")
        self._conclude(opened, driver.progress, is_last)
        if interrupted is not None:
            raise SystemExit(128 + signal.SIGTERM if isinstance(interrupted, _Stopped) else 128 + signal.SIGINT)
        if driver.progress.out_of_time:
            return _OUT_OF_TIME
        return 0 if driver.progress.count("done") == len(chosen) else 1

    def _job(self, opened: OpenGrid, point: Point, states: dict[str, State]) -> Job | None:
        """The job of a point; None, with a message, where it cannot be started."""
        folder, start = opened.folder.point(point.id), opened.folder.start(point)
        if start is not None and start.ended() != "done":
            before = opened.grid.file.init_from
            print(f"{point.name} waits: it starts from {start.path}, which `slotbench grid run {before}` trains")
            states[point.id] = "waiting"
            return None
        command = (*_FIT, *opened.fit_arguments(point, "--threads", str(self._threads)))
        try:
            if states[point.id] == "diverged":
                folder.set_result_aside()
            folder.prepare(point, command)
        except OSError as error:
            print_failure(opened.folder, point, f"cannot be started: {error}")
            states[point.id] = "failed"
            return None
        return Job(point.id, folder.path.resolve(), command, dict.fromkeys(THREADS, str(self._threads)))

    def _conclude(self, opened: OpenGrid, progress: Progress, is_last: bool) -> None:
        """Prints the counts, and what to type next."""
        states = Counter(progress.states.values())
        print(f"{opened.folder.path}: {points(len(progress.states))}, {counts(states)}")
        file = str(opened.grid.file.path)
        where = [] if str(self._given.runs_dir) == "runs" else ["--runs_dir", str(self._given.runs_dir)]
        words = ["slotbench", "grid", "run", file, *opened.options, *opened.changes, *where]
        if states["done"] == len(progress.states) and is_last:
            print(f"compare them: {shlex.join(['slotbench', 'compare', file, *where])}")
        if states["failed"]:
            print(f"to run the failed ones again: {shlex.join([*words, '--retry-failed'])}")
        if states["diverged"]:
            print(f"to run the diverged ones again, as a rule in vain: {shlex.join([*words, '--diverged'])}")
        if sum(states[state] for state in RESUMABLE):
            if progress.out_of_time:
                print(f"the time of --minutes {self._given.minutes:g} is over; the next call resumes what is left")
                words += [*(["--jobs", str(self._given.jobs)] if self._given.jobs else [])]
                words += ["--minutes", f"{self._given.minutes:g}"]
            print(f"to resume: {shlex.join(words)}")


def _check_before_start(opened: OpenGrid, new: Sequence[Point], given: argparse.Namespace) -> None:
    """Checks a covering set of points, in a process that may import torch."""
    some = covering(new)
    print(f"asking the parser about {points(len(some))} with every value of every axis ...", flush=True)
    only = [word for point in some for word in ("--only", point.id)]
    command = [sys.executable, "-P", "-m", "slotbench", "grid", "check", str(given.file), *opened.options]
    where = ["--runs_dir", str(given.runs_dir), *(["--name", given.name] if given.name else [])]
    done = subprocess.run([*command, *opened.changes, *only, *where], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"nothing has been started: {(done.stdout + done.stderr).strip().removeprefix('slotbench: ')}")


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise _Stopped

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
