"""The newest images and videos of every run, inside the page as far as there is room."""

from __future__ import annotations

import base64
import io
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slotbench.comparison.records import Comparison
from slotbench.errors import FileError
from slotbench.files import open_regular, read_bytes

__all__ = ["MOST_PIXELS", "Medium", "embed", "newest", "unfit"]

MOST_PIXELS = 150_000_000
"""Pixels that an image, or all frames of an animation together, may have: a browser unpacks them into memory."""

_TYPES = {
    ".png": "image/png",
    ".gif": "image/gif",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".webp": "image/webp",
    ".mp4": "video/mp4",
    ".webm": "video/webm",
}
_TIME = re.compile(r"\d{8}-\d{6}.*$")
_VERSION = re.compile(r"_(latest|step(\d+))$")
_FORMATS = {".png": "PNG", ".gif": "GIF", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}
_DRAWN_BY_THE_PAGE = ("loss.png", "metrics.png")


@dataclass(frozen=True)
class Medium:
    """The newest file of one name.

    Attributes:
        name: the same in all runs: without the step or "latest", such as "clip_0.gif".
        path: where it is.
    """

    name: str
    path: Path


def newest(paths: Sequence[Path]) -> list[Medium]:
    """One file per name: `NAME_latest.png`, or else the highest `NAME_step0001000.png`, or else `NAME.png`.

    Of those in the folders of several evaluations, which are called after their times, it is the latest one's.
    """
    found: dict[str, tuple[tuple[float, str], Path]] = {}
    for path in paths:
        if path.suffix.lower() not in _TYPES:
            continue
        version = _VERSION.search(path.stem)
        age = float("inf") if version and version[2] is None else float(version[2]) if version else -1.0
        name = f"{_VERSION.sub('', path.stem)}{path.suffix.lower()}"
        when = _TIME.search(path.parent.name)
        rank = (age, when.group() if when else "")
        if name not in found or rank > found[name][0]:
            found[name] = (rank, path)
    return [Medium(name, path) for name, (_, path) in sorted(found.items())]


def embed(comparison: Comparison, budget: int) -> tuple[list[dict[str, Any]], list[str]]:
    """The media of all runs, and the contents of those that fit.

    What lets rows be compared goes in first: a file that many rows have before one that few have, the first run of
    every row before the second; the curves as images last, because the page draws them itself.

    Args:
        comparison: whose runs.
        budget: bytes of the page that the contents may take.

    Returns:
        Entries {"name", "run": position of the run, "path", "bytes", "content": position in the contents, or None};
        and the contents as data URIs, each different one once.
    """
    entries: list[dict[str, Any]] = []
    contents: list[str] = []
    known: dict[str, int] = {}
    left = budget
    for position, medium in _in_order(comparison):
        entry: dict[str, Any] = {"name": medium.name, "run": position, "path": str(medium.path), "content": None}
        entries.append(entry)
        try:
            with open_regular(medium.path) as file:
                entry["bytes"] = os.fstat(file.fileno()).st_size
            if 4 * entry["bytes"] / 3 > left:
                continue
            raw = read_bytes(medium.path, limit=left)
        except (FileError, OSError) as error:
            entry["problem"] = str(error)
            continue
        if problem := unfit(raw, medium.path.suffix.lower()):
            entry["problem"] = problem
            continue
        text = f"data:{_TYPES[medium.path.suffix.lower()]};base64,{base64.b64encode(raw).decode()}"
        if text not in known:
            if len(text) > left:
                continue
            left -= len(text)
            known[text] = len(contents)
            contents.append(text)
        entry["content"] = known[text]
    return entries, contents


def _in_order(comparison: Comparison) -> Iterator[tuple[int, Medium]]:
    """Positions of runs with their media, the most telling first."""
    ranked = []
    rows_with: Counter[str] = Counter()
    position = 0
    for row in comparison.rows:
        row_names = set()
        for place, run in enumerate(row.runs):
            for medium in newest(run.media):
                row_names.add(medium.name)
                ranked.append((place, position, medium))
            position += 1
        rows_with.update(row_names)

    def rank(entry: tuple[int, int, Medium]) -> tuple[bool, int, int, str, int]:
        place, run, medium = entry
        return medium.name in _DRAWN_BY_THE_PAGE, place, -rows_with[medium.name], medium.name, run

    for _, owner, medium in sorted(ranked, key=rank):
        yield owner, medium


def unfit(content: bytes, suffix: str) -> str:
    """Why an image does not go into a page: it is not what its name says, or far too large; "" if nothing is wrong.

    Only headers are read. Videos are not looked into: a browser unpacks one when it is played, a frame at a time.

    Args:
        content: of the file.
        suffix: of its name, in lower case, such as ".png".
    """
    if suffix not in _FORMATS:
        return ""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(content), formats=[_FORMATS[suffix]]) as image:
                (width, height), frames = image.size, getattr(image, "n_frames", 1)
    except Image.DecompressionBombError:
        return "is too large for a page"
    except Exception:  # damaged headers raise errors of a dozen kinds
        return f"is no {suffix.removeprefix('.').upper()} image, or is damaged"
    if width * height * frames > MOST_PIXELS:
        many = f", {frames} frames" if frames > 1 else ""
        return f"is too large for a page: {width} x {height} pixels{many}"
    return ""
