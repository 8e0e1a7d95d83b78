"""Entropy of choices: how evenly they are spread over the alternatives."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from slotbench.metrics.distinct import DistinctMetric

__all__ = ["ChoiceUsage", "usage_entropy"]


def usage_entropy(chosen: Float[Tensor, "*others choices"]) -> Float[Tensor, ""]:
    """Entropy of how often each choice is made, in units of its largest value: 0 if always the same, 1 if uniform.

    For `CoreOutput.details["schemata"]`: a core of which one schema takes everything has 0. It does not depend on which
    slot chooses what: 1 may mean that every slot changes its schema, or that each keeps one of its own.
    """
    choices = chosen.shape[-1]
    if choices < 1 or chosen.numel() == 0:
        raise ValueError(f"usage_entropy of a tensor of shape {tuple(chosen.shape)}: give choices in the last axis")
    if choices == 1:
        return chosen.new_zeros(())
    usage = chosen.flatten(0, -2).double().mean(dim=0)
    return (-torch.special.xlogy(usage, usage).sum() / math.log(choices)).to(chosen.dtype)


class ChoiceUsage(DistinctMetric):
    """`usage_entropy` over all batches of an evaluation, and over all processes.

    Example:
        >>> usage = ChoiceUsage()
        >>> usage.update(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
        >>> usage.update(torch.tensor([[0.0, 1.0], [0.0, 1.0]]))
        >>> usage.compute()
        tensor(1.)
    """

    full_state_update = False
    usage: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("usage", torch.zeros(0, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, chosen: Float[Tensor, "*others choices"]) -> None:
        """Adds choices."""
        found = chosen.detach().flatten(0, -2).double().sum(dim=0)
        self.usage = self.usage + found if len(self.usage) else found

    def compute(self) -> Float[Tensor, ""]:
        """0 if all choices are the same, 1 if all are equally frequent."""
        return usage_entropy((self.usage / self.usage.sum())[None]).float()
