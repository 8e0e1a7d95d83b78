"""The folder of a grid: a copy of its file, a list of its points, and one folder per point."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slotbench import __version__
from slotbench.errors import UserError, lines
from slotbench.files import (
    check_own_folder,
    dump_json,
    make_folder,
    remove_partials,
    replace_file,
    write_atomically,
)
from slotbench.grids.expansion import Grid, Point
from slotbench.grids.ledger import PointFolder
from slotbench.locks import Lock, LockedError
from slotbench.records import read_record
from slotbench.runs.grid_record import GridRecord

__all__ = ["GridFolder"]

RECORD = "grid.json"
_HALF_ADOPTED = ".unpacked."


class GridFolder:
    """The folder of a grid, there already or not.

    Args:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def name(self) -> str:
        """The grid's."""
        return self.path.resolve().name

    def point(self, point_id: str) -> PointFolder:
        """The folder of one point."""
        return PointFolder(self.path / point_id)

    def record(self) -> GridRecord:
        """The record of `write`; empty if there is none.

        Raises:
            FileError: it cannot be read.
        """
        if not os.path.lexists(self.path / RECORD):
            return {}
        advice = "give the grid file in place of its folder, or remove this file"
        return read_record(self.path / RECORD, GridRecord, advice=advice)

    def write(
        self,
        grid: Grid,
        options: Sequence[str],
        plugins: Sequence[Mapping[str, Any]] = (),
        protocol: Mapping[str, Any] | None = None,
    ) -> None:
        """Writes the grid file and the record of the grid.

        Args:
            grid: the grid.
            options: of `fit`, for every point, that are no settings, such as ["--plugin", "mine.py"].
            plugins: the plugin files among them, by path and hash.
            protocol: what has been chosen, in a grid with a protocol.
        """
        make_folder(self.path)
        before = self.record()
        write_atomically(self.path / "grid.yaml", grid.file.text)
        record = {
            "name": grid.name,
            "file": str(grid.file.path.resolve()),
            "version": __version__,
            "metrics": list(grid.file.metrics),
            "extra": list(grid.extra),
            "axes": list(grid.axes),
            "options": list(options),
            "plugins": [dict(plugin) for plugin in plugins],
            "checked": before.get("checked", []),
            **({"protocol": dict(protocol)} if protocol is not None else {}),
            **({"starts": list(grid.starts)} if grid.starts else {}),
            "points": [
                {
                    "id": point.id,
                    "labels": dict(point.labels),
                    "settings": dict(point.settings),
                    "arguments": list(point.arguments),
                    "fingerprint": point.fingerprint,
                    **({"stage": point.stage} if point.stage else {}),
                }
                for point in grid.points
            ],
        }
        if record != before:
            write_atomically(self.path / RECORD, dump_json(record))

    def unchecked(self, points: Iterable[Point]) -> list[Point]:
        """Points that the parser has not seen yet, with this version of slotbench."""
        record = self.record()
        seen = set(record.get("checked", [])) if record.get("version") == __version__ else set()
        return [point for point in points if point.fingerprint not in seen]

    def note_checked(self, points: Iterable[Point]) -> None:
        """Notes that the parser takes these points."""
        record = self.record()
        seen = dict.fromkeys([*record.get("checked", []), *(point.fingerprint for point in points)])
        write_atomically(self.path / RECORD, dump_json({**record, "checked": list(seen)}))

    def other_folders(self, ids: Iterable[str]) -> list[str]:
        """Folders of points that are none of these: of an earlier version of the grid file."""
        known = set(ids)
        try:
            entries = list(os.scandir(self.path))
        except OSError:
            return []
        return sorted(
            entry.name
            for entry in entries
            if entry.name not in known and entry.is_dir() and os.path.exists(os.path.join(entry.path, "point.json"))
        )

    @contextmanager
    def replacing(self, point_id: str) -> Iterator[Path]:
        """A folder to fill, which replaces that of a point if the block ends without an error."""
        partial = self.path / f"{_HALF_ADOPTED}{os.getpid()}"
        try:
            yield partial
            target = self.path / point_id
            if target.exists():
                shutil.rmtree(target)
            replace_file(partial, target)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise

    @contextmanager
    def driven(self) -> Iterator[None]:
        """Holds the lock of the grid, and removes what a killed driver has left.

        Raises:
            UserError: another process holds it.
            FileError: a link in the folder leads out of it, or the folder cannot be written.
        """
        make_folder(self.path)
        check_own_folder(self.path, depth=1)
        lock = Lock(self.path / ".driver.lock")
        try:
            lock.acquire()
        except LockedError as error:
            raise UserError(
                lines(
                    f"{self.path} is being run already, by {error}",
                    expected="one `slotbench grid run` of a grid at a time; slotbench grid status shows it",
                )
            ) from error
        try:
            remove_partials(self.path, older_than=0.0)
            yield
        finally:
            lock.release()
