"""The folder of a grid: a copy of its file, a list of its points, and one folder per point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slotbench import __version__
from slotbench.errors import UserError
from slotbench.grids.expansion import Grid, Point
from slotbench.grids.ledger import PointFolder
from slotbench.io import LockedError, dump_json, lock, read_json_object, write_atomically
from slotbench.runs.run_info import GridRecord

__all__ = ["GridFolder"]

RECORD = "grid.json"


class GridFolder:
    """The folder of a grid, there already or not."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def point(self, point_id: str) -> PointFolder:
        """The folder of one point."""
        return PointFolder(self.path / point_id)

    def start(self, point: Point) -> PointFolder | None:
        """The folder of the point, of another grid, whose weights a point starts from."""
        return PointFolder(self.path.parent / point.start) if point.start else None

    def record(self) -> GridRecord:
        """The record of `write`; empty if there is none."""
        path = self.path / RECORD
        return read_json_object(path) if path.exists() else {}

    def write(self, grid: Grid, axes: Sequence[str] = (), protocol: Mapping[str, Any] | None = None) -> None:
        """Writes the grid file and the record of the grid: changes of its axes, as typed, and what has been chosen."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path / "grid.yaml", grid.file.text)
        record = {
            "name": grid.name,
            "file": str(grid.file.path.resolve()),
            "version": __version__,
            "metrics": list(grid.file.metrics),
            "extra": list(grid.extra),
            "axes": list(axes),
            **({"protocol": dict(protocol)} if protocol is not None else {}),
            "points": [
                {"id": one.id, "labels": dict(one.labels), "settings": dict(one.settings), "stage": one.stage}
                for one in grid.points
            ],
        }
        write_atomically(self.path / RECORD, dump_json(record))

    @contextmanager
    def driven(self) -> Iterator[None]:
        """Holds the lock of the grid."""
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            held = lock(self.path / ".driver.lock")
        except LockedError as error:
            raise UserError(f"{self.path} is being run already; `slotbench grid show` says how far it is") from error
        with held:
            yield
