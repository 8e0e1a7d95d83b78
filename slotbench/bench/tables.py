"""Tables of numbers, for a terminal and as Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from rich.table import Table as RichTable

from slotbench.text import markdown_cell, rich_text

__all__ = ["Table", "markdown", "number", "rich_table"]


@dataclass(frozen=True)
class Table:
    """Headings and rows of text; the first `words` columns are words, the others numbers."""

    title: str
    headings: list[str]
    rows: list[list[str]]
    words: int = 1


def rich_table(table: Table) -> RichTable:
    """The table for a terminal."""
    shown = RichTable(title=rich_text(table.title), title_justify="left", title_style="bold", box=None, pad_edge=False)
    for index, heading in enumerate(table.headings):
        words = index < table.words
        shown.add_column(rich_text(heading), justify="left" if words else "right", no_wrap=words)
    for row in table.rows:
        shown.add_row(*map(rich_text, row))
    return shown


def markdown(made: Iterable[Table], heading: str, lines: Iterable[str]) -> str:
    """The tables as a page below some paragraphs."""
    parts = [f"# {heading}", *lines]
    for table in made:
        rows = [f"| {' | '.join(map(markdown_cell, cells))} |" for cells in (table.headings, *table.rows)]
        rows.insert(1, "|---" * table.words + "|" + "---:|" * (len(table.headings) - table.words))
        parts += [f"## {table.title}", "\n".join(rows)]
    return "\n\n".join(parts) + "\n"


def number(value: float) -> str:
    """Three significant digits, without an exponent, thousands separated."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    rounded = float(f"{value:.3g}")
    digits = max(0, 2 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:,.{digits}f}"
