"""Whether a study stopped while its score still improved: what the last quarter of the training has gained."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np

from slotbench.comparison.records import Metric, Row, RunRecord

__all__ = ["SETTLED", "gain_of_last_quarter", "notes_on_last_quarter"]

SETTLED = 0.02
"""A training whose last quarter gains less has settled."""

_VALIDATIONS = 2000
_MANY = 6


def gain_of_last_quarter(run: RunRecord, metric: Metric) -> float | None:
    """How much better a score is at the end than after three quarters of the steps, as a share of the larger value.

    After three quarters it is read off the line between the validations before and after. An error that halves gains
    0.5, and so does an accuracy that doubles; what became worse gains less than nothing.

    Args:
        run: its curve is read.
        metric: a score whose direction is known.

    Returns:
        the share, at most 1 for scores of one sign; None where the run has no validation before the last quarter, or no
        finite number at its end.
    """
    steps, values = run.curves(_VALIDATIONS).get(metric.logged, (np.zeros(0), np.zeros(0)))
    if not len(steps) or not np.isfinite(values[-1]):
        return None
    finite = np.isfinite(values)
    # a step is counted from 0, and the one that was just done logged
    done, values = steps[finite] + 1, values[finite]
    middle = 0.75 * done[-1]
    if done[0] > middle:
        return None
    before, after = float(np.interp(middle, done, values)), float(values[-1])
    change = after - before if metric.higher_is_better else before - after
    return change / max(abs(before), abs(after)) if change else 0.0


def notes_on_last_quarter(rows: Sequence[Row], metric: Metric) -> list[str]:
    """Which rows still improved at the end of the training, by the median over their finished runs.

    Args:
        rows: of a grid.
        metric: its first column.

    Returns:
        one sentence; none where the direction of the metric is unknown, or no run has validations to tell.
    """
    if metric.higher_is_better is None or metric.rules:
        return []
    gains: dict[str, float] = {}
    for row in rows:
        finished = (run for run in row.runs if run.state == "finished")
        if found := [gain for run in finished if (gain := gain_of_last_quarter(run, metric)) is not None]:
            gains[row.label] = statistics.median(found)
    if not gains:
        return []
    rule = f"{100 * SETTLED:.0f} % or more of {metric.name} in the last quarter of training"
    improving = {label: f"{100 * gain:.0f} %" for label, gain in gains.items() if gain >= SETTLED}
    if not improving:
        return [f"no row gains {rule}"]
    if len(improving) == len(gains):
        least, most = (f"{100 * bound(gains.values()):.0f}" for bound in (min, max))
        shares = f"{least} to {most} %" if least != most else f"{least} %"
        return [f"still improving at the end: every row gains {rule}, {shares}"]
    # a label may have commas
    told = "; ".join(f"{label} ({share})" for label, share in list(improving.items())[:_MANY])
    more = f"; and {len(improving) - _MANY} more" if len(improving) > _MANY else ""
    verb = "gains" if len(improving) == 1 else "gain"
    return [f"still improving at the end: {len(improving)} of {len(gains)} rows {verb} {rule}: {told}{more}"]
