"""Which of a run's values count: the newest, or those of its best validation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slotbench.comparison.records import ComparisonError, Metric, RunRecord

__all__ = ["scores"]

# validations beyond these are thinned out
_VALIDATIONS = 2000


def scores(run: RunRecord, columns: Sequence[Metric], select: str) -> dict[str, float]:
    """A run's values of the columns, as far as it has them.

    With "best" they are all of one moment: the validation at which the first column was best, as if its checkpoint had
    been kept. Each column's own best would be a run that there never was.

    Args:
        run: any.
        columns: the first one selects.
        select: "last" or "best".

    Raises:
        ComparisonError: "best", and nobody knows which direction of the first column is better.
    """
    names = [metric.name for metric in columns]
    if select == "last" or not columns:
        return {name: run.summary[name] for name in names if name in run.summary}
    if columns[0].higher_is_better is None:
        raise ComparisonError(
            f"the best validation by {names[0]} is not known: nothing says whether higher is better; "
            "put another metric first with --sort"
        )
    curves = run.curves(_VALIDATIONS)
    steps, values = curves.get(names[0], (np.zeros(0), np.zeros(0)))
    finite = np.isfinite(values)
    if not finite.any():
        return {}
    steps, values = steps[finite], values[finite]
    # the first of equals: the run was that good at that step already
    at = steps[np.argmax(values) if columns[0].higher_is_better else np.argmin(values)]
    found = {}
    for name in names:
        steps, values = curves.get(name, (np.zeros(0), np.zeros(0)))
        place = int(np.searchsorted(steps, at, side="right")) - 1
        if place >= 0:
            found[name] = float(values[place])
    return found
