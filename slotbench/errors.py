"""Errors that the user can mend: a few lines on stderr, exit code 2. Imports nothing of slotbench."""

from __future__ import annotations

import difflib
import shutil
import sys
from collections.abc import Iterable

__all__ = ["DataFilesError", "FileError", "MissingSplitError", "UserError", "did_you_mean", "first_line", "lines"]
__all__ += ["listing", "one_line", "wrapped"]

_MOST_COLUMNS = 98


class UserError(Exception):
    """A command line or configuration that cannot be run.

    The first line of the message states the error; further ones, made with `lines`, what was given and what is
    expected.
    """


class FileError(ValueError):
    """A file or folder is missing, damaged, too large, or not in the expected form; one sentence that names its path.

    Every command ends with the sentence and exit code 2 where nothing nearer handles it.
    """


class DataFilesError(FileError):
    """The files of a data set are missing, incomplete, or not in the form that was expected."""


class MissingSplitError(DataFilesError):
    """A data set has no files of a split, and may have others."""


def did_you_mean(given: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """ "; did you mean NEAREST?", or nothing if no known word is near."""
    by_lower = {word.lower(): word for word in known}
    given = given.lower()
    near = difflib.get_close_matches(given, by_lower, n=1, cutoff=0.8)
    near = near or [word for word in by_lower if given.endswith(f"_{word}")]  # slot_dim, where it is dim
    near = near or difflib.get_close_matches(given, by_lower, n=1, cutoff=cutoff)
    return f"; did you mean {by_lower[near[0]]}?" if near else ""


def lines(headline: str, **details: str | None) -> str:
    """A headline and one labelled line per detail, long ones wrapped under their label; None is left out."""
    given = {label: text for label, text in details.items() if text}
    width = max((len(label) for label in given), default=0) + 1
    out = [headline]
    for label, text in given.items():
        for index, part in enumerate(_wrap(text, _columns() - width - 4)):
            out.append(f"  {label + ':' if index == 0 else '':<{width}} {part}")
    return "\n".join(out)


def listing(words: Iterable[str], limit: int = 30) -> str:
    """The words separated by commas, cut short if they are many."""
    words = list(words)
    rest = f", … ({len(words) - limit} more)" if len(words) > limit else ""
    return ", ".join(words[:limit]) + rest or "none"


def first_line(error: BaseException) -> str:
    """An exception's type and the first line of its text, if it has one that can be had."""
    try:
        text = str(error).strip().splitlines()
    except Exception:
        text = []
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def one_line(text: object) -> str:
    """The text on one line, for a cell of a table or a part of a sentence."""
    return " ".join(str(text).split())


def wrapped(message: str) -> str:
    """A message with its long lines broken, and continued under an indentation."""
    columns = _columns()
    broken = (_wrap(line, columns) for line in message.splitlines())
    return "\n".join(part if index == 0 else f"  {part}" for parts in broken for index, part in enumerate(parts))


def _columns() -> int:
    """How many columns a line of a message has at most, before `wrapped` indents it by two."""
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    return min(shutil.get_terminal_size().columns - 2, _MOST_COLUMNS) if is_terminal else _MOST_COLUMNS


def _wrap(text: str, width: int) -> list[str]:
    parts = []
    for paragraph in text.splitlines():
        # split by hand: blanks at the start, and between the words of a path, must stay as they are
        first, *words = paragraph.split(" ")
        line = first
        for word in words:
            if line.strip() and len(line) + 1 + len(word) > width:
                parts.append(line)
                line = word
            else:
                line = f"{line} {word}"
        parts.append(line)
    return parts
