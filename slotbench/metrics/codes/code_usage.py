"""How discrete codes are used: their entropy alone and given the left neighbour, perplexity, and codes never used."""

from __future__ import annotations

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from slotbench.metric_info import MetricInfo
from slotbench.metrics.distinct import DistinctMetric

__all__ = ["CODE_USE", "MOST_PAIRED", "CodeUsage"]

MOST_PAIRED = 256
"""Codebooks up to this size have the entropy given the left neighbour; larger ones would need more pairs than there
are."""

CODE_USE = (
    MetricInfo("perplexity", "perplexity of the codes in use", True),
    MetricInfo("entropy", "entropy of single codes", unit="nats"),
    MetricInfo("entropy_given_left", "entropy given the left neighbour", unit="nats"),
    MetricInfo("dead_codes", "codes that no cell has", False),
)
"""How codes are used."""


class CodeUsage(DistinctMetric):
    """Counts of codes, and of pairs of neighbours in a row, over everything that all processes have seen.

    Entropies are in nats per code and those of the counts themselves, so that no predictor of the kind does better on
    the same codes. The one given the left neighbour is the mean over all codes, of which the first of each row is
    counted by itself; with few codes seen it is too low, as any count of many kinds is.

    Example:
        >>> usage = CodeUsage(4)
        >>> usage.update(torch.tensor([[[0, 1], [0, 1]]]))
        >>> usage.compute()["perplexity"]
        tensor(2., dtype=torch.float64)
    """

    higher_is_better = None
    is_differentiable = False
    full_state_update = False
    counts: Tensor
    first_counts: Tensor
    pair_counts: Tensor

    def __init__(self, num_codes: int) -> None:
        super().__init__()
        self.num_codes = num_codes
        paired = num_codes if num_codes <= MOST_PAIRED else 0
        self.add_state("counts", torch.zeros(num_codes, dtype=torch.long), dist_reduce_fx="sum")
        self.add_state("first_counts", torch.zeros(paired, dtype=torch.long), dist_reduce_fx="sum")
        self.add_state("pair_counts", torch.zeros(paired, paired, dtype=torch.long), dist_reduce_fx="sum")

    def update(self, codes: Integer[Tensor, "*batch rows cols"]) -> None:
        """Adds grids of codes."""
        self.counts += torch.bincount(codes.flatten(), minlength=self.num_codes)
        if self.pair_counts.numel():
            self.first_counts += torch.bincount(codes[..., 0].flatten(), minlength=self.num_codes)
            pairs = codes[..., :-1] * self.num_codes + codes[..., 1:]
            self.pair_counts += torch.bincount(pairs.flatten(), minlength=self.num_codes**2).view_as(self.pair_counts)

    def compute(self) -> dict[str, Float[Tensor, ""]]:
        """`entropy`, `perplexity`, `dead_codes`, and for small codebooks `entropy_given_left`; nan before any code."""
        entropy = _entropy(self.counts)
        found = {"entropy": entropy, "perplexity": entropy.exp(), "dead_codes": (self.counts == 0).double().sum()}
        if self.pair_counts.numel():
            inner = self.pair_counts.sum(1)
            # of (left, code), less that of left: both in nats of all pairs
            spent = inner.sum() * (_entropy(self.pair_counts.flatten()) - _entropy(inner)).nan_to_num()
            spent = spent + self.first_counts.sum() * _entropy(self.first_counts)
            found["entropy_given_left"] = spent / self.counts.sum()
        return found


def _entropy(counts: Integer[Tensor, " kinds"]) -> Float[Tensor, ""]:
    shares = counts.double() / counts.sum()
    return -torch.xlogy(shares, shares).sum()
