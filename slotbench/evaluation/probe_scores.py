"""How much of a factor a head has read, beside what is right without looking at the slot."""

from __future__ import annotations

import math

from jaxtyping import Float, Integer
from torch import Tensor

__all__ = ["accuracy", "coefficient_of_determination", "mean_baseline", "prior_baseline"]


def accuracy(predicted: Integer[Tensor, " rows"], true: Integer[Tensor, " rows"]) -> float:
    """Share of the rows whose class is right; nan without rows.

    Example:
        >>> import torch
        >>> accuracy(torch.tensor([0, 1, 2, 2]), torch.tensor([0, 1, 1, 2]))
        0.75
    """
    return float((predicted == true).double().mean())


def coefficient_of_determination(
    predicted: Float[Tensor, "rows coordinates"], true: Float[Tensor, "rows coordinates"]
) -> float:
    """R^2 = 1 - SSE / SST of each coordinate, averaged over those that vary; nan if none does.

    SST is about the mean of the rows that are scored, so a prediction without a clue scores 0 at best, and one that
    is worse than this mean is negative.

    Example:
        >>> import torch
        >>> true = torch.tensor([[0.0, 5.0], [1.0, 5.0], [2.0, 5.0]])
        >>> coefficient_of_determination(torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]]), true)
        0.5
    """
    predicted, true = predicted.double(), true.double()
    total = (true - true.mean(0)).square().sum(0)
    # what rounding leaves of equal float32 numbers is no variation
    varies = total > 1e-12 * true.square().sum(0)
    if not varies.any():
        return math.nan
    return float((1 - (true - predicted).square().sum(0)[varies] / total[varies]).mean())


def prior_baseline(fitted: Integer[Tensor, " fitted"], true: Integer[Tensor, " rows"]) -> float:
    """Accuracy on `true` of always naming the class that is most frequent among `fitted`."""
    return accuracy(fitted.mode().values.expand(len(true)), true)


def mean_baseline(fitted: Float[Tensor, "fitted coordinates"], true: Float[Tensor, "rows coordinates"]) -> float:
    """R^2 on `true` of always naming the mean of `fitted`: 0, or a little less where the two sets differ."""
    return coefficient_of_determination(fitted.double().mean(0).expand_as(true), true)
