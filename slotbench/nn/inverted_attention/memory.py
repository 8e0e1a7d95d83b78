"""What inverted attention keeps of frames: tokens, keys and values, or sums over the tokens of each step."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["KeyValueMemory", "Memory", "StepSums", "TokenMemory"]


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


Memory = TokenMemory | KeyValueMemory


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
            earlier: what the call before has left.
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
