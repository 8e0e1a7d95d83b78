"""A comparison in the terminal, as wide as the terminal is."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from slotbench.comparison.records import Comparison
from slotbench.comparison.sheet import MARK, Score, Sheet, make_sheet

__all__ = ["plain_text", "print_comparison"]

_GAP = 2
_ROOM = 10_000


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Prints the table; columns of scores that do not fit are left out from the right, and named below.

    Args:
        comparison: any.
        console: its width is kept to if it is a terminal; into a pipe or a file everything is written.
    """
    sheet = make_sheet(comparison)
    shown = _fitting(sheet, console.width) if console.is_terminal else len(sheet.metrics)
    left_out = [metric.name for metric in comparison.metrics[shown:]]
    if comparison.title:
        console.print(Text(comparison.title, style="bold"), soft_wrap=True)
    if console.is_terminal:
        console.print(_table(sheet, shown))
    else:
        for line in _lines(sheet, shown):
            console.print(line, soft_wrap=True, highlight=False, markup=False)
    notes = [*comparison.notes]
    if sheet.has_best:
        notes.insert(0, f"* {MARK}")
    if left_out:
        notes.append(f"no room for {', '.join(left_out)}: a wider terminal, or --format markdown, shows them")
    for note in notes:
        console.print(Text(note, style="dim"), soft_wrap=not console.is_terminal)


def plain_text(comparison: Comparison) -> str:
    """The table as in a pipe, without colours and without a limit to its width."""
    out = StringIO()
    print_comparison(comparison, Console(file=out, width=_ROOM, force_terminal=False, color_system=None))
    return out.getvalue()


def _headings(sheet: Sheet, shown: int) -> list[str]:
    metrics = [f"{name} {arrow}".rstrip() for name, arrow in zip(sheet.metrics, sheet.arrows, strict=True)]
    return [
        *sheet.names,
        *(["parameters"] if sheet.has_parameters else []),
        *(["s/step"] if sheet.has_seconds else []),
        *metrics[:shown],
        sheet.runs,
    ]


def _cells(sheet: Sheet, shown: int) -> list[tuple[bool, list[str]]]:
    """Rows of text, and whether a row is a floor."""
    # where one score of a column is marked, the others keep that room free, so that the digits stay aligned
    marks = [2 * any(line.scores[index].is_best for line in sheet.lines) for index in range(shown)]
    blank = [""] * (len(sheet.names) - 1 + sheet.has_parameters + sheet.has_seconds)
    rows = [(True, [floor.name, *blank, *_scores(floor.scores, marks), ""]) for floor in sheet.floors]
    for line in sheet.lines:
        facts = [line.parameters] * sheet.has_parameters + [line.seconds] * sheet.has_seconds
        rows.append((False, [*line.names, *facts, *_scores(line.scores, marks), line.runs]))
    return rows


def _scores(scores: Sequence[Score], marks: Sequence[int]) -> list[str]:
    texts = []
    for score, room in zip(scores, marks, strict=False):
        text = f"{score.mean} ± {score.spread}" if score.spread else score.mean
        texts.append(f"{text} *" if score.is_best else text + " " * room)
    return texts


def _fitting(sheet: Sheet, width: int) -> int:
    """How many scores there is room for; headings may break between words, numbers must not."""
    for shown in range(len(sheet.metrics), 1, -1):
        widths = [max(cell_len(word) for word in heading.split(" ")) for heading in _headings(sheet, shown)]
        for _, row in _cells(sheet, shown):
            widths = [max(before, cell_len(cell)) for before, cell in zip(widths, row, strict=True)]
        if sum(widths) + _GAP * (len(widths) - 1) <= width:
            return shown
    return min(1, len(sheet.metrics))


def _table(sheet: Sheet, shown: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    for index, heading in enumerate(_headings(sheet, shown)):
        table.add_column(Text(heading), justify="left" if index < len(sheet.names) else "right", vertical="bottom")
    for is_floor, row in _cells(sheet, shown):
        cells = [Text(cell, style="bold" if cell.endswith(" *") else "", no_wrap=True) for cell in row]
        table.add_row(*cells, style="dim italic" if is_floor else "")
    return table


def _lines(sheet: Sheet, shown: int) -> list[str]:
    rows = [_headings(sheet, shown), *(row for _, row in _cells(sheet, shown))]
    widths = [max(cell_len(row[index]) for row in rows) for index in range(len(rows[0]))]
    lines = []
    for row in rows:
        padded = []
        for index, (cell, width) in enumerate(zip(row, widths, strict=True)):
            room = " " * (width - cell_len(cell))
            padded.append(cell + room if index < len(sheet.names) else room + cell)
        lines.append((" " * _GAP).join(padded).rstrip())
    return lines
