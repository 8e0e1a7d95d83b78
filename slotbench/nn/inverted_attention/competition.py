"""Slots compete for tokens: who reads which, and the readable reference, whose weights are all there at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Integer
from torch import Tensor
from torch.utils.checkpoint import checkpoint

__all__ = ["Competition", "compete"]

WEIGHTS_AT_ONCE = 2**22
"""Attention weights that are held at a time (16 MiB in single precision); steps that need more go in chunks."""


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


def compete(
    gather: Callable[[Tensor, Tensor, Tensor], Tensor],
    query: Float[Tensor, "batch heads time slots dim"],
    query_bias: Float[Tensor, "batch heads time slots 1"] | None,
    key: Float[Tensor, "batch key_heads steps tokens dim"],
    value: Float[Tensor, "batch key_heads steps tokens value_dim"],
    time_bias: Float[Tensor, "heads time steps"] | None,
    competition: Competition,
) -> tuple[Float[Tensor, "batch heads time slots gathered"], Float[Tensor, "batch time slots tokens"]]:
    """(what `gather` makes of weights and values, share of each slot in each token of its own step).

    Steps of slots go in chunks that hold at most `WEIGHTS_AT_ONCE` weights. The backward pass computes the weights of a
    chunk anew, where there is more than one; the result is the same.

    Args:
        gather: of (assignment "batch heads time slots tokens", the tokens of all steps in a row and zero where a slot
            may not look; values "batch heads 1 tokens value_dim"; number of visible tokens "1 1 time 1 1").
        query: scaled.
        query_bias: added to all logits of a query; None for nothing.
        key: of each head, or one for all.
        value: likewise.
        time_bias: added to the logits of a head by steps of slots and of tokens; None for nothing.
        competition: who competes for what.
    """
    batch, heads, time, num_slots, _ = query.shape
    steps, num_tokens = key.shape[2:4]
    reach = steps if competition.window is None else min(steps, competition.window)
    at_once = max(1, WEIGHTS_AT_ONCE // (batch * heads * num_slots * reach * num_tokens))
    recompute = at_once < time and torch.is_grad_enabled()
    parts, own = [], []
    for begin in range(0, time, at_once):
        readers = slice(begin, min(begin + at_once, time))
        first = max(0, competition.past + begin - reach + 1) if competition.causal else 0
        seen = slice(first, competition.past + readers.stop if competition.causal else steps)
        part = _Part(gather, competition, readers, seen)
        arguments = (
            _steps_of(query, readers),
            None if query_bias is None else _steps_of(query_bias, readers),
            _steps_of(key, seen),
            _steps_of(value, seen),
            None if time_bias is None else time_bias[:, readers, seen],
            competition.num_visible(readers, (steps, num_tokens), query),
        )
        if recompute:
            gathered, shares = checkpoint(part, *arguments, use_reentrant=False, preserve_rng_state=False)
        else:
            gathered, shares = part(*arguments)
        parts.append(gathered)
        own.append(shares)
    if len(parts) == 1:
        return parts[0], own[0]
    return torch.cat(parts, dim=2), torch.cat(own, dim=1)


def _steps_of(x: Tensor, steps: slice) -> Tensor:
    """Steps of "batch heads time ..."; x itself, which has no gradient to be filled up, where they are all."""
    return x if steps.stop - steps.start == x.shape[2] else x[:, :, steps]


class _Part(NamedTuple):
    """What is done to a few successive steps of slots and the steps of tokens that they may see."""

    gather: Callable[[Tensor, Tensor, Tensor], Tensor]
    competition: Competition
    readers: slice
    seen: slice

    def __call__(
        self,
        query: Tensor,
        query_bias: Tensor | None,
        key: Tensor,
        value: Tensor,
        time_bias: Tensor | None,
        count: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """(gathered "batch heads time slots dim", assignment of own tokens)."""
        heads, time, num_slots = query.shape[1:4]
        steps, num_tokens = key.shape[2:4]
        logits = query.flatten(2, 3) @ key.flatten(2, 3).mT
        logits = logits.unflatten(3, (steps, num_tokens)).unflatten(2, (time, num_slots))
        if query_bias is not None:
            logits = logits + query_bias[..., None]
        if time_bias is not None:
            logits = logits + rearrange(time_bias.to(logits.dtype), "heads time steps -> heads time 1 steps 1")
        if self.competition.across_heads and heads > 1:
            pattern = "batch time (heads slots) steps tokens"
            together = rearrange(logits, f"batch heads time slots steps tokens -> {pattern}").softmax(dim=2)
            assignment = rearrange(together, f"{pattern} -> batch heads time slots steps tokens", heads=heads)
        else:
            assignment = logits.softmax(dim=3)
        hidden = self.competition.hidden(self.seen, self.readers, query.device)
        if hidden is not None:
            assignment = assignment.masked_fill(hidden[:, None, :, None], 0.0)
        gathered = self.gather(assignment.flatten(-2), value.flatten(2, 3)[:, :, None], count)
        start = self.competition.past + self.readers.start - self.seen.start
        own = torch.diagonal(assignment, start, dim1=2, dim2=4)
        own = own.sum(dim=1) if self.competition.across_heads else own.mean(dim=1)
        return gathered, rearrange(own, "batch slots tokens time -> batch time slots tokens")
