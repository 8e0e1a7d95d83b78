"""Which files of a folder count, and in which order: one rule for videos, frames, masks and depth maps.

- Names that begin with a dot are hidden and skipped, and so is what systems leave behind (`Thumbs.db`, `__MACOSX`).
- Frames come in the order of the numbers in their names. A point or comma between digits is a decimal one (0.25 before
  0.5) unless two names would then have one number: with 1.1 and 1.10 in a folder it separates whole numbers. A minus is
  one at the beginning of a name or after a sign that is no letter or digit (`t=-0.5`), else it separates (`frame-1`).
- The names of the frames of one folder differ in their numbers: what begins otherwise belongs to another video, or is a
  picture of something else.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

from slotbench.errors import DataFilesError, listing
from slotbench.text import one_line

__all__ = [
    "ARRAYS",
    "IMAGES",
    "MOVIES",
    "STACKS",
    "folder_named",
    "frame_files",
    "is_hidden",
    "natural_order",
    "visible",
]

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".ppm")
MOVIES = (".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm", ".mpg", ".mpeg")
ARRAYS = (".npy", ".npz")
STACKS = (".gif", ".apng", ".png", ".webp", ".tif", ".tiff")
"""Endings of pictures that may hold several in one file."""

_LEFT_BEHIND = {"__macosx", "thumbs.db", "desktop.ini", "$recycle.bin", "system volume information", "lost+found"}
_NUMBER = re.compile(r"((?:(?<![^\W_])-)?\d+(?:[.,]\d+)*(?:[eE][-+]\d{1,3}(?!\d))?)")
_WHOLE_NUMBER = re.compile(r"((?:(?<![^\W_])-)?\d+)")
_ENDINGS = (*IMAGES, *MOVIES, *ARRAYS, ".gif", ".apng")
_Parts = tuple[str | Decimal, ...]


def is_hidden(name: str) -> bool:
    """Whether a file or folder of this name is passed over everywhere."""
    return name.startswith(".") or name.lower() in _LEFT_BEHIND


def visible(folder: Path) -> list[Path]:
    """The files and folders in a folder that are not hidden, in the order of their names.

    Raises:
        DataFilesError: the folder cannot be read.
    """
    try:
        return sorted(path for path in folder.iterdir() if not is_hidden(path.name))
    except OSError as error:
        raise DataFilesError(f"{folder} cannot be read: {error.strerror or error}") from error


def folder_named(parent: Path, name: str) -> Path:
    """The folder `name` in another one, also where it is written in other letters, such as `Masks`."""
    if (parent / name).is_dir() or not parent.is_dir():
        return parent / name
    alike = [path for path in visible(parent) if path.name.lower() == name and path.is_dir()]
    return alike[0] if alike else parent / name


def natural_order(path: Path) -> tuple[_Parts, str]:
    """Sorting key that puts frame2 before frame10, and 0.25 before 0.5."""
    return _parts(_stem(path), decimal=True), path.name


def frame_files(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    """The files of a folder that are frames of one video, or maps of them, in their order.

    Args:
        folder: where they are.
        suffixes: endings of such files, in small letters.

    Raises:
        DataFilesError: the names are those of several videos, or two of them have the same numbers.
    """
    files = [path for path in visible(folder) if path.suffix.lower() in suffixes]
    by_value = [(_parts(_stem(file), decimal=True), file) for file in files]
    if len({parts for parts, _ in by_value}) < len(files):
        by_value = [(_parts(_stem(file), decimal=False), file) for file in files]
    by_value.sort(key=lambda pair: (pair[0], pair[1].name))
    _check_one_video(folder, by_value)
    for (parts, file), (following, other) in pairwise(by_value):
        if parts == following:
            raise DataFilesError(
                f"{folder} holds {one_line(file.name)} and {one_line(other.name)}, which have the same number; "
                "expected one file for each frame"
            )
    return [file for _, file in by_value]


def _check_one_video(folder: Path, found: Sequence[tuple[_Parts, Path]]) -> None:
    """Refuses names that begin differently, or that end differently where their first numbers are not all different."""
    shapes = {tuple(str(part).lower() for part in parts[::2]) for parts, _ in found}
    firsts = {parts[1] if len(parts) > 1 else None for parts, _ in found}
    if len(shapes) < 2 or (len({shape[0] for shape in shapes}) == 1 and len(firsts) == len(found)):
        return
    kinds = Counter(_shape(parts, file) for parts, file in found)
    named = listing((f"{one_line(kind, 60)} ({count})" for kind, count in kinds.most_common()), 4)
    raise DataFilesError(
        f"{folder} holds files of {len(kinds)} kinds, {named}; expected the frames of one video, whose names differ in "
        "their numbers alone: move the others into folders of their own"
    )


def _shape(parts: _Parts, file: Path) -> str:
    """A name with # in the place of its numbers."""
    return "".join(str(part) if place % 2 == 0 else "#" for place, part in enumerate(parts)) + file.suffix.lower()


def _stem(path: Path) -> str:
    """The name without its ending; what follows a dot in the name of a folder or clip is none."""
    return path.stem if path.suffix.lower() in _ENDINGS else path.name


def _parts(stem: str, decimal: bool) -> _Parts:
    """Text, number, text, number, ..., text."""
    if not decimal:
        found: list[str | Decimal] = []
        for place, part in enumerate(_WHOLE_NUMBER.split(stem)):
            found.append(Decimal(part) if place % 2 else part)
        return tuple(found)
    found = [""]
    for place, part in enumerate(_NUMBER.split(stem)):
        if place % 2 == 0:
            found[-1] = f"{found[-1]}{part}"
        elif part.count(".") + part.count(",") > 1:  # a date, an hour, a version
            first, *others = _parts(part, decimal=False)
            found[-1] = f"{found[-1]}{first}"
            found += others
        else:
            found += [Decimal(part.replace(",", ".")), ""]
    return tuple(found)
