"""Adoption: a run that was made by hand becomes a point of a grid."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from slotbench.errors import UserError, lines
from slotbench.files import check_own_folder, is_inside
from slotbench.grids.expansion import Point
from slotbench.grids.grid_file import CONFIG
from slotbench.grids.grid_folder import GridFolder
from slotbench.grids.ledger import PointFolder
from slotbench.runs.folder import CONFIG as CONFIG_FILE
from slotbench.runs.folder import RunFolder
from slotbench.runs.result import write_result

__all__ = ["copy_in", "likely_points"]


_DEEPEST = 32
_NOT_COPIED = (".lock", ".attempt.lock", "*.partial")


def likely_points(points: Iterable[Point], settings: Mapping[str, Any]) -> list[Point]:
    """Points whose settings agree best with a run's, compared without the parser.

    Args:
        points: of the grid.
        settings: of the run, flat, by key as on the command line.
    """

    def disagreements(point: Point) -> int:
        given = {key: value for key, value in point.settings.items() if key != CONFIG}
        plain = {key: value for key, value in given.items() if not isinstance(value, Mapping)}
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
        FileError: a link in the run's folder leads out of it, or it holds something that is no file.
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
    check_own_folder(run.path, depth=_DEEPEST)
    check_own_folder(target.path)
    with folder.replacing(point.id) as copy:
        shutil.copytree(run.path, copy, ignore=partial(_left_behind, run.path))
        copied = PointFolder(copy)
        if (own := copy / CONFIG_FILE).read_text(encoding="utf-8") != config:
            os.replace(own, copy / "config.adopted.yaml")
            own.write_text(config, encoding="utf-8")
        if (before := target.path / "attempts.jsonl").is_file():
            shutil.copyfile(before, copy / "attempts.jsonl")
        copied.prepare(point, command)
        copied.end(copied.begin("adopted", str(Path(run.path).resolve())), 0, f"run {run.info.get('id')}")
        if copied.result() is None:
            write_result(RunFolder.open(copy))
    return target


def _left_behind(run: Path, folder: str, names: list[str]) -> set[str]:
    """Files of a run's folder that are not copied: locks, partial files, and links out of it."""

    def is_own(path: Path) -> bool:
        if path.is_symlink():
            return path.is_file() and is_inside(run, path)
        return path.is_file() or path.is_dir()

    foreign = {name for name in names if not is_own(Path(folder) / name)}
    return foreign | shutil.ignore_patterns(*_NOT_COPIED)(folder, names)
