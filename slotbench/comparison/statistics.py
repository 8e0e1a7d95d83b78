"""Statistics over the few numbers that seeds give: spread, interval, tests of differences."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd

__all__ = ["LEVEL", "best_of", "holm", "interval", "welch"]

LEVEL = 0.05
"""How often an interval misses, and a difference is seen where there is none."""


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Student's 95 % interval of the mean: mean ± t(0.975, n - 1) std / √n; NaN for a single number."""
    from scipy.special import stdtrit

    array = np.asarray(values, dtype=float)
    if len(array) < 2:
        return math.nan, math.nan
    half = stdtrit(len(array) - 1, 1 - LEVEL / 2) * array.std(ddof=1) / math.sqrt(len(array))
    return float(array.mean() - half), float(array.mean() + half)


def welch(first: Sequence[float], second: Sequence[float]) -> float:
    """Two-sided p value of Welch's t-test; 1 where a number is not finite."""
    from scipy.stats import ttest_ind

    if not np.isfinite([*first, *second]).all():
        return 1.0
    if len({*first}) == len({*second}) == 1:
        return float(first[0] == second[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a score that is the same in every run
        return float(ttest_ind(first, second, equal_var=False).pvalue)


def best_of(columns: Sequence[Sequence[float]], higher: bool) -> int | None:
    """The place of the best group of scores, if it is apart from every other one.

    Welch's t-tests, two-sided, p < 0.05 divided by the number of other groups (Bonferroni); None where a group is of a
    single number, or there is no other.

    Args:
        columns: the scores of each row; rows without any are passed over.
        higher: higher is better.
    """
    means = {place: float(np.mean(values)) for place, values in enumerate(columns) if len(values)}
    means = {place: mean for place, mean in means.items() if not math.isnan(mean)}
    if len(means) < 2:
        return None
    best = (max if higher else min)(means, key=means.__getitem__)
    others = [columns[place] for place in means if place != best]
    if min(map(len, [columns[best], *others])) < 2:
        return None
    return best if all(welch(columns[best], other) < LEVEL / len(others) for other in others) else None


def holm(p_values: pd.Series) -> pd.Series:
    """Holm's correction: the smallest times n, the next times n - 1, ..., none below one before it, none above 1."""
    ordered = p_values.sort_values(kind="stable")
    corrected = ordered * np.arange(len(ordered), 0, -1)
    return corrected.cummax().clip(upper=1.0).reindex(p_values.index)
