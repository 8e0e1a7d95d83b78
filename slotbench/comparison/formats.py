"""A comparison as text: terminal, CSV, JSON, Markdown, LaTeX."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from slotbench.comparison.metrics import Column
from slotbench.comparison.table import Comparison, Row
from slotbench.configurations import shortest_keys
from slotbench.io import dump_json

__all__ = [
    "MARK",
    "Sheet",
    "decimals",
    "number",
    "sheet",
    "terminal_table",
    "to_csv",
    "to_json",
    "to_latex",
    "to_markdown",
]

MARK = "the best, and better than every other row of its column (Welch, two-sided; p < 0.05 after Bonferroni)"
_ARROWS = {True: " ↑", False: " ↓", None: ""}


def decimals(means: Sequence[float], spreads: Sequence[float]) -> int:
    """Two significant digits of the typical spread; three of the typical mean where there is none."""
    spreads = [spread for spread in spreads if spread and math.isfinite(spread)]
    if spreads:
        return max(0, 1 - math.floor(math.log10(np.median(spreads))))
    values = [abs(mean) for mean in means if mean and math.isfinite(mean)]
    return max(0, 2 - math.floor(math.log10(np.median(values)))) if values else 3


def number(value: float, digits: int) -> str:
    """Rounded, and no negative zero; very small and very large ones with an exponent."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "-∞"
    if digits > 6 or abs(value) >= 1e7:
        return f"{value:.1e}".replace("e+", "e") if value else "0"
    return f"{round(value, digits) + 0.0:.{digits}f}"


@dataclass(frozen=True)
class Sheet:
    """A comparison as text in cells.

    Attributes:
        heads: of the settings, the facts and the scores.
        texts: how many of the columns are settings.
        first: where the scores begin.
        baselines: lines above the rows: the name, then a text for each further column.
        rows: lines of texts.
        best: places of the scores that are marked, by line and column.
    """

    heads: list[str]
    texts: int
    first: int
    baselines: list[list[str]]
    rows: list[list[str]]
    best: set[tuple[int, int]]


def sheet(comparison: Comparison, columns: Sequence[Column] | None = None) -> Sheet:
    """The comparison as text.

    Args:
        comparison: any.
        columns: other scores than the comparison's own.
    """
    columns = comparison.columns if columns is None else columns
    rows, short = comparison.rows, shortest_keys(comparison.keys)
    by_label = not comparison.keys or any(not row.settings for row in rows)
    heads = ["runs"] if by_label else [short[key] for key in comparison.keys]
    lines = [[row.label] if by_label else [row.settings.get(key, "–") for key in comparison.keys] for row in rows]
    texts = len(heads)
    if any(row.parameters for row in rows):
        heads.append("parameters")
        lines = [
            [*line, f"{row.parameters:,}" if row.parameters else ""] for line, row in zip(lines, rows, strict=True)
        ]
    if seconds := [row.seconds_per_step for row in rows if row.seconds_per_step]:
        heads.append("s per step")
        places = decimals(seconds, [])
        took = [number(row.seconds_per_step, places) if row.seconds_per_step else "" for row in rows]
        lines = [[*line, text] for line, text in zip(lines, took, strict=True)]
    first = len(heads)
    digits = [_decimals(column, rows) for column in columns]
    for column, places in zip(columns, digits, strict=True):
        heads.append(column.label + _ARROWS[column.higher_is_better])
        lines = [[*line, _score(row, column, places)] for line, row in zip(lines, rows, strict=True)]
    if any(row.success for row in rows):
        heads.append("success")
        lines = [[*line, "/".join(map(str, row.success or ()))] for line, row in zip(lines, rows, strict=True)]
    heads.append("state" if comparison.apart else "seeds")
    lines = [[*line, row.states[0] if comparison.apart else _runs(row)] for line, row in zip(lines, rows, strict=True)]
    names = dict.fromkeys(name for column in columns for name in column.baselines)
    oracles = dict.fromkeys(name for column in columns for name in column.oracles)
    baselines = []
    for kind, name in [*(("baselines", name) for name in names), *(("oracles", name) for name in oracles)]:
        given = [getattr(column, kind).get(name) for column in columns]
        texts_of = ["" if value is None else number(value, places) for value, places in zip(given, digits, strict=True)]
        title = name if kind == "baselines" else f"oracle: {name}"
        baselines.append([title, *[""] * (first - 1), *texts_of, *[""] * (len(heads) - first - len(columns))])
    best = {
        (line, first + place)
        for line, row in enumerate(rows)
        for place, column in enumerate(columns)
        if column.name in row.cells and row.cells[column.name].is_best
    }
    return Sheet(heads, texts, first, baselines, lines, best)


