"""What inverted attention reads and keeps: its linear maps, tokens or keys and values of frames, sums over steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["AttentionMaps", "FrameMemory", "KeyValueMemory", "Memory", "StepSums", "TokenMemory"]


class AttentionMaps(NamedTuple):
    """The linear maps of inverted attention, and who competes with whom.

    Attributes:
        query: of slots.
        key_value: of tokens: the keys of all heads, then their values.
        num_heads: heads, which divide the width of a slot.
        across_heads: the slots of all heads compete with one another; otherwise those of each head on their own.
    """

    query: nn.Linear
    key_value: nn.Linear
    num_heads: int = 1
    across_heads: bool = True

    def keys_and_values(self, memory: TokenMemory) -> KeyValueMemory:
        """Keys and values of every token, with the norm that the tokens lack."""
        tokens, norm = memory
        if norm is None:
            pairs = self.key_value(tokens)
        else:  # in the map, because the tokens are many
            weight, bias = self.key_value.weight, self.key_value.bias
            shift = weight @ norm.bias if bias is None else torch.addmv(bias, weight, norm.bias)
            pairs = nn.functional.linear(tokens, weight * norm.weight, shift)
        pattern = "batch time tokens (part heads dim) -> part batch heads time tokens dim"
        return KeyValueMemory(*rearrange(pairs, pattern, part=2, heads=self.num_heads))

    def queries(self, slots: Float[Tensor, "batch time slots dim"]) -> Float[Tensor, "batch heads time slots head_dim"]:
        """Queries of the slots, scaled by one over the root of the width of a head."""
        pattern = "batch time slots (heads dim) -> batch heads time slots dim"
        query = rearrange(self.query(slots), pattern, heads=self.num_heads)
        return query * query.shape[-1] ** -0.5


class TokenMemory(NamedTuple):
    """The tokens of every step that slots may read, oldest first: keys and values of no head are made of them.

    Attributes:
        tokens: as they were given.
        norm: the LayerNorm whose weight and bias they have not got yet; None for nothing. So layers that normalise the
            same tokens share them.
    """

    tokens: Float[Tensor, "batch time tokens token_dim"]
    norm: nn.LayerNorm | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Steps, and tokens of a step."""
        return self.tokens.shape[1], self.tokens.shape[2]

    def after(self, earlier: TokenMemory | None) -> TokenMemory:
        """These steps preceded by those of an earlier call."""
        if earlier is None:
            return self
        return self._replace(tokens=torch.cat([earlier.tokens.to(self.tokens.dtype), self.tokens], dim=1))

    def last(self, steps: int) -> TokenMemory:
        """The last `steps` steps, or all if there are fewer."""
        # contiguous, because a view would keep alive all that it was cut from
        return self._replace(tokens=self.tokens[:, max(0, self.size[0] - steps) :].contiguous())

    def frames(self) -> Iterator[TokenMemory]:
        """Each step on its own."""
        return (TokenMemory(step, self.norm) for step in self.tokens.split(1, dim=1))


class KeyValueMemory(NamedTuple):
    """Keys and values of the tokens of every step that slots may read, oldest first."""

    key: Float[Tensor, "batch heads time tokens head_dim"]
    value: Float[Tensor, "batch heads time tokens head_dim"]

    @property
    def size(self) -> tuple[int, int]:
        """Steps, and tokens of a step."""
        return self.key.shape[2], self.key.shape[3]

    def after(self, earlier: KeyValueMemory | None) -> KeyValueMemory:
        """These steps preceded by those of an earlier call."""
        if earlier is None:
            return self
        pairs = zip(earlier, self, strict=True)
        return KeyValueMemory(*(torch.cat([before.to(leaf.dtype), leaf], dim=2) for before, leaf in pairs))

    def last(self, steps: int) -> KeyValueMemory:
        """The last `steps` steps, or all if there are fewer."""
        first = max(0, self.size[0] - steps)
        return KeyValueMemory(*(leaf[:, :, first:].contiguous() for leaf in self))

    def frames(self) -> Iterator[KeyValueMemory]:
        """Each step on its own."""
        steps = (leaf.split(1, dim=2) for leaf in self)
        return (KeyValueMemory(*leaves) for leaves in zip(*steps, strict=True))


class FrameMemory(NamedTuple):
    """One frame for the kernel "dense": its tokens, or keys and values of them, and the maps that remain.

    Attributes:
        key: what slots are compared with.
        value: what is summed.
        num_tokens: of the frame.
        query_map: of a slot, to what keys are multiplied with; holds the scale of the logits.
        value_map: of a sum of tokens, to the sum of their values; None where values are summed.
    """

    key: Float[Tensor, "batch key_dim tokens"]
    value: Float[Tensor, "batch tokens value_dim"]
    num_tokens: Float[Tensor, "1 1 1"]
    query_map: Float[Tensor, "dim key_dim"]
    value_map: Float[Tensor, "token_dim dim"] | None


Memory = TokenMemory | KeyValueMemory | FrameMemory


class StepSums(NamedTuple):
    """What the same slots have won of the tokens of each step, oldest first, or of all earlier steps together.

    Attributes:
        values: sum of the tokens by share.
        mass: sum of the shares.
        num_tokens: of the step.
    """

    values: Float[Tensor, "batch time heads slots token_dim"]
    mass: Float[Tensor, "batch time heads slots 1"]
    num_tokens: Float[Tensor, "batch time 1 1 1"]

    def so_far(self, earlier: StepSums | None, window: int | None) -> tuple[StepSums, StepSums]:
        """(sums over the steps that each step sees, what a later call needs of these and earlier ones).

        Args:
            earlier: kept by the previous call.
            window: steps that a step sees, its own included; None for no limit.
        """
        time = self.mass.shape[1]
        seen, kept = [], []
        for leaf, before in zip(self, earlier or [None] * len(self), strict=True):
            steps = leaf if before is None else torch.cat([before.to(leaf.dtype), leaf], dim=1)
            sums = steps.cumsum(dim=1) if window is None else _window_sums(steps, window)
            seen.append(sums[:, steps.shape[1] - time :])
            first = max(0, steps.shape[1] - window + 1) if window is not None else 0
            kept.append(sums[:, -1:].clone() if window is None else steps[:, first:].clone())
        return StepSums(*seen), StepSums(*kept)


def _window_sums(x: Float[Tensor, "batch time *rest"], window: int) -> Float[Tensor, "batch time *rest"]:
    """The sum of each step and the `window` - 1 before it, in a number of additions that does not grow with `window`.

    Steps are cut into blocks of `window`: what a step sees is the end of one block and the beginning of the next. The
    difference of two sums from the start would lose digits as the clip gets longer.
    """
    time = x.shape[1]
    if window >= time:
        return x.cumsum(dim=1)
    padded = torch.cat([x, x.new_zeros(x.shape[0], -time % window, *x.shape[2:])], dim=1).unflatten(1, (-1, window))
    beginnings = padded.cumsum(dim=2)
    ends = padded[:, :-1, 1:].flip(2).cumsum(dim=2).flip(2)
    sums = beginnings.clone()
    sums[:, 1:, :-1] += ends
    return sums.flatten(1, 2)[:, :time]
