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

    A subclass takes `dim`, the width of an update (of one head), as its first argument and has a default for every
    other.
    """

    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim

    @abstractmethod
    def forward(
        self, assignment: Float[Tensor, "*batch slots tokens"], values: Float[Tensor, "*#batch tokens dim"]
    ) -> Float[Tensor, "*batch slots dim"]:
        """One update per slot; `assignment` sums to 1 over the slots (of all heads, where these compete) for a token.

        It is zero in all slots for a token that a step may not see. Leading axes of `values` of length one are shared.
        """


class StagedAggregation(Aggregation):
    """An aggregation whose scale depends on the updates of all slots, steps and clips at once.

    Inverted attention gathers chunk by chunk of the steps, and calls `rescale` once with all that was gathered.
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
    """Sums over the tokens that a slot may see, in float32 at least: values by weight, weights, and their number."""

    values: Float[Tensor, "*batch slots dim"]
    mass: Float[Tensor, "*batch slots 1"]
    num_tokens: Float[Tensor, "*#batch 1 1"]


class SummedAggregation(Aggregation):
    """An aggregation that needs sums over the tokens alone: attention sums tokens, and maps the sums to values.

    A subclass writes `from_sums` in the place of `forward`.
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
    """Sum of the values by share, in float32 at least, under autocast too."""
    # the sum over 16,384 tokens of size 4 is above the largest number of float16
    dtype = torch.promote_types(torch.promote_types(assignment.dtype, values.dtype), torch.float32)
    with torch.autocast(values.device.type, enabled=False):
        return torch.einsum("...st,...td->...sd", assignment.to(dtype), values.to(dtype))


def visible_tokens(assignment: Float[Tensor, "*batch slots tokens"]) -> Bool[Tensor, "*batch tokens"]:
    """The tokens that were there to be won: those that any slot has a share of. Hidden ones have been set to zero."""
    return assignment.detach().amax(dim=-2) > 0