def _decimals(column: Column, rows: Sequence[Row]) -> int:
    cells = [row.cells[column.name] for row in rows if column.name in row.cells]
    return decimals([cell.mean for cell in cells], [cell.std or 0.0 for cell in cells])


def _score(row: Row, column: Column, places: int) -> str:
    cell = row.cells.get(column.name)
    if cell is None:
        return ""
    return number(cell.mean, places) + ("" if cell.std is None else f" ± {number(cell.std, places)}")


def _runs(row: Row) -> str:
    others = Counter(state for state in row.states if state != "finished")
    told = f" ({', '.join(f'{count} {state}' for state, count in sorted(others.items()))})" if others else ""
    return f"{len(row.runs)}{told}"


def to_markdown(comparison: Comparison) -> str:
    """A table, baselines in italics, the best in bold; the command above and the notes below it."""
    made = sheet(comparison)
    lines = [[f"*{_cell(line[0])}*", *map(_cell, line[1:])] for line in made.baselines]
    for index, line in enumerate(made.rows):
        lines.append([f"**{_cell(t)}**" if (index, place) in made.best else _cell(t) for place, t in enumerate(line)])
    rule = "|" + "---|" * made.texts + "---:|" * (len(made.heads) - made.texts)
    table = [f"| {' | '.join(map(_cell, made.heads))} |", rule, *(f"| {' | '.join(line)} |" for line in lines)]
    notes = [f"- **bold**: {MARK}"] * bool(made.best) + [f"- {_cell(note)}" for note in comparison.notes]
    parts = [f"### {_cell(comparison.title)}", f"    {comparison.command}" * bool(comparison.command)]
    return "\n\n".join(part for part in [*parts, "\n".join(table), "\n".join(notes)] if part) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


_LATEX = {sign: f"\\{sign}" for sign in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "–": "--",
    "∞": r"$\infty$",
}


def to_latex(comparison: Comparison) -> str:
    """A `tabular` for the package booktabs, baselines first and in italics, the best in bold."""
    made = sheet(comparison)
    above = [[rf"\textit{{{_latex(line[0])}}}", *map(_latex, line[1:])] for line in made.baselines]
    rows = [
        [rf"\textbf{{{_latex(t)}}}" if (index, place) in made.best else _latex(t) for place, t in enumerate(line)]
        for index, line in enumerate(made.rows)
    ]
    remarks = [comparison.title, comparison.command, *([f"bold: {MARK}"] * bool(made.best)), *comparison.notes]
    body = [
        *(f"% {remark}" for remark in remarks if remark),
        rf"\begin{{tabular}}{{{'l' * made.texts}{'r' * (len(made.heads) - made.texts)}}}",
        *(r"\toprule", f"{' & '.join(map(_latex, made.heads))} \\\\", r"\midrule"),
        *(f"{' & '.join(line)} \\\\" for line in above),
        *([r"\midrule"] if above else []),
        *(f"{' & '.join(line)} \\\\" for line in rows),
        *(r"\bottomrule", r"\end{tabular}"),
    ]
    return "\n".join(body) + "\n"


def _latex(text: str) -> str:
    text = f"−{text[1:]}" if text[:1] == "-" and text[1:2].isdigit() else text
    return "".join(_LATEX.get(sign, sign) for sign in text).replace("−", "$-$")


