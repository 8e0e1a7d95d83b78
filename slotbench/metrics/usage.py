"""How evenly choices are spread over what there is to choose from."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["usage_entropy"]


def usage_entropy(chosen: Float[Tensor, "*others choices"]) -> Float[Tensor, ""]:
    """Entropy of how often each choice is made, in units of its largest value: 0 if always the same, 1 if all alike.

    For `CoreOutput.details["schemata"]`: a core of which one schema takes everything has 0. It says nothing about who
    chooses what: 1 may mean that every slot changes its schema, or that each keeps one of its own.

    Args:
        chosen: one-hot, or shares that sum to 1 over the last axis.

    Raises:
        ValueError: there is nothing to choose from, or nobody has chosen.
    """
    choices = chosen.shape[-1]
    if choices < 1 or chosen.numel() == 0:
        raise ValueError(f"usage_entropy of a tensor of shape {tuple(chosen.shape)}: give choices in the last axis")
    if choices == 1:
        return chosen.new_zeros(())
    usage = chosen.flatten(0, -2).double().mean(dim=0)
    return (-torch.special.xlogy(usage, usage).sum() / math.log(choices)).to(chosen.dtype)
