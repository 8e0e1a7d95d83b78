"""Adoption: a run that was made by hand becomes a point of a grid."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from slotbench.errors import UserError, lines
from slotbench.grids.expansion import Point
from slotbench.grids.grid_file import CONFIG
from slotbench.grids.grid_folder import GridFolder
from slotbench.grids.ledger import PointFolder
from slotbench.runs.folder import CONFIG as CONFIG_FILE
from slotbench.runs.folder import RunFolder
from slotbench.runs.result import write_result

__all__ = ["copy_in", "likely_points"]


def likely_points(points: Iterable[Point], settings: Mapping[str, Any]) -> list[Point]:
    """Those whose settings agree best with a run's, as far as one sees without the parser.

    Args:
        points: of the grid.
        settings: of the run, flat, by key as on the command line.
    """

    def disagreements(point: Point) -> int:
        said = {key: value for key, value in point.settings.items() if key != CONFIG}
        plain = {key: value for key, value in said.items() if not isinstance(value, Mapping)}
        return sum(key in settings and str(settings[key]) != str(value) for key, value in plain.items())

    scored = [(disagreements(point), point) for point in points]
    fewest = min(score for score, _ in scored)
    return [point for score, point in scored if score == fewest]


def copy_in(folder: GridFolder, point: Point, run: RunFolder, command: Sequence[str], config: str) -> PointFolder:
    """Copies a finished run into the folder of a point, which appears whole or not at all.

    A run of an earlier version does not say what had not been settings yet. Its configuration is replaced by the
    complete one, so that it compares with its neighbours, and kept as `config.adopted.yaml`.

    Args:
        folder: of the grid.
        point: that the run is.
        run: finished.
        command: that makes the point.
        config: the run's complete configuration, as YAML.

    Raises:
        UserError: the point has been run already.
    """
    target = folder.point(point.id)
    if target.result() is not None:
        raise UserError(f"{point.id} is done already; {run.path} has not been taken in")
    if target.is_running() or target.record():
        raise UserError(
            lines(
                f"{point.id} has been begun: {run.path} has not been taken in",
                expected=f"move {target.path} away first, or let slotbench grid run finish it",
            )
        )
    with folder.replacing(point.id) as partial:
        shutil.copytree(run.path, partial, ignore=shutil.ignore_patterns(".lock", ".attempt.lock", "*.partial"))
        copied = PointFolder(partial)
        if (own := partial / CONFIG_FILE).read_text(encoding="utf-8") != config:
            os.replace(own, partial / "config.adopted.yaml")
            own.write_text(config, encoding="utf-8")
        if (before := target.path / "attempts.jsonl").is_file():
            shutil.copyfile(before, partial / "attempts.jsonl")
        copied.prepare(point, command)
        copied.end(copied.begin("adopted", str(Path(run.path).resolve())), 0, f"run {run.info.get('id')}")
        if copied.result() is None:
            write_result(RunFolder.open(partial))
    return target
