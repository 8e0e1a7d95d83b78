"""Headlines as `run.json` holds them, beside baselines and oracles, which are given the simulator's own state."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from slotbench.io import numbers, real
from slotbench.metric_info import score_text

__all__ = ["ORACLE", "score_table", "split_references"]

ORACLE = "oracle (knows the simulator)"
"""What an oracle is called where people read."""


def split_references(headline: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, float]]:
    """The scores of baselines, and those of oracles, by name; what is no number is left out."""
    return _known(headline.get("baselines")), _known(headline.get("oracles"))


def _known(given: Any) -> dict[str, float]:
    return {name: value for name, value in numbers(given).items() if not math.isnan(value)}


def score_table(headlines: Sequence[Mapping[str, Any]], metrics: dict[str, Any]) -> Table:
    """A row per headline: its score, green if it beats every baseline, and beside it the baselines, best first.

    An oracle, which knows the simulator, has no part in the colour. A score that was not measured has no row, such as
    those of masks where the data has none, or is "unavailable" with what it needs.
    """
    table = Table(show_edge=False, pad_edge=False, header_style="dim", collapse_padding=True)
    table.add_column("score", min_width=12)
    table.add_column("this run", justify="right", no_wrap=True)
    table.add_column("baselines", no_wrap=True)
    table.add_column("", justify="right", no_wrap=True, min_width=6)
    for headline in headlines:
        value, higher = real(metrics.get(headline["metric"])), bool(headline.get("higher_is_better", True))
        baselines, oracles = split_references(headline)
        name = Text(headline.get("label") or headline["metric"])
        if note := headline.get("note"):
            name.append(f"\n  {note}", style="dim")
        if value is None:
            if needs := headline.get("needs"):
                table.add_row(name, Text("unavailable", style="dim"), Text(f"needs {needs}", style="dim"))
            continue
        beaten = all(value > other if higher else value < other for other in baselines.values())
        shown = Text(score_text(value), style="bold" if not baselines else "bold green" if beaten else "bold yellow")
        beside = [(Text(name), Text(score_text(score))) for name, score in _best_first(baselines, higher)]
        if oracles:
            beside.append((Text(ORACLE, style="dim"), Text()))
            for oracle, score in _best_first(oracles, higher):
                beside.append((Text(f"  {oracle}", style="dim"), Text(score_text(score), style="dim")))
        table.add_row(name, shown, *(Text("\n").join(part) for part in (zip(*beside, strict=True) if beside else ())))
    return table


def _best_first(scores: dict[str, float], higher: bool) -> list[tuple[str, float]]:
    return sorted(scores.items(), key=lambda score: score[1], reverse=higher)
