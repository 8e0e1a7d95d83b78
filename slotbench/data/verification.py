"""Checks that prepared files are still as they were written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from slotbench.checksums import SUMS, damaged_files, read_sums

__all__ = ["Prepared", "damaged_in", "find_prepared"]

_UNFINISHED = ("progress.json", "*.progress.json")


@dataclass(frozen=True)
class Prepared:
    """The prepared folders in a folder, itself included.

    Attributes:
        complete: those that were written to the end.
        unfinished: those that are still to be written.
    """

    complete: list[Path]
    unfinished: list[Path]


def find_prepared(folder: Path) -> Prepared:
    """Looks for caches and feature files, at any depth."""
    unfinished = {path.parent for pattern in _UNFINISHED for path in folder.rglob(pattern)}
    complete = {path.parent for pattern in (SUMS, "cache.json", "*.h5") for path in folder.rglob(pattern)}
    return Prepared(sorted(complete), sorted(unfinished))


def damaged_in(folder: Path, report: Callable[[int, int], None] | None = None) -> dict[str, str]:
    """The files of a prepared folder that differ from their checksums, or are missing, and what is wrong with each.

    Args:
        folder: one of `Prepared.complete`.
        report: called with the number of bytes read and their total.
    """
    total = sum((folder / file).stat().st_size for file in read_sums(folder) if (folder / file).is_file())
    read = 0

    def advance(size: int) -> None:
        nonlocal read
        read += size
        if report is not None:
            report(read, total)

    return damaged_files(folder, advance)