def to_frame(comparison: Comparison) -> pd.DataFrame:
    """A line a row, numbers in full; baselines and oracles are lines too, told apart by "kind".

    Of a metric M the columns are M (the mean), M_std, M_n, and M_low and M_high, the ends of the 95 % interval.
    """
    lines: list[dict[str, Any]] = []
    for kind in ("baseline", "oracle"):
        given = [getattr(column, f"{kind}s") for column in comparison.columns]
        for name in dict.fromkeys(name for scores in given for name in scores):
            scores = {column.name: own.get(name) for column, own in zip(comparison.columns, given, strict=True)}
            lines.append({"kind": kind, "label": name, **scores})
    for row in comparison.rows:
        line: dict[str, Any] = {"kind": "runs", "label": row.label, **row.settings, "parameters": row.parameters}
        line |= {"seconds_per_step": row.seconds_per_step, "runs": len(row.runs), "unfinished": row.unfinished}
        line |= {"diverged": row.states.count("diverged")}
        for name, cell in row.cells.items():
            low, high = cell.interval
            line |= {name: cell.mean, f"{name}_std": cell.std, f"{name}_n": len(cell.values)}
            line |= {f"{name}_low": low, f"{name}_high": high}
        lines.append(line)
    names = [f"{c.name}{end}" for c in comparison.columns for end in ("", "_std", "_n", "_low", "_high")]
    facts = ["parameters", "seconds_per_step", "runs", "unfinished", "diverged"]
    return pd.DataFrame(lines, dtype=object).reindex(columns=["kind", "label", *comparison.keys, *facts, *names])


def to_csv(comparison: Comparison) -> str:
    """The rows; or, where every run is a row, all that is known of each run, which `slotbench compare` reads again."""
    if comparison.apart:
        return comparison.runs.table().to_csv(lineterminator="\n")
    return to_frame(comparison).to_csv(index=False, lineterminator="\n")


def to_json(comparison: Comparison) -> str:
    """Everything that the table is made of, numbers in full; those that are not finite are text."""
    columns = [
        {"name": c.name, "label": c.label, "higher_is_better": c.higher_is_better, "baselines": c.baselines}
        | {"oracles": c.oracles}
        for c in comparison.columns
    ]
    rows = []
    for row in comparison.rows:
        scores = {
            name: {"mean": cell.mean, "std": cell.std, "values": [*cell.values.values()], "is_best": cell.is_best}
            for name, cell in row.cells.items()
        }
        facts = {"parameters": row.parameters, "seconds_per_step": row.seconds_per_step, "success": row.success}
        ids = [{"id": id, "state": state} for id, state in zip(row.runs, row.states, strict=True)]
        rows.append({"label": row.label, "settings": row.settings, **facts, "runs": ids, "scores": scores})
    document = {"title": comparison.title, "command": comparison.command, "keys": comparison.keys}
    return dump_json(document | {"metrics": columns, "rows": rows, "notes": comparison.notes}, indent=1) + "\n"


def terminal_table(comparison: Comparison, width: int) -> Any:
    """Title, table and notes for a terminal of so many columns; scores that do not fit are left out and named."""
    from rich.console import Console, Group
    from rich.measure import Measurement
    from rich.text import Text

    console = Console(width=10_000)
    for count in range(len(comparison.columns), 0, -1):
        made = _rich_table(sheet(comparison, comparison.columns[:count]))
        if Measurement.get(console, console.options, made).maximum <= width:
            break
    else:
        count, made = len(comparison.columns[:1]), _rich_table(sheet(comparison, comparison.columns[:1]))
    notes = list(comparison.notes)
    if left_out := [column.name for column in comparison.columns[count:]]:
        named = ", ".join(left_out)
        notes.append(f"no room for {named}: a wider terminal, or --format markdown, shows them")
    if sheet(comparison).best:
        notes.insert(0, f"*: {MARK}")
    return Group(Text(comparison.title, style="bold"), made, *(Text(note) for note in notes))


def _rich_table(made: Sheet) -> Any:
    from rich.table import Table
    from rich.text import Text

    lines = [list(line) for line in made.rows]
    for index, place in made.best:
        lines[index][place] += " *"
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for place, head in enumerate(made.heads):
        # headings break between words, numbers must not
        widest = max(len(line[place]) for line in [*lines, *made.baselines] or [made.heads])
        parts = textwrap.wrap(head, max(widest, *map(len, head.split()), 1), break_on_hyphens=False)
        column = Text("\n".join(parts))
        table.add_column(column, justify="left" if place < made.texts else "right", vertical="bottom", no_wrap=True)
    for line in made.baselines:
        table.add_row(*map(Text, line), style="dim italic")
    for line in lines:
        table.add_row(*map(Text, line))
    return table
