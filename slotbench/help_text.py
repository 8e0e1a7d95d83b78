"""Lays out help for the width of the terminal: no word is broken, options and meanings stand in two columns."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterator

__all__ = ["fitted", "print_help"]

_MOST_COLUMNS = 120
_ROW = re.compile(r"  (\S.*?)(?:  +(\S.*))?")
# what stays on a line: an option with its value, what stands in brackets or quotes
_UNIT = re.compile(r"\[[^]]*\]\S*|\([^)]*\)\S*|--[\w.-]+ (?:'[^']*'|[^\s\[(-]\S*)|'[^']*'\S*|\S+")


def print_help(text: str) -> None:
    """Prints a help text at the terminal's width."""
    print(fitted(text))


def fitted(text: str, width: int | None = None) -> str:
    """A help text at a width: usage, paragraphs, and rows of what to type with its meaning.

    Lines that begin with "Usage: " and those under them are a usage; two blanks at the beginning make a row, with its
    meaning after two blanks or more; deeper lines continue the one above; any other line is of a paragraph.

    Args:
        text: as it is written in the source, at any width.
        width: columns; by default the terminal's, 120 at most.
    """
    width = width or min(shutil.get_terminal_size().columns, _MOST_COLUMNS)
    return "\n\n".join("\n".join(_block(block.splitlines(), width)) for block in text.split("\n\n"))


def _block(lines: list[str], width: int) -> Iterator[str]:
    if lines and lines[0].lower().startswith("usage: "):
        yield from _usage(lines, width)
        return
    paragraph: list[str] = []
    rows: list[tuple[str, str]] = []
    for line in lines:
        if line.startswith("   ") and rows:
            typed, meaning = rows[-1]
            if typed.endswith("\\"):
                rows[-1] = f"{typed[:-1].rstrip()} {line.strip()}", meaning
            else:
                rows[-1] = typed, f"{meaning} {line.strip()}".lstrip()
        elif (row := _ROW.fullmatch(line)) is not None:
            yield from _filled(paragraph, width)
            paragraph = []
            rows.append((row[1], row[2] or ""))
        else:
            yield from _rows(rows, width)
            rows = []
            paragraph.append(line)
    yield from _filled(paragraph, width)
    yield from _rows(rows, width)


def _usage(lines: list[str], width: int) -> Iterator[str]:
    first = len("Usage: ")
    forms: list[str] = []
    for line in lines:
        if forms and len(line) - len(line.lstrip()) > first:
            forms[-1] += f" {line.strip()}"
        else:
            forms.append(line[first:].strip())
    for index, form in enumerate(forms):
        yield from _broken(form, width, " " * first if index else "Usage: ", " " * (first + 4), "")


def _rows(rows: list[tuple[str, str]], width: int) -> Iterator[str]:
    """What to type, and its meaning beside it, or below where that is long."""
    most = max(26, width * 2 // 5)
    beside = [len(typed) for typed, meaning in rows if meaning and len(typed) <= most]
    column = max(beside, default=4) + 4
    for typed, meaning in rows:
        longest = max(map(len, meaning.split()), default=0)
        indent = column if longest <= width - column else 6
        below = len(typed) + 4 > indent
        if below or not meaning:
            yield from _broken(typed, width, "  ", "    ", " \\" if typed.startswith("slotbench ") else "")
        if meaning:
            head = " " * indent if below else f"  {typed}".ljust(indent)
            yield from _wrapped(meaning, width, head, " " * indent)


def _broken(typed: str, width: int, indent: str, further: str, mark: str) -> Iterator[str]:
    """What to type, broken between its units; a line that a shell is to continue ends with a mark."""
    line, room = indent, width - len(further) - len(mark)
    units = (part for unit in _UNIT.findall(typed) for part in ([unit] if len(unit) <= room else unit.split()))
    for unit in units:
        if line.strip() and len(line) + len(unit) + len(mark) > width:
            yield line.rstrip() + mark
            line = further
        line += f"{unit} "
    yield line.rstrip()


def _filled(paragraph: list[str], width: int) -> Iterator[str]:
    if paragraph:
        yield from _wrapped(" ".join(paragraph), width)


def _wrapped(text: str, width: int, indent: str = "", further: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    )
