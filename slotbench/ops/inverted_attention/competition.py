"""Which slots compete for a token, and which tokens a step reads."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

__all__ = ["Competition"]


class Competition(NamedTuple):
    """Who competes for which token.

    Attributes:
        across_heads: the slots of all heads compete with one another; otherwise those of each head.
        causal: a slot reads no later step.
        window: steps that a slot reads, its own included; None for no limit.
        past: steps of tokens before the first step of slots.
    """

    across_heads: bool
    causal: bool = False
    window: int | None = None
    past: int = 0

    @property
    def unseen(self) -> int:
        """The first steps of tokens, which no slot reads."""
        return 0 if self.window is None else max(0, self.past - self.window + 1)

    def readers(self, begin: int, end: int, time: int) -> tuple[int, int]:
        """The steps of slots, from and to, among which are all that read any of the tokens of steps begin to end."""
        if not self.causal:
            return 0, time
        last = time if self.window is None else min(time, end - 1 + self.window - self.past)
        return max(0, begin - self.past), last

    def hidden(self, steps: slice, readers: slice, device: torch.device) -> Bool[Tensor, "time steps"] | None:
        """True where a step of slots does not read a step of tokens; None where all read all."""
        early, late = readers.start + self.past, readers.stop - 1 + self.past
        reaches = self.window is None or late - steps.start < self.window
        if not self.causal or (early >= steps.stop - 1 and reaches):
            return None
        rows = torch.arange(early, late + 1, device=device)[:, None]
        offsets = torch.arange(steps.start, steps.stop, device=device) - rows
        return offsets > 0 if self.window is None else (offsets > 0) | (offsets <= -self.window)

    def offsets(self, time: int, steps: int, device: torch.device) -> Integer[Tensor, "time steps"]:
        """Step of the token less step of the slot; those of what is hidden are made those of what is not."""
        offsets = torch.arange(steps, device=device) - torch.arange(self.past, self.past + time, device=device)[:, None]
        if not self.causal:
            return offsets
        return offsets.clamp(None if self.window is None else 1 - self.window, 0)

    def num_visible(self, readers: slice, tokens: tuple[int, int], like: Tensor) -> Float[Tensor, "1 1 readers 1 1"]:
        """Tokens that each step of slots reads, of (steps, tokens of a step); one number where all read all."""
        steps, num_tokens = tokens
        if not self.causal or steps == 1:
            return like.new_full((1, 1, 1, 1, 1), steps * num_tokens)
        first, last = self.past + readers.start + 1, self.past + readers.stop + 1
        counts = num_tokens * torch.arange(first, last, device=like.device, dtype=like.dtype)
        counts = counts if self.window is None else counts.clamp(max=self.window * num_tokens)
        return counts.view(1, 1, -1, 1, 1)
