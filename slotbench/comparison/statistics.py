"""Mean, spread, interval and difference of the few numbers that seeds give."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from slotbench.comparison.records import Cell

__all__ = ["differ", "summarise", "welch"]

_RESAMPLES = 5000
_LEVEL = 0.05


def summarise(values: Sequence[float]) -> Cell:
    """Mean, standard deviation with n - 1, and the 95 % percentile bootstrap interval of the mean.

    The resamples are the same at every call, so that the same runs give the same table.

    Args:
        values: one per run, at least one.
    """
    array = np.asarray(values, dtype=np.float64)
    if len(array) < 2:
        return Cell(tuple(values), float(array[0]))
    if (array == array[0]).all():
        # rounding must not make a spread of 1e-17
        return Cell(tuple(values), float(array[0]), 0.0, float(array[0]), float(array[0]))
    if not np.isfinite(array).all():
        # one run that has diverged makes the mean meaningless, and the table should say so
        return Cell(tuple(values), math.nan, math.nan, math.nan, math.nan)
    means = array[_resamples(len(array))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return Cell(tuple(values), float(array.mean()), float(array.std(ddof=1)), float(low), float(high))


@lru_cache(maxsize=16)
def _resamples(size: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, size, (_RESAMPLES, size))


def welch(first: Sequence[float], second: Sequence[float]) -> float:
    """Two-sided p value of Welch's t-test, which does not suppose equal variances.

    Args:
        first: at least two numbers.
        second: at least two numbers.
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    variances = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    difference = float(abs(a.mean() - b.mean()))
    if sum(variances) == 0.0:
        return 0.0 if difference else 1.0
    from scipy.special import stdtr

    freedom = sum(variances) ** 2 / (variances[0] ** 2 / (len(a) - 1) + variances[1] ** 2 / (len(b) - 1))
    return float(2 * stdtr(freedom, -difference / math.sqrt(sum(variances))))


def differ(first: Cell, second: Cell) -> bool:
    """Whether two cells differ by more than their spread; False where one of them has a single run."""
    if min(len(first.values), len(second.values)) < 2:
        return False
    return welch(first.values, second.values) < _LEVEL
