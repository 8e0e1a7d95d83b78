"""A comparison in the terminal, as wide as the terminal is."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from slotbench.comparison.formats.sheet import MARK, Score, Sheet, make_sheet
from slotbench.comparison.records import Comparison
from slotbench.text import one_line

__all__ = ["plain_text", "print_comparison"]

_GAP, _NARROWEST = 2, 8
# about how many lines a heading may take
_HIGHEST = 3
# characters of a cell
_LONGEST = 1000


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Prints the table; columns of scores that do not fit are left out from the right, and named below.

    Args:
        comparison: any.
        console: its width is kept to if it is a terminal; into a pipe or a file everything is written.
    """
    sheet = make_sheet(comparison)
    width = console.width if console.is_terminal else None
    shown = len(sheet.metrics) if width is None else _fitting(sheet, width)
    lines = [Text(one_line(comparison.title), style="bold")] if comparison.title else []
    lines += _Layout(sheet, shown, width).lines()
    for line in lines:
        console.print(line, soft_wrap=True)
    notes = [f"* {MARK}"] if sheet.has_best else []
    notes += comparison.notes
    if left_out := [metric.name for metric in comparison.metrics[shown:]]:
        notes.append(f"no room for {', '.join(left_out)}: a wider terminal, or --format markdown, shows them")
    for note in notes:
        console.print(Text(one_line(note), style="dim"), soft_wrap=width is None)


def plain_text(comparison: Comparison) -> str:
    """The table as in a pipe, without colours and without a limit to its width."""
    out = StringIO()
    print_comparison(comparison, Console(file=out, force_terminal=False, color_system=None))
    return out.getvalue()


def _fitting(sheet: Sheet, width: int) -> int:
    """How many scores there is room for; one at least."""
    for shown in range(len(sheet.metrics), 1, -1):
        if _Layout(sheet, shown, None).least <= width:
            return shown
    return min(1, len(sheet.metrics))


@dataclass
class _Column:
    heading: str
    cells: list[str]
    baselines: list[str]
    is_setting: bool = False
    best: frozenset[int] = frozenset()
    width: int = 0

    def __post_init__(self) -> None:
        self.heading = one_line(self.heading, _LONGEST)
        self.cells = [one_line(cell, _LONGEST) for cell in self.cells]


class _Layout:
    """Columns with their widths. The names of baselines lie over the settings and facts, which they do not have."""

    def __init__(self, sheet: Sheet, shown: int, width: int | None) -> None:
        self._baselines = [one_line(baseline.name, _LONGEST) for baseline in sheet.baselines]
        blank = [""] * len(self._baselines)
        self._lead = [
            _Column(heading, [line.names[index] for line in sheet.lines], blank, is_setting=True)
            for index, heading in enumerate(sheet.names)
        ]
        if sheet.has_parameters:
            self._lead.append(_Column("parameters", [line.parameters for line in sheet.lines], blank))
        if sheet.has_seconds:
            self._lead.append(_Column("s/step", [line.seconds for line in sheet.lines], blank))
        self._rest = [_score_column(sheet, index) for index in range(shown)]
        for place, heading in enumerate(sheet.protocol):
            self._rest.append(_Column(heading, [line.protocol[place] for line in sheet.lines], blank))
        self._rest.append(_Column(sheet.runs, [line.runs for line in sheet.lines], blank))
        columns = [*self._lead, *self._rest]
        for column in columns:
            # headings may break between words, numbers must not
            words = [column.heading] if width is None and column.is_setting else column.heading.split(" ")
            third = 0 if column.is_setting else -(-cell_len(column.heading) // _HIGHEST)
            column.width = max(third, *map(cell_len, [*words, *column.cells, *column.baselines]))
        self._lead[0].width += max(0, max(map(cell_len, self._baselines), default=0) - _total(self._lead))
        self.least = _total(columns)
        self._fit(columns, width)

    def _fit(self, columns: Sequence[_Column], width: int | None) -> None:
        """What is left over goes to headings, what is missing is taken from the settings."""
        settings = [column for column in columns if column.is_setting]
        while width is not None and _total(columns) > width:
            widest = max(settings, key=lambda column: column.width)
            if widest.width <= _NARROWEST:
                return
            widest.width -= 1
        while width is None or _total(columns) < width:
            longest = max(columns, key=lambda column: cell_len(column.heading) - column.width)
            if longest.width >= cell_len(longest.heading):
                return
            longest.width += 1

    def lines(self) -> list[Text]:
        columns = [*self._lead, *self._rest]
        headings = [textwrap.wrap(column.heading, column.width) for column in columns]
        height = max(map(len, headings))
        # the last line of a heading stands on the numbers
        headings = [[""] * (height - len(parts)) + parts for parts in headings]
        lines = [
            _joined([_placed(parts[level], column) for parts, column in zip(headings, columns, strict=True)], "bold")
            for level in range(height)
        ]
        for index, name in enumerate(self._baselines):
            lead = set_cell_size(name, max(_total(self._lead), 1))
            cells = [_placed(column.baselines[index], column) for column in self._rest]
            lines.append(_joined([Text(lead), *cells], "dim italic"))
        for index in range(len(self._lead[0].cells)):
            cells = [_placed(column.cells[index], column, index in column.best) for column in columns]
            lines.append(_joined(cells))
        return lines


def _score_column(sheet: Sheet, index: int) -> _Column:
    best = frozenset(row for row, line in enumerate(sheet.lines) if line.scores[index].is_best)
    # where one score is marked, the others keep that room free, so that the digits stay aligned
    room = "  " if best else ""
    return _Column(
        f"{sheet.metrics[index]} {sheet.arrows[index]}".rstrip(),
        [_score(line.scores[index], room) for line in sheet.lines],
        [_score(baseline.scores[index], room) for baseline in sheet.baselines],
        best=best,
    )


def _score(score: Score, room: str) -> str:
    text = f"{score.mean} ± {score.spread}" if score.spread else score.mean
    return f"{text} *" if score.is_best else text + room


def _total(columns: Sequence[_Column]) -> int:
    return sum(column.width for column in columns) + _GAP * (len(columns) - 1)


def _placed(text: str, column: _Column, is_best: bool = False) -> Text:
    """Settings to the left and cut if they must be, numbers to the right."""
    if cell_len(text) > column.width:
        text = set_cell_size(text, column.width - 1) + "…"
    room = " " * (column.width - cell_len(text))
    return Text(text + room if column.is_setting else room + text, style="bold" if is_best else "")


def _joined(cells: Sequence[Text], style: str = "") -> Text:
    line = Text(" " * _GAP).join(cells)
    line.rstrip()
    line.stylize_before(style)
    return line
