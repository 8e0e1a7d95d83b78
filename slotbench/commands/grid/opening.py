"""Opening of a grid for the actions of `slotbench grid`: its file, folder, points and options."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slotbench.errors import FileError, UserError, lines
from slotbench.grids.expansion import Grid, Point, expand
from slotbench.grids.grid_file import CONFIG, plain_key, read_grid_file, with_axes
from slotbench.grids.grid_folder import GridFolder
from slotbench.grids.protocol import choices, protocol_record, staged
from slotbench.io import parse_yaml

__all__ = ["OpenGrid", "open_grid"]


@dataclass(frozen=True)
class OpenGrid:
    """A grid and where it is run.

    `options` of `fit` hold for every point, `axes` are changes of the file's axes as typed; settings and axes are
    `remembered` where they are those of the last `grid run`.
    """

    grid: Grid
    folder: GridFolder
    options: tuple[str, ...]
    axes: tuple[str, ...] = ()
    remembered: bool = False

    @property
    def changes(self) -> list[str]:
        """Settings for all points, and changes of the axes, as typed."""
        return [*self.grid.extra, *(word for axis in self.axes for word in ("--axis", axis))]

    def restaged(self) -> OpenGrid:
        """The grid with the points that follow from finished ones."""
        return replace(self, grid=staged(self.grid, self.folder))

    def write(self) -> None:
        """Writes the grid's description, and the choices of its protocol, to its folder."""
        self.folder.write(self.grid, self.axes, protocol_record(self.grid, choices(self.grid, self.folder)))

    def fit_arguments(self, point: Point, *options: str) -> list[str]:
        """The command line of `fit` for a point: its settings, where it starts, and where it is recorded."""
        start = self.folder.start(point)
        weights = ["--model.init_from", str(start.path)] if start else []
        group = [] if "--group" in self.options else ["--group", self.grid.name]
        where = ["--run_dir", str(self.folder.point(point.id).path), "--name", point.name]
        return [*point.arguments, *weights, *where, *group, *self.options, *options]


def open_grid(given: argparse.Namespace, arguments: Sequence[str], *, remember: bool = True) -> OpenGrid:
    """The grid that a command line names: the options of an action, and settings for all points.

    Without settings, those that the grid was last run with are taken if `remember` says so.
    """
    content = read_grid_file(given.file)
    folder = GridFolder(given.runs_dir / (given.name or content.folder))
    record = folder.record() if remember and not arguments and not given.axis else {}
    arguments, axes = record.get("extra", arguments), record.get("axes", given.axis)
    grid = expand(with_axes(content, axes), folder.path.name, _settings(arguments))
    remembered = bool(record.get("extra") or record.get("axes"))
    return OpenGrid(grid, folder, tuple(given.passed_on), tuple(axes), remembered).restaged()


def _settings(arguments: Sequence[str]) -> dict[str, Any]:
    """Settings for all points, by key."""
    out: dict[str, Any] = {}
    words = iter(arguments)
    for word in words:
        if not word.startswith("--"):
            raise UserError(lines(f"{word} stands alone", expected="settings, such as --trainer.max_steps 2"))
        name, equals, value = word.removeprefix("--").partition("=")
        key = plain_key(name, "the command line")
        text = value if equals else next(words, None)
        if text is None:
            raise UserError(f"{word} needs a value")
        if key == CONFIG and not Path(text).is_file():
            raise UserError(f"no file {text} (given as {word})")
        try:
            out[key] = parse_yaml(text, word)
        except FileError:  # a word that is no YAML
            out[key] = text
        if isinstance(out[key], str) or key == CONFIG:
            out[key] = text
    return out
