"""Attention in which slots compete for tokens: the softmax runs over the slots, not over the tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from slotbench.interfaces import Aggregation, StagedAggregation, State
from slotbench.nn.attention import check_heads
from slotbench.nn.linear import xavier_linear
from slotbench.nn.temporal_attention import TimeBias

__all__ = ["InvertedAttention", "TokenMemory"]

WEIGHTS_AT_ONCE = 2**22
"""Attention weights that are held at a time (16 MiB in single precision); steps that need more go in chunks."""


class TokenMemory(NamedTuple):
    """Keys and values of the tokens of every step that slots may read, oldest first."""

    key: Float[Tensor, "batch heads time tokens head_dim"]
    value: Float[Tensor, "batch heads time tokens head_dim"]

    def after(self, earlier: TokenMemory | None) -> TokenMemory:
        """These steps preceded by those of an earlier call."""
        if earlier is None:
            return self
        pairs = zip(earlier, self, strict=True)
        return TokenMemory(*(torch.cat([before.to(leaf.dtype), leaf], dim=2) for before, leaf in pairs))

    def last(self, steps: int) -> TokenMemory:
        """The last `steps` steps, or all if there are fewer."""
        first = max(0, self.key.shape[2] - steps)
        # contiguous, because a view would keep alive all that it was cut from
        return TokenMemory(*(leaf[:, :, first:].contiguous() for leaf in self))


class InvertedAttention(nn.Module):
    """Slots compete for tokens; what each has won becomes its update.

    For one step's slots and tokens call the module. Where the same tokens are asked several times (iterations), or
    where slots read the tokens of many steps (`causal`), compute `memory` once and call `attend`. Where iterations
    share what the aggregation measured at the first one, call `attend_again`.

    Over time a slot of step t reads the tokens of the steps t' that it may see, and the competition for a token of step
    t' is among the slots of step t alone. Were it among the slots of all steps, later slots would take from earlier
    ones, and the past would know the future. What may not be seen is set to zero after the softmax: all competitors of
    a hidden token are hidden alike, so that minus infinity before the softmax would leave 0 / 0.

    Steps go in chunks that hold at most `WEIGHTS_AT_ONCE` weights. The backward pass computes the weights of a chunk
    anew, where there is more than one; the result is the same.

    Source: Slot Attention (Locatello et al., 2020), Eq 1-2; over time PSB (Singh et al., 2024), Appendix D.1.2.

    Args:
        dim: width of a slot.
        token_dim: width of a token; `dim` if None.
        num_heads: heads, which must divide `dim`.
        aggregation: turns (assignment, values) into updates, an `Aggregation`. It is called with an
            assignment "batch heads time slots tokens", tokens of all visible steps in a row and zero where a slot may
            not look, and with values "batch heads 1 tokens head_dim".
            One that is a `StagedAggregation` gathers chunk by chunk, and rescales all at once.
        across_heads: the slots of all heads compete with one another; otherwise those of each head on their own.
        bias: give the linear maps a bias.
        output_map: put a linear map after the aggregation; otherwise the update of a slot is what its heads have
            gathered, side by side.

    Raises:
        ValueError: `num_heads` does not divide `dim`.
    """

    def __init__(
        self,
        dim: int,
        token_dim: int | None = None,
        num_heads: int = 1,
        *,
        aggregation: Aggregation,
        across_heads: bool = True,
        bias: bool = True,
        output_map: bool = True,
    ):
        super().__init__()
        check_heads(dim, num_heads)
        self.num_heads = num_heads
        self.across_heads = across_heads
        self.query = xavier_linear(dim, dim, bias=bias)
        self.key_value = xavier_linear(dim if token_dim is None else token_dim, dim, maps=2, bias=bias)
        self.aggregation = aggregation
        self.output = xavier_linear(dim, dim, bias=bias) if output_map else nn.Identity()

    def forward(
        self, slots: Float[Tensor, "batch slots dim"], tokens: Float[Tensor, "batch tokens token_dim"]
    ) -> tuple[Float[Tensor, "batch slots dim"], Float[Tensor, "batch slots tokens"]]:
        """One step: (updates, assignment, which sums to 1 over the slots for each token)."""
        updates, assignment = self.attend(slots[:, None], self.memory(tokens[:, None]))
        return updates[:, 0], assignment[:, 0]

    def memory(self, tokens: Float[Tensor, "batch time tokens token_dim"]) -> TokenMemory:
        """Keys and values of the tokens."""
        pattern = "batch time tokens (part heads dim) -> part batch heads time tokens dim"
        return TokenMemory(*rearrange(self.key_value(tokens), pattern, part=2, heads=self.num_heads))

    def attend(
        self,
        slots: Float[Tensor, "batch time slots dim"],
        memory: TokenMemory,
        *,
        causal: bool = False,
        window: int | None = None,
        time_bias: TimeBias | None = None,
    ) -> tuple[Float[Tensor, "batch time slots dim"], Float[Tensor, "batch time slots tokens"]]:
        """(updates, assignment) of `attend_again` where there is no earlier iteration."""
        updates, assignment, _ = self.attend_again(
            slots, memory, None, causal=causal, window=window, time_bias=time_bias
        )
        return updates, assignment

    def attend_again(
        self,
        slots: Float[Tensor, "batch time slots dim"],
        memory: TokenMemory,
        statistics: State,
        *,
        causal: bool = False,
        window: int | None = None,
        time_bias: TimeBias | None = None,
    ) -> tuple[Float[Tensor, "batch time slots dim"], Float[Tensor, "batch time slots tokens"], State]:
        """Lets the slots of each step compete for the tokens that this step may see.

        Args:
            slots: of the last steps that `memory` holds.
            statistics: what the call of an earlier iteration returned as such; None at the first.
            memory: of these steps and, with `causal`, of earlier ones.
            causal: look at no later step.
            window: steps that a slot sees, its own included, with `causal`; None for no limit.
            time_bias: maps signed offsets, step of the token less step of the slot, to a number per head that is added
                to the logit. Within a head all competitors for a token have the same offset, and what is added to all
                of them makes no difference: it acts between heads only.

        Returns:
            (updates, assignment of each step's own tokens: the share that each slot has won of each token before
            aggregation, with all heads; it sums to 1 over the slots, statistics of a `StagedAggregation` for the next
            iteration, a pytree of tensors that lead with the batch, or None).

        Raises:
            ValueError: without `causal`, a `window`, or other than one step of memory per step of slots.
        """
        query = rearrange(
            self.query(slots), "batch time slots (heads dim) -> batch heads time slots dim", heads=self.num_heads
        )
        query = query * query.shape[-1] ** -0.5
        batch, heads, time, num_slots, _ = query.shape
        steps, num_tokens = memory.key.shape[2:4]
        if not causal and (steps != time or window is not None):
            raise ValueError(
                f"{steps} steps of memory for {time} steps of slots with window={window}: without causal=True every "
                "slot reads all steps, so give as many steps of tokens as of slots, and no window"
            )
        competing_heads = heads if self.across_heads else 1
        staged = self.aggregation if isinstance(self.aggregation, StagedAggregation) else None
        gather = self.aggregation if staged is None else staged.gather
        part = _Part(gather, competing_heads, causal, window, time_bias if competing_heads > 1 else None)
        past = steps - time
        reach = steps if window is None else min(steps, window)
        chunk = max(1, WEIGHTS_AT_ONCE // (batch * heads * num_slots * reach * num_tokens))
        recompute = chunk < time and torch.is_grad_enabled()
        updates, assignments = [], []
        for begin in range(0, time, chunk):
            end = min(begin + chunk, time)
            first = max(0, past + begin - reach + 1) if causal else 0
            last = past + end if causal else steps
            arguments = (query[:, :, begin:end], memory.key[:, :, first:last], memory.value[:, :, first:last])
            start = past + begin - first
            if recompute:
                update, assignment = checkpoint(part, *arguments, start, use_reentrant=False, preserve_rng_state=False)
            else:
                update, assignment = part(*arguments, start)
            updates.append(update)
            assignments.append(assignment)
        gathered = torch.cat(updates, dim=2)
        if staged is not None:
            gathered, statistics = staged.rescale(gathered, statistics)
            gathered = gathered.to(memory.value.dtype)
        merged = rearrange(gathered, "batch heads time slots dim -> batch time slots (heads dim)")
        return self.output(merged), torch.cat(assignments, dim=1), statistics


class _Part(NamedTuple):
    """What is done to a few successive steps of slots and the steps of tokens that they may see."""

    aggregation: Callable[[Tensor, Tensor], Tensor]
    competing_heads: int
    causal: bool
    window: int | None
    time_bias: TimeBias | None

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """(updates "batch heads time slots head_dim", assignment of own tokens); slots start at token step `start`."""
        time, num_slots = query.shape[2:4]
        steps, num_tokens = key.shape[2:4]
        logits = query.flatten(2, 3) @ key.flatten(2, 3).mT
        logits = logits.unflatten(3, (steps, num_tokens)).unflatten(2, (time, num_slots))
        rows = torch.arange(start, start + time, device=query.device)[:, None]
        offsets = torch.arange(steps, device=query.device) - rows
        if self.time_bias is not None:
            # what is hidden below has no bias to ask for
            bias = self.time_bias(offsets.clamp(max=0) if self.causal else offsets).to(logits.dtype)
            logits = logits + rearrange(bias, "heads time steps -> heads time 1 steps 1")
        if self.competing_heads > 1:
            pattern = "batch time (heads slots) steps tokens"
            together = rearrange(logits, f"batch heads time slots steps tokens -> {pattern}").softmax(dim=2)
            assignment = rearrange(
                together, f"{pattern} -> batch heads time slots steps tokens", heads=self.competing_heads
            )
        else:
            assignment = logits.softmax(dim=3)
        if self.causal and steps > 1:
            hidden = offsets > 0 if self.window is None else (offsets > 0) | (offsets <= -self.window)
            assignment = assignment.masked_fill(hidden[:, None, :, None], 0.0)
        updates = self.aggregation(assignment.flatten(-2), value.flatten(2, 3)[:, :, None])
        own = torch.diagonal(assignment, start, dim1=2, dim2=4)
        own = own.sum(dim=1) if self.competing_heads > 1 else own.mean(dim=1)
        return updates, rearrange(own, "batch slots tokens time -> batch time slots tokens")
