"""Which files of a folder count, and in which order: one rule for videos, frames, masks and depth maps.

Names that begin with a dot are hidden, and so is what systems leave behind. Frames come in the natural order of their
names, in which frame2 is before frame10; the names of the frames of one folder differ in their numbers alone, and those
of two folders are paired by them. A minus or an e before a number is no sign and no power. Accents that are stored in
two ways (NFC, NFD), as systems do, are the same.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from natsort import natsort_keygen, ns

from slotbench.errors import DataFilesError, listing

__all__ = ["ARRAYS", "IMAGES", "MOVIES", "STACKS", "check_same_frames", "composed", "entry", "folder_named"]
__all__ += ["frame_files", "frame_numbers", "is_hidden", "visible"]

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".ppm")
MOVIES = (".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm", ".mpg", ".mpeg")
ARRAYS = (".npy", ".npz")
STACKS = (".gif", ".apng", ".png", ".webp", ".tif", ".tiff")
"""Endings of images that may hold several in one file."""

_LEFT_BEHIND = {"__macosx", "thumbs.db", "desktop.ini", "$recycle.bin", "system volume information", "lost+found"}
_NUMBER, _DECIMAL = re.compile(r"\d+"), re.compile(r"(?<![\d.])\d+\.\d+(?![\d.])")


def composed(name: str) -> str:
    """A name with its accents stored in one way."""
    return unicodedata.normalize("NFC", name)


def entry(path: Path) -> Path | None:
    """What lies at a path, also where the accents of its name are stored in the other way; None if there is nothing."""
    names = (path.name, composed(path.name), unicodedata.normalize("NFD", path.name))
    return next((found for name in names if (found := path.with_name(name)).exists()), None)


def is_hidden(name: str) -> bool:
    """Whether a file or folder of this name is passed over everywhere."""
    return name.startswith(".") or name.lower() in _LEFT_BEHIND


def visible(folder: Path) -> list[Path]:
    """The files and folders in a folder that are not hidden, in the order of their names."""
    try:
        return sorted(path for path in folder.iterdir() if not is_hidden(path.name))
    except OSError as error:
        raise DataFilesError(f"{folder} cannot be read: {error.strerror or error}") from error


def folder_named(parent: Path, name: str) -> Path:
    """The folder `name` in another one, also where it is written in other letters, such as `Masks`."""
    if (parent / name).is_dir() or not parent.is_dir():
        return parent / name
    return next((path for path in visible(parent) if path.name.lower() == name and path.is_dir()), parent / name)


def frame_files(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    """The files of a folder that are frames of one video, or maps of them, in their order."""
    files = [path for path in visible(folder) if path.suffix.lower() in suffixes]
    number = _number_in(files)
    natural = natsort_keygen(alg=ns.FLOAT | ns.NOEXP if number is _DECIMAL else ns.INT)
    files.sort(key=lambda path: (natural(path.stem), path.name))
    numbers = _numbers(files)
    kinds = Counter(number.sub("#", composed(file.stem.lower())) for file in files)
    begins, firsts = {kind.partition("#")[0] for kind in kinds}, {found[:1] for found in numbers}
    # what follows a number may differ where the number itself tells the frames apart
    if len(kinds) > 1 and (len(begins) > 1 or len(firsts) < len(files)):
        named = listing((f"{kind} ({count})" for kind, count in kinds.most_common()), 4)
        raise DataFilesError(
            f"{folder} holds files of {len(kinds)} kinds, {named}; expected the frames of one video, whose names "
            "differ in their numbers alone: move the others into folders of their own"
        )
    if len(set(numbers)) < len(files) > 1:
        raise DataFilesError(f"{folder} holds two files of one number; expected one file for each frame")
    return files


def frame_numbers(files: Sequence[Path]) -> list[float] | None:
    """The number of each frame: the first in the names that no two of them share; None where there is none."""
    columns = zip(*_numbers(files), strict=False) if len(files) > 1 else ()
    return next((list(column) for column in columns if len(set(column)) == len(files)), None)


def check_same_frames(
    what: str, path: Path, numbers: Sequence[float] | None, video: Path, frames: Sequence[float] | None
) -> None:
    """Refuses files at `path` whose numbers are not those of the frames of `video`, in order, where both have some.

    One side may count from 0 and the other from 1; `what` the files are is for the message.
    """
    if not numbers or not frames:
        return
    shift = frames[0] - numbers[0] if {numbers[0], frames[0]} == {0, 1} else 0
    for number, frame in zip(numbers, frames, strict=False):
        if number + shift != frame:
            raise DataFilesError(
                f"{path} has {what} of number {number} where {video} has frame {frame}: they are paired by the numbers "
                "in their names; expected the same numbers in both, or from 0 on in one and from 1 on in the other"
            )


def _numbers(files: Sequence[Path]) -> list[tuple[float, ...]]:
    """The numbers in each name."""
    number = _number_in(files)
    return [tuple(map(float if number is _DECIMAL else int, number.findall(file.stem))) for file in files]


def _number_in(files: Sequence[Path]) -> re.Pattern[str]:
    """What a number in these names is: decimals whose last zeros were dropped (0.5, 0.25), or digits (1.2, 1.10)."""
    found = [_DECIMAL.findall(file.stem) for file in files]
    ends = {one[0].partition(".")[2] for one in found if len(one) == 1}
    dropped = len({len(end) for end in ends}) > 1 and not any(end[1:].endswith("0") for end in ends)
    return _DECIMAL if dropped and all(len(one) == 1 for one in found) else _NUMBER
