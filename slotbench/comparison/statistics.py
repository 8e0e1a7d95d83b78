"""Statistics over the few numbers that seeds give: mean, spread, interval, and tests of differences."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from slotbench.comparison.records import Cell

__all__ = ["INTERVAL", "LEVEL", "apart", "is_best", "summarise", "t_quantile", "welch"]

INTERVAL = "95 % interval (t)"
"""What the interval is called where people read."""

LEVEL = 0.05
"""How often an interval misses, and a difference is seen where there is none."""


def summarise(values: Sequence[float]) -> Cell:
    """Mean, standard deviation with n - 1, and Student's 95 % interval of the mean: mean ± t(0.975, n - 1) std / √n.

    For numbers from a normal distribution it holds the true mean in 95 of 100 tables at any n of two or more; at two it
    is nine standard deviations to either side. A single number has none.

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
        # one run without a number makes the mean meaningless, and the table should say so
        return Cell(tuple(values), math.nan, math.nan, math.nan, math.nan)
    with np.errstate(over="ignore", invalid="ignore"):
        mean, std = float(array.mean()), float(array.std(ddof=1))
    if not math.isfinite(mean) or not math.isfinite(std):
        return Cell(tuple(values), mean, math.nan, math.nan, math.nan)
    half = t_quantile(1 - LEVEL / 2, len(array) - 1) * std / math.sqrt(len(array))
    return Cell(tuple(values), mean, std, mean - half, mean + half)


def t_quantile(probability: float, freedom: int) -> float:
    """The quantile of Student's t distribution, scipy.stats.t.ppf without a second of imports."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, probability))


def welch(first: Sequence[float], second: Sequence[float]) -> float:
    """Two-sided p value of Welch's t-test, which does not suppose equal variances.

    Args:
        first: at least two numbers.
        second: at least two numbers.
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        variances = float(a.var(ddof=1)) / len(a), float(b.var(ddof=1)) / len(b)
        difference = abs(float(a.mean()) - float(b.mean()))
    if not math.isfinite(sum(variances)):
        return 1.0
    if sum(variances) == 0.0:
        return 0.0 if difference else 1.0
    from scipy.special import stdtr

    # of shares, as squares of the variances may be no numbers any more
    one, two = variances[0] / sum(variances), variances[1] / sum(variances)
    freedom = 1 / (one**2 / (len(a) - 1) + two**2 / (len(b) - 1))
    return float(2 * stdtr(freedom, -difference / math.sqrt(sum(variances))))


def is_best(best: Cell, others: Sequence[Cell]) -> bool:
    """Whether a cell is apart from every other one: Welch's t-tests, two-sided, with Bonferroni's correction.

    False where there is no other cell, or where one of them, or this one, is of a single run: no test applies then.
    """
    cells = [best, *others]
    if not others or min(len(cell.values) for cell in cells) < 2:
        return False
    return all(welch(best.values, other.values) < LEVEL / len(others) for other in others)


def apart(first: Cell, second: Cell, level: float) -> bool:
    """Whether two means differ by Student's two-sided t-test with the pooled variance; False where none has a spread.

    Needs mean, standard deviation and number only, not the values, and serves where one of the two is a single run.

    Args:
        first: a cell.
        second: another one.
        level: how often a difference may be seen where there is none.
    """
    spreads = [(len(cell.values) - 1, cell.std) for cell in (first, second) if cell.std is not None]
    freedom = sum(count for count, _ in spreads)
    if not freedom:
        return False
    pooled = math.sqrt(sum(count * std**2 for count, std in spreads) / freedom)
    error = pooled * math.sqrt(1 / len(first.values) + 1 / len(second.values))
    return abs(first.mean - second.mean) > t_quantile(1 - level / 2, freedom) * error
