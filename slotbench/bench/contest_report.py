"""Tables of contests, for a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from slotbench.bench.contest import Contest, Measured, Spread, growth

__all__ = ["Table", "as_json", "growth_table", "markdown", "tables"]


@dataclass(frozen=True)
class Table:
    """Headings and rows of text; the first two columns are words, the others numbers."""

    title: str
    headings: list[str]
    rows: list[list[str]]


Results = Sequence[tuple[Contest, list[Measured]]]


def tables(title: str, case: str, results: Results) -> list[Table]:
    """One table per group of contests, columns without a value left out; then how times grow.

    Args:
        title: of the tables.
        case: heading of the first column: what tells the contests apart.
        results: the contests and what was measured.
    """
    groups: dict[str, list[tuple[Contest, list[Measured]]]] = {}
    for contest, measured in results:
        groups.setdefault(contest.group, []).append((contest, measured))
    made = [_table(f"{title}: {group}" if group else title, case, entries) for group, entries in groups.items()]
    grown = [growth_table(group, entries) for group, entries in groups.items()]
    return [*made, *(table for table in grown if table.rows)]


def _table(title: str, case: str, entries: Results) -> Table:
    contests = [contest for contest, _ in entries]
    (base,) = {contest.base for contest in contests}
    with_rate = any(contest.unit for contest in contests)
    with_memory = any(one.memory_mb is not None for _, measured in entries for one in measured)
    units = "/".join(dict.fromkeys(contest.unit for contest in contests if contest.unit))
    headings = [case, "way", "ms", "share" if base is None else f"x {base}", "min to max"]
    headings += [f"{units}/s"] * with_rate + ["MB"] * with_memory
    rows = []
    for contest, measured in entries:
        for index, one in enumerate(measured):
            row = ["" if index else contest.label, one.way, _digits(one.ms.median), _digits(one.ratio.median)]
            row.append("" if one.way == base else _range(one.ratio))
            if with_rate:
                row.append(f"{1e3 * contest.amount / one.ms.median:,.0f}")
            if with_memory:
                row.append("" if one.memory_mb is None else f"{one.memory_mb:,.0f}")
            rows.append(row)
    return Table(title, headings, rows)


def growth_table(group: str, entries: Results) -> Table:
    """How the time of each way grows with the size of the contests; no rows where these have no size."""
    series: dict[str, list[tuple[float, float]]] = {}
    for contest, measured in entries:
        for one in measured:
            if contest.size is not None:
                series.setdefault(one.way, []).append((contest.size, one.ms.median))
    rows = []
    for way, points in series.items():
        sizes, ms = zip(*sorted(points), strict=True)
        if len(set(sizes)) > 1:
            rows.append(["", way, f"{min(sizes):g} to {max(sizes):g}", f"T^{growth(sizes, ms):.2f}"])
    return Table(f"growth{f': {group}' if group else ''}", ["", "way", "over", "grows as"], rows)


def markdown(made: Sequence[Table], heading: str, lines: Sequence[str]) -> str:
    """The tables as a page."""
    out = [f"# {heading}", "", *lines, ""]
    for table in made:
        out += [
            f"## {table.title}",
            "",
            _row(table.headings),
            _row(["---", "---", *["---:"] * (len(table.headings) - 2)]),
        ]
        out += [*map(_row, table.rows), ""]
    return "\n".join(out)


def as_json(results: Results) -> list[dict[str, Any]]:
    """Every number, the turns included."""
    return [
        {
            "case": contest.label,
            "group": contest.group,
            "base": contest.base,
            "amount": contest.amount,
            "unit": contest.unit,
            "ways": [asdict(one) for one in measured],
        }
        for contest, measured in results
    ]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _range(spread: Spread) -> str:
    return f"{_digits(spread.low)} to {_digits(spread.high)}"


def _digits(value: float) -> str:
    """Three digits that say something."""
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
