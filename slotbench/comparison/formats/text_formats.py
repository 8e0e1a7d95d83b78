"""A comparison as CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import StringIO
from typing import Any

from slotbench.comparison.formats.sheet import MARK, Line, Score, Sheet, make_sheet
from slotbench.comparison.records import Comparison
from slotbench.comparison.settings import plain_value
from slotbench.text import csv_cell, latex_text, markdown_cell, one_line

__all__ = ["runs_to_csv", "to_csv", "to_latex", "to_markdown"]


def to_csv(comparison: Comparison) -> str:
    """One line per row, numbers in full; baselines and oracles are lines too, told apart by the column "kind".

    Of a metric M the columns are M (the mean), M_std, M_n, and M_low and M_high, the ends of the 95 % interval (t). The
    column "diverged" counts the seeds that have. Of a grid with a protocol there are "success", the share of seeds
    that beat the best baseline, and the budget of a run in "steps" and "seconds".
    """
    names = [metric.name for metric in comparison.metrics]
    parts = [f"{name}{end}" for name in names for end in ("", "_std", "_n", "_low", "_high")]
    counts = ["runs", "unfinished", "diverged"]
    counts += ["success", "steps", "seconds"] if comparison.has_protocol else []
    table: list[list[Any]] = [[*("kind", "label", *comparison.keys, "parameters", "seconds_per_step"), *counts, *parts]]
    for kind, given in (
        ("baseline", [metric.baselines for metric in comparison.metrics]),
        ("oracle", [metric.oracles for metric in comparison.metrics]),
    ):
        for name in dict.fromkeys(name for scores in given for name in scores):
            line: list[Any] = [kind, name, *[None] * (len(comparison.keys) + 2 + len(counts))]
            for scores in given:
                line += [scores.get(name), *[None] * 4]
            table.append(line)
    for row in comparison.rows:
        line = ["runs", row.label, *(_setting(row.settings.get(key)) for key in comparison.keys)]
        line += [row.parameters, row.seconds_per_step, len(row.runs), row.unfinished, row.diverged]
        if comparison.has_protocol:
            line += [
                row.success[0] / row.success[1] if row.success and row.success[1] else None,
                row.steps,
                row.seconds,
            ]
        for name in names:
            cell = row.cells.get(name)
            line += [cell.mean, cell.std, len(cell.values), cell.low, cell.high] if cell else [None] * 5
        table.append(line)
    return _csv(table)


def runs_to_csv(comparison: Comparison) -> str:
    """One line per run, numbers in full: what one loads to look further. The rows must be one run each."""
    names = [metric.name for metric in comparison.metrics]
    table: list[list[Any]] = [
        ["id", "name", "source", "state", "step", *comparison.keys, "parameters", "seconds_per_step", *names]
    ]
    for row in comparison.rows:
        for run in row.runs:
            line: list[Any] = [run.id, run.name, run.source, run.state, run.info.get("step")]
            line += [
                *(_setting(row.settings.get(key)) for key in comparison.keys),
                row.parameters,
                row.seconds_per_step,
            ]
            table.append([*line, *(row.cells[name].mean if name in row.cells else None for name in names)])
    return _csv(table)


def _setting(value: Any) -> Any:
    return None if value is None else plain_value(value)


def _csv(table: Sequence[Sequence[Any]]) -> str:
    out = StringIO()
    csv.writer(out, lineterminator="\n").writerows([csv_cell(cell) for cell in row] for row in table)
    return out.getvalue()


def to_markdown(comparison: Comparison) -> str:
    """A table, baselines first and in italics, the best in bold; the command and the notes below it."""
    sheet = make_sheet(comparison)
    headings = [markdown_cell(heading) for heading in _headings(sheet)]
    count = len(sheet.names)
    lines = [_joined(headings), "|" + "---|" * count + "---:|" * (len(headings) - count)]
    blank = [""] * (count - 1 + sheet.has_parameters + sheet.has_seconds)
    after = [""] * (len(sheet.protocol) + 1)
    lines += [
        _joined([f"*{markdown_cell(baseline.name)}*", *blank, *(score.mean for score in baseline.scores), *after])
        for baseline in sheet.baselines
    ]
    for line in sheet.lines:
        scores = [f"**{_score(score)}**" if score.is_best else _score(score) for score in line.scores]
        lines.append(
            _joined(
                [
                    *map(markdown_cell, line.names),
                    *_facts(sheet, line),
                    *scores,
                    *line.protocol,
                    markdown_cell(line.runs),
                ]
            )
        )
    notes = [f"- **bold**: {markdown_cell(MARK)}"] if sheet.has_best else []
    notes += [f"- {markdown_cell(note)}" for note in comparison.notes]
    parts = [
        *([f"### {markdown_cell(comparison.title)}"] if comparison.title else []),
        *([f"    {one_line(comparison.command)}"] if comparison.command else []),
        "\n".join(lines),
        *(["\n".join(notes)] if notes else []),
    ]
    return "\n\n".join(parts) + "\n"


def _headings(sheet: Sheet) -> list[str]:
    metrics = [f"{name} {arrow}".rstrip() for name, arrow in zip(sheet.metrics, sheet.arrows, strict=True)]
    facts = ["parameters"] * sheet.has_parameters + ["s per step"] * sheet.has_seconds
    return [*sheet.names, *facts, *metrics, *sheet.protocol, sheet.runs]


def _facts(sheet: Sheet, line: Line) -> list[str]:
    return [line.parameters] * sheet.has_parameters + [line.seconds] * sheet.has_seconds


def _score(score: Score) -> str:
    return f"{score.mean} ± {score.spread}" if score.spread else score.mean


def _joined(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def to_latex(comparison: Comparison) -> str:
    """A `tabular` for the package booktabs, baselines first and in italics, the best mean in bold."""
    sheet = make_sheet(comparison)
    headings = [latex_text(heading) for heading in _headings(sheet)]
    count = len(sheet.names)
    blank = [""] * (count - 1 + sheet.has_parameters + sheet.has_seconds)
    after = [""] * (len(sheet.protocol) + 1)
    baselines = [
        [
            rf"\textit{{{latex_text(baseline.name)}}}",
            *blank,
            *(_number(score.mean) for score in baseline.scores),
            *after,
        ]
        for baseline in sheet.baselines
    ]
    lines = [
        [
            *map(latex_text, line.names),
            *_facts(sheet, line),
            *map(_latex_score, line.scores),
            *map(_number, line.protocol),
            latex_text(line.runs),
        ]
        for line in sheet.lines
    ]
    remarks = [comparison.title, comparison.command, *([f"bold: {MARK}"] if sheet.has_best else []), *comparison.notes]
    body = [
        *(f"% {one_line(remark)}" for remark in remarks if remark),
        rf"\begin{{tabular}}{{{'l' * count}{'r' * (len(headings) - count)}}}",
        r"\toprule",
        _ended(headings),
        r"\midrule",
        *map(_ended, baselines),
        *([r"\midrule"] if baselines else []),
        *map(_ended, lines),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(body) + "\n"


def _number(text: str) -> str:
    # in text a minus would be a hyphen
    return f"$-${latex_text(text[1:])}" if text.startswith("-") else latex_text(text)


def _latex_score(score: Score) -> str:
    mean = rf"\textbf{{{_number(score.mean)}}}" if score.is_best else _number(score.mean)
    return rf"{mean} $\pm$ {_number(score.spread)}" if score.spread else mean


def _ended(cells: Sequence[str]) -> str:
    return f"{' & '.join(cells)} \\\\"
