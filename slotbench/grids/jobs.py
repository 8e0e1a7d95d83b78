"""The jobs of a grid: the command line and the environment in which a point is trained."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from slotbench.grids.engines.base import Job
from slotbench.grids.expansion import Point
from slotbench.grids.grid_folder import GridFolder

__all__ = ["cores", "fit_arguments", "fit_command", "make_job", "whole_arguments"]


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def fit_arguments(point: Point, folder: GridFolder, options: Sequence[str]) -> list[str]:
    """The complete command line of `fit`: arguments, and where the run is recorded."""
    options = [*options]
    if "--group" not in options:
        options += ["--group", folder.name]
    where = ["--run_dir", str(folder.point(point.id).path), "--name", point.name]
    return [*whole_arguments(point, folder), *where, *options]


def whole_arguments(point: Point, folder: GridFolder) -> list[str]:
    """The point's arguments, and in a chain the run that it starts from."""
    start = [f"--{point.into}", str(folder.point(point.after).path)] if point.after else []
    return [*point.arguments, *start]


def fit_command(point: Point, folder: GridFolder, options: Sequence[str]) -> list[str]:
    """`slotbench fit`, by the Python that runs us."""
    return [sys.executable, "-P", "-m", "slotbench", "fit", *fit_arguments(point, folder, options)]


def make_job(point: Point, folder: GridFolder, command: Sequence[str], threads: int) -> Job:
    """The job of a point, with so many threads."""
    path = folder.point(point.id).path.resolve()
    variables = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    return Job(
        id=point.id,
        folder=path,
        command=tuple(command),
        environment=dict.fromkeys(variables, str(threads)),
        log=Path(path) / "log.txt",
    )
