"""Which files of a folder count, and in which order: one rule for videos, frames, masks and depth maps.

Names that begin with a dot are hidden, and so is what systems leave behind. Frames come in the natural order of their
names, in which frame2 is before frame10; the names of the frames of one folder differ in their whole numbers alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from natsort import natsort_keygen

from slotbench.errors import DataFilesError, listing

__all__ = ["ARRAYS", "IMAGES", "MOVIES", "STACKS", "folder_named", "frame_files", "is_hidden", "visible"]

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".ppm")
MOVIES = (".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm", ".mpg", ".mpeg")
ARRAYS = (".npy", ".npz")
STACKS = (".gif", ".apng", ".png", ".webp", ".tif", ".tiff")
"""Endings of images that may hold several in one file."""

_LEFT_BEHIND = {"__macosx", "thumbs.db", "desktop.ini", "$recycle.bin", "system volume information", "lost+found"}
_NUMBER = re.compile(r"\d+")
_natural = natsort_keygen()


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
    files.sort(key=lambda path: (_natural(path.stem), path.name))
    numbers = [tuple(map(int, _NUMBER.findall(file.stem))) for file in files]
    kinds = Counter(_NUMBER.sub("#", file.stem.lower()) for file in files)
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
