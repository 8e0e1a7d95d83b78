"""A grid for others to run: as a sweep of Weights & Biases, or as a matrix of GitHub Actions."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from slotbench.grids.expansion import Grid
from slotbench.grids.grid_file import CONFIG, SEED

__all__ = ["MATRIX_LIMIT", "github_matrix", "reason_for_points", "wandb_sweep"]

MATRIX_LIMIT = 256
"""Jobs that GitHub takes in one matrix."""


def reason_for_points(grid: Grid) -> str | None:
    """Why the grid cannot be said parameter by parameter; None if it can.

    A sweep of method "grid" runs every combination of its parameters, hands each over as one word, and does not say in
    which order.
    """
    file = grid.file
    for name in ("zip", "list", "exclude"):
        if getattr(file, name):
            return f"it has {name}"
    if CONFIG in file.product:
        return "one of its axes is of configuration files"
    if any(not isinstance(value, bool | int | float | str) for values in file.product.values() for value in values):
        return "a value is null, a list or a mapping"
    keys = [*file.product, *file.settings]
    if any(other.startswith(f"{key}.") for key in file.product for other in keys):
        return "one key lies within another"
    return None


def wandb_sweep(grid: Grid, project: str, options: Sequence[str] = ()) -> dict[str, Any]:
    """What `wandb sweep` reads: one parameter per axis, or else one parameter `point` of all ids.

    Args:
        grid: the grid.
        project: that the runs are reported to.
        options: further options of every run, such as ["--plugin", "mine.py"].
    """
    mirrored = ["--wandb", "online", "--wandb_project", project, "--group", grid.name, *options]
    if reason_for_points(grid) is None:
        first = grid.points[0].arguments
        varied = {f"--{key}" for key in (*grid.file.product, SEED)}
        fixed = _without(first, varied)
        command = ["fit", *fixed, *mirrored]
        parameters = {key: {"values": list(values)} for key, values in grid.file.product.items()}
        parameters[SEED] = {"values": list(grid.file.seeds)}
    else:
        command = ["grid", "point", str(grid.file.path), "--name", grid.name, *grid.extra, *mirrored]
        parameters = {"point": {"values": [point.id for point in grid.points]}}
    return {
        "name": grid.name,
        "project": project,
        "program": "slotbench",
        "method": "grid",
        "command": ["${env}", "${program}", *command, "${args}"],
        "parameters": parameters,
    }


def github_matrix(grid: Grid) -> dict[str, Any]:
    """The `matrix` of a job: one entry per point, with its id and the arguments of `slotbench fit`."""
    return {"include": [{"point": point.id, "arguments": shlex.join(point.arguments)} for point in grid.points]}


def _without(arguments: tuple[str, ...], flags: set[str]) -> list[str]:
    """The arguments without some of them and their values."""
    out: list[str] = []
    words = iter(arguments)
    for word in words:
        if word in flags:
            next(words)
        elif word.partition("=")[0] not in flags:
            out.append(word)
    return out
