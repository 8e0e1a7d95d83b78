"""A part of the runs: those with the settings that are named."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

from slotbench.comparison.records import ComparisonError, RunRecord
from slotbench.comparison.settings import plain_value, resolve_key, values_of
from slotbench.errors import listing

__all__ = ["logged_metrics", "only_runs"]


def only_runs(runs: Sequence[RunRecord], wanted: Sequence[str]) -> tuple[Sequence[RunRecord], list[str]]:
    """The runs that have the wanted settings, and a note that says how many there are besides.

    Args:
        runs: any.
        wanted: "KEY=VALUE", the key by its name or the end of it, the value a pattern (`*`, `?`). Of one key any of
            the values may hold, of different keys all must.

    Raises:
        ComparisonError: there is no "=", several settings end like the key, or no run is left.
        UnknownNameError: no run has the setting.
    """
    if not wanted:
        return runs, []
    values: dict[str, set[str]] = {}
    for word in wanted:
        given, sign, value = word.partition("=")
        if not (given and sign):
            raise ComparisonError(f"--only {word!r}: expected KEY=VALUE, such as data.level=a")
        values.setdefault(resolve_key(given, runs), set()).add(value)
    left = runs
    for key, chosen in values.items():
        left = [run for run in left if _is_one_of(plain_value(run.settings.get(key)), chosen)]
    if not left:
        settings = [run.settings for run in runs if run.settings]
        there = "; ".join(f"{key}: {listing(values_of(key, settings), 8)}" for key in values)
        raise ComparisonError(f"no run has {' and '.join(wanted)}; they have {there}")
    return left, [f"{len(left)} of {len(runs)} runs: those with {', '.join(wanted)}"]


def _is_one_of(value: str, patterns: set[str]) -> bool:
    # a list, such as [3, 6], is a pattern of other words
    return value in patterns or any(fnmatch.fnmatchcase(value, pattern) for pattern in patterns)


def logged_metrics(metrics: Sequence[str], runs: Sequence[RunRecord]) -> list[str]:
    """Those of the metrics, names or patterns with `*`, that at least one of the runs has logged."""
    logged = {name for run in runs for name in run.summary}
    return [metric for metric in metrics if fnmatch.filter(logged, metric) or fnmatch.filter(logged, f"val/{metric}")]
