"""Aggregations: how inverted attention turns who has won which token into updates of the slots."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, TypeGuard

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

__all__ = [
    "Aggregation",
    "StagedAggregation",
    "SummedAggregation",
    "TokenSums",
    "gather_values",
    "sums_suffice",
    "visible_tokens",
]


class Aggregation(nn.Module, ABC):
    """How inverted attention turns (assignment of tokens to slots, values) into one update per slot.

    A subclass takes `dim` as its first argument and gives every other one a default. One that must see the updates of
    all slots and steps before it knows their scale is a `StagedAggregation`.

    Args:
        dim: width of a value and of an update; with several heads, that of one head.
    """

    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim

    @abstractmethod
    def forward(
        self, assignment: Float[Tensor, "*batch slots tokens"], values: Float[Tensor, "*#batch tokens dim"]
    ) -> Float[Tensor, "*batch slots dim"]:
        """`assignment` sums to 1 over the slots (of all heads, where heads compete) for each token.

        A token that a step may not see has a share of zero in all of them. Leading axes of `values` of length one are
        shared by all that `assignment` has there.
        """


class StagedAggregation(Aggregation):
    """An aggregation whose scale depends on the updates of all slots, steps and clips at once.

    Inverted attention goes through the steps in chunks, whose weights it may compute a second time in the backward
    pass. It therefore gathers chunk by chunk, and calls `rescale` once with all that was gathered.
    """

    def forward(
        self, assignment: Float[Tensor, "*batch slots tokens"], values: Float[Tensor, "*#batch tokens dim"]
    ) -> Float[Tensor, "*batch slots dim"]:
        """A first iteration, and the only one."""
        return self.rescale(self.gather(assignment, values))[0].to(values.dtype)

    @abstractmethod
    def gather(
        self, assignment: Float[Tensor, "*batch slots tokens"], values: Float[Tensor, "*#batch tokens dim"]
    ) -> Float[Tensor, "*batch slots dim"]:
        """What each slot has won, before the scale is known. Changes nothing on the module."""

    @abstractmethod
    def rescale(
        self, gathered: Float[Tensor, "batch *others dim"], statistics: Any = None
    ) -> tuple[Float[Tensor, "batch *others dim"], Any]:
        """(updates, statistics to continue with): with `statistics` None they are taken from `gathered`."""


class TokenSums(NamedTuple):
    """What each slot has won of the tokens that it may see, summed over tokens, in float32 at least.

    Attributes:
        values: sum of the values by weight; the weight is the share, plus `SummedAggregation.share_offset`.
        mass: sum of the weights.
        num_tokens: that are visible.
    """

    values: Float[Tensor, "*batch slots dim"]
    mass: Float[Tensor, "*batch slots 1"]
    num_tokens: Float[Tensor, "*#batch 1 1"]


class SummedAggregation(Aggregation):
    """An aggregation that needs sums over the tokens and nothing else of them.

    Such sums are linear in the values. Attention can thus sum the tokens, which are many, and map the sums, which are
    few, to values: `from_sums` never learns which. A subclass writes `from_sums` in the place of `forward`.
    """

    share_offset: float = 0.0
    """Added to the share of a slot in every token that it may see, before anything is summed."""

    @abstractmethod
    def from_sums(self, sums: TokenSums) -> Float[Tensor, "*batch slots dim"]:
        """One update per slot, of the precision of the sums."""

    def sums(
        self,
        assignment: Float[Tensor, "*batch slots tokens"],
        values: Float[Tensor, "*#batch tokens dim"],
        num_tokens: Float[Tensor, "*#batch 1 1"] | None = None,
    ) -> TokenSums:
        """The sums over tokens, where there are values of them; `num_tokens` is looked up in `assignment` if None."""
        weights = assignment.to(torch.promote_types(assignment.dtype, torch.float32))
        if self.share_offset or num_tokens is None:
            seen = visible_tokens(assignment)[..., None, :].to(weights.dtype)
            weights = weights + self.share_offset * seen if self.share_offset else weights
            num_tokens = seen.sum(dim=-1, keepdim=True)
        return TokenSums(gather_values(weights, values), weights.sum(dim=-1, keepdim=True), num_tokens)

    def forward(
        self, assignment: Float[Tensor, "*batch slots tokens"], values: Float[Tensor, "*#batch tokens dim"]
    ) -> Float[Tensor, "*batch slots dim"]:
        """One update per slot; leading axes of `values` of length one are shared, without a copy."""
        return self.from_sums(self.sums(assignment, values)).to(values.dtype)


def sums_suffice(aggregation: Aggregation) -> TypeGuard[SummedAggregation]:
    """Whether `from_sums` is what the aggregation computes: no subclass has replaced what is written around it."""
    for part in type(aggregation).__mro__:
        if "from_sums" in vars(part):
            return issubclass(part, SummedAggregation)
        if {"forward", "gather", "sums"} & set(vars(part)):
            return False
    return False


def gather_values(
    assignment: Float[Tensor, "*batch slots tokens"], values: Float[Tensor, "*#batch tokens dim"]
) -> Float[Tensor, "*batch slots dim"]:
    """Sum of the values by share, in float32 at least, under autocast too.

    The sum over 16,384 tokens of size 4 is above the largest number of float16, and three digits of bfloat16 are few
    for statistics.

    Args:
        assignment: share of each slot in each token.
        values: leading axes of length one are shared by all that `assignment` has there, without a copy.
    """
    dtype = torch.promote_types(torch.promote_types(assignment.dtype, values.dtype), torch.float32)
    with torch.autocast(values.device.type, enabled=False):
        return torch.einsum("...st,...td->...sd", assignment.to(dtype), values.to(dtype))


def visible_tokens(assignment: Float[Tensor, "*batch slots tokens"]) -> Bool[Tensor, "*batch tokens"]:
    """The tokens that were there to be won: those that any slot has a share of. Hidden ones have been set to zero."""
    return assignment.detach().amax(dim=-2) > 0
