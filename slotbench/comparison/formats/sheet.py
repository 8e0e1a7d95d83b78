"""A comparison as text in cells, the same for the terminal, Markdown and LaTeX."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from slotbench.comparison.records import Comparison, Metric, Row
from slotbench.comparison.settings import plain_value
from slotbench.comparison.statistics import INTERVAL
from slotbench.configurations import shortest_keys

__all__ = ["MARK", "Baseline", "Line", "Score", "Sheet", "make_sheet"]

MARK = "the best, and better than every other row of its column (Welch, two-sided; p < 0.05 after Bonferroni)"
_MOST_DECIMALS, _LARGEST = 6, 1e7


@dataclass(frozen=True)
class Score:
    """Mean and spread as text; the spread is empty for a single run, both are for a missing score."""

    mean: str = ""
    spread: str = ""
    is_best: bool = False


@dataclass(frozen=True)
class Line:
    """A row: a text for each key (or the label where there are no keys), the scores, what the protocol asks for."""

    names: list[str]
    parameters: str
    seconds: str
    scores: list[Score]
    runs: str
    protocol: tuple[str, ...] = ()


@dataclass(frozen=True)
class Baseline:
    """The scores of a baseline, or of an oracle, whose name says that it is one."""

    name: str
    scores: list[Score]


@dataclass(frozen=True)
class Sheet:
    """Headings and text.

    Attributes:
        names: headings of the keys.
        metrics: headings of the scores, without their arrows.
        arrows: "↑", "↓" or "" for each of them.
        baselines: above the lines; the oracles last.
        lines: the rows.
        runs: heading of the last column: "seeds", or "state" where every run has a row of its own.
        has_parameters: whether a row says them.
        has_seconds: whether a row says them.
        has_best: whether a score is marked.
        protocol: headings of what a grid's protocol asks for; none without one.
    """

    names: list[str]
    metrics: list[str]
    arrows: list[str]
    baselines: list[Baseline]
    lines: list[Line]
    runs: str
    has_parameters: bool
    has_seconds: bool
    has_best: bool
    protocol: tuple[str, ...] = ()


def make_sheet(comparison: Comparison) -> Sheet:
    """The comparison as text.

    A column has as many decimals as two significant digits of its typical spread ask for, or, without a spread, three
    significant digits of its typical value.
    """
    short = shortest_keys(comparison.keys)
    rows, metrics = comparison.rows, comparison.metrics
    # without a key that differs, or with runs that have no configuration, the label says what there is to say
    apart = "seed_everything" in comparison.keys and all(len(row.runs) == 1 for row in rows)
    by_label = not comparison.keys or any(not row.settings for row in rows)
    decimals = [_decimals(metric, rows) for metric in metrics]
    baselines = list(dict.fromkeys(name for metric in metrics for name in metric.baselines))
    oracles = list(dict.fromkeys(name for metric in metrics for name in metric.oracles))
    beside = [(name, [metric.baselines.get(name) for metric in metrics]) for name in baselines]
    beside += [(f"oracle: {name}", [metric.oracles.get(name) for metric in metrics]) for name in oracles]
    seconds = [row.seconds_per_step for row in rows if row.seconds_per_step]
    places = max(0, 2 - _exponent(statistics.median(seconds))) if seconds else 0
    lines = [
        Line(
            [row.label] if by_label else [plain_value(row.settings.get(key)) for key in comparison.keys],
            "" if row.parameters is None else f"{row.parameters:,}",
            "" if row.seconds_per_step is None else _text(row.seconds_per_step, places),
            [_score(row, metric, digits) for metric, digits in zip(metrics, decimals, strict=True)],
            row.runs[0].state if apart else _runs(row),
            _of_the_protocol(row, metrics, decimals) if comparison.has_protocol else (),
        )
        for row in rows
    ]
    return Sheet(
        names=["runs"] if by_label else [short[key] for key in comparison.keys],
        metrics=[metric.label for metric in metrics],
        arrows=[{True: "↑", False: "↓", None: ""}[metric.higher_is_better] for metric in metrics],
        baselines=[
            Baseline(
                name,
                [
                    Score("" if value is None else _text(value, digits))
                    for value, digits in zip(values, decimals, strict=True)
                ],
            )
            for name, values in beside
        ],
        lines=lines,
        runs="state" if apart else "seeds",
        has_parameters=any(line.parameters for line in lines),
        has_seconds=any(line.seconds for line in lines),
        has_best=any(score.is_best for line in lines for score in line.scores),
        protocol=(INTERVAL, "success", "steps", "minutes") if comparison.has_protocol else (),
    )


def _of_the_protocol(row: Row, metrics: Sequence[Metric], decimals: Sequence[int]) -> tuple[str, ...]:
    """Interval of the first score, success, and the budget of one run in steps and minutes."""
    cell = row.cells.get(metrics[0].name) if metrics else None
    interval = ""
    if cell is not None and cell.low is not None and cell.high is not None:
        interval = f"{_text(cell.low, decimals[0])} to {_text(cell.high, decimals[0])}"
    return (
        interval,
        "" if row.success is None else f"{row.success[0]}/{row.success[1]}",
        "" if row.steps is None else f"{row.steps:,}",
        "" if row.seconds is None else _text(row.seconds / 60, 0 if row.seconds >= 600 else 1),
    )


def _runs(row: Row) -> str:
    count = str(len(row.runs))
    if not row.unfinished:
        return count
    states = Counter(run.state for run in row.runs if run.state != "finished")
    return f"{count} ({', '.join(f'{number} {state}' for state, number in sorted(states.items()))})"


def _score(row: Row, metric: Metric, decimals: int) -> Score:
    cell = row.cells.get(metric.name)
    if cell is None:
        return Score()
    return Score(_text(cell.mean, decimals), "" if cell.std is None else _text(cell.std, decimals), cell.is_best)


def _decimals(metric: Metric, rows: Sequence[Row]) -> int:
    cells = [row.cells[metric.name] for row in rows if metric.name in row.cells]
    spreads = [cell.std for cell in cells if cell.std and math.isfinite(cell.std)]
    if spreads:
        return max(0, 1 - _exponent(statistics.median(spreads)))
    values = [abs(cell.mean) for cell in cells if cell.mean and math.isfinite(cell.mean)]
    return max(0, 2 - _exponent(statistics.median(values))) if values else 3


def _exponent(value: float) -> int:
    return math.floor(math.log10(value))


def _text(value: float, decimals: int) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("∞" if value > 0 else "-∞")
    if decimals > _MOST_DECIMALS or abs(value) >= _LARGEST:
        return f"{value:.1e}".replace("e+", "e") if value else "0"
    # a small negative number must not become -0.00
    return f"{round(value, decimals) + 0.0:.{decimals}f}"
