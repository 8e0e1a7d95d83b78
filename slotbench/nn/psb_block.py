"""One layer of the parallelizable spatiotemporal binder: read the frames, talk over time and among slots, think."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from slotbench.nn.inverted_attention import InvertedAttention, TokenMemory
from slotbench.nn.mlp import MLP
from slotbench.nn.temporal_attention import AttentionCache, TemporalAttention, TimeBias
from slotbench.nn.time_bias import RelativeTimeBias

__all__ = ["DecoupledInteraction", "Interaction", "JointInteraction", "PSBBlock", "PSBBlockState"]

Interaction = Literal["decoupled", "joint"]


class PSBBlockState(NamedTuple):
    """What later steps may look at: keys and values of the frames' tokens, and of the slots' attention over time."""

    tokens: TokenMemory
    slots: AttentionCache


class DecoupledInteraction(nn.Module):
    """Each slot attends to its own past; then the slots of a step attend to one another.

    Source: PSB (Singh et al., 2024), Section 2.1.2, lines 4-7 of Algorithm 1.

    Args:
        dim: width of a slot.
        time_heads: heads of the attention over time.
        slot_heads: heads of the attention among slots.
        causal: look at no later step.
        window: steps that a slot sees, its own included; None for no limit.
    """

    def __init__(self, dim: int, time_heads: int, slot_heads: int, causal: bool, window: int | None):
        super().__init__()
        self.time_norm = nn.LayerNorm(dim)
        self.time_attention = TemporalAttention(dim, time_heads, causal=causal, window=window, bias=False)
        self.slot_norm = nn.LayerNorm(dim)
        # One step at a time it is plain attention among the slots of that step.
        self.slot_attention = TemporalAttention(dim, slot_heads, bias=False)

    def forward(
        self, slots: Float[Tensor, "batch time slots dim"], cache: AttentionCache | None, time_bias: TimeBias
    ) -> tuple[Float[Tensor, "batch time slots dim"], AttentionCache]:
        """(slots, cache with leaves "batch slots heads time 1 head_dim")."""
        slots, cache = self.along_time(slots, cache, time_bias)
        return self.among_slots(slots), cache

    def along_time(
        self, slots: Float[Tensor, "batch time slots dim"], cache: AttentionCache | None, time_bias: TimeBias
    ) -> tuple[Float[Tensor, "batch time slots dim"], AttentionCache]:
        """The first half: no slot learns of another."""
        batch, _, num_slots, _ = slots.shape
        folded = None if cache is None else AttentionCache(*(leaf.flatten(0, 1) for leaf in cache))
        sequences = rearrange(self.time_norm(slots), "batch time slots dim -> (batch slots) time 1 dim")
        change, folded = self.time_attention(sequences, folded, time_bias)
        change = rearrange(change, "(batch slots) time 1 dim -> batch time slots dim", batch=batch)
        return slots + change, AttentionCache(*(leaf.unflatten(0, (batch, num_slots)) for leaf in folded))

    def among_slots(self, slots: Float[Tensor, "batch time slots dim"]) -> Float[Tensor, "batch time slots dim"]:
        """The second half: no step learns of another."""
        steps = rearrange(self.slot_norm(slots), "batch time slots dim -> (batch time) 1 slots dim")
        change, _ = self.slot_attention(steps)
        return slots + rearrange(change, "(batch time) 1 slots dim -> batch time slots dim", batch=slots.shape[0])


class JointInteraction(nn.Module):
    """Each slot attends to all slots of all steps that it may see, at once.

    Source: PSB (Singh et al., 2024), Section 5.3, an ablation; whether it keeps the bias of the offset in time is not
    said there, and it does here.

    Args:
        dim: width of a slot.
        time_heads: heads.
        causal: look at no later step.
        window: steps that a slot sees, its own included; None for no limit.
    """

    def __init__(self, dim: int, time_heads: int, causal: bool, window: int | None):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.attention = TemporalAttention(dim, time_heads, causal=causal, window=window, bias=False)

    def forward(
        self, slots: Float[Tensor, "batch time slots dim"], cache: AttentionCache | None, time_bias: TimeBias
    ) -> tuple[Float[Tensor, "batch time slots dim"], AttentionCache]:
        """(slots, cache with leaves "batch heads time slots head_dim")."""
        change, cache = self.attention(self.norm(slots), cache, time_bias)
        return slots + change, cache


class PSBBlock(nn.Module):
    """Slots read the frames in competition, exchange what they know over time and within the step, and pass an MLP.

    All steps run in parallel. Each part is added to the slots and has a LayerNorm before it.

    Source: PSB (Singh et al., 2024), Algorithm 1 and Appendix D.1. That no attention has biases, the form of the time
    bias, and the initial weights (Xavier, Kaiming before a nonlinearity, output maps scaled down by the root of
    `residual_maps`) are those of the public code.

    Args:
        dim: width of a slot and of a token.
        aggregation: turns (assignment, values) into updates of the slots, a `slotbench.interfaces.Aggregation`.
        bottom_up_heads: heads of the attention to the frames, which compete with one another. With one head the time
            bias makes no difference to it, and this attention is blind to the order of the frames.
        time_heads: heads of the attention over time.
        slot_heads: heads of the attention among the slots of a step; not used by "joint".
        mlp_ratio: hidden width of the MLP in units of `dim`.
        causal: look at no later step.
        window: steps that this layer sees, its own included, with `causal`; None for no limit.
        interaction: "decoupled" attends over time, then among slots; "joint" over both at once.
        residual_maps: maps onto the slots in the whole stack, by which the initial weights are scaled down.

    Raises:
        ValueError: a number of heads that does not divide `dim`, or an unknown interaction.
    """

    def __init__(
        self,
        dim: int,
        aggregation: nn.Module,
        bottom_up_heads: int = 1,
        time_heads: int = 4,
        slot_heads: int = 4,
        mlp_ratio: int = 4,
        causal: bool = True,
        window: int | None = None,
        interaction: Interaction = "decoupled",
        residual_maps: int = 4,
    ):
        super().__init__()
        self.bottom_up_heads, self.time_heads = bottom_up_heads, time_heads
        self.causal, self.window = causal, window
        self.query_norm = nn.LayerNorm(dim)
        self.token_norm = nn.LayerNorm(dim)
        self.bottom_up = InvertedAttention(dim, num_heads=bottom_up_heads, aggregation=aggregation, bias=False)
        self.time_bias = RelativeTimeBias(bottom_up_heads + time_heads)
        self.interaction: DecoupledInteraction | JointInteraction
        if interaction == "decoupled":
            self.interaction = DecoupledInteraction(dim, time_heads, slot_heads, causal, window)
        elif interaction == "joint":
            self.interaction = JointInteraction(dim, time_heads, causal, window)
        else:
            raise ValueError(f"no interaction named {interaction!r}; choose one of {', '.join(get_args(Interaction))}")
        self.mlp_norm = nn.LayerNorm(dim)
        self.mlp = MLP(dim, mlp_ratio * dim)
        nn.init.kaiming_uniform_(self.mlp.expand.weight, nonlinearity="relu")
        attentions = (m for m in self.modules() if isinstance(m, InvertedAttention | TemporalAttention))
        for linear in (self.mlp.contract, *(attention.output for attention in attentions)):
            assert isinstance(linear, nn.Linear)
            nn.init.xavier_uniform_(linear.weight, gain=residual_maps**-0.5)

    def forward(
        self,
        slots: Float[Tensor, "batch time slots dim"],
        tokens: Float[Tensor, "batch time tokens dim"],
        state: PSBBlockState | None = None,
    ) -> tuple[Float[Tensor, "batch time slots dim"], Float[Tensor, "batch time slots tokens"], PSBBlockState]:
        """(slots, share that each slot has won of each token of its own step, state)."""
        memory = self.bottom_up.memory(self.token_norm(tokens)).after(None if state is None else state.tokens)
        steps = memory.key.shape[2]
        bottom_up_bias, interaction_bias = self._biases(steps, tokens.device)
        change, assignment = self.bottom_up.attend(
            self.query_norm(slots), memory, causal=self.causal, window=self.window, time_bias=bottom_up_bias
        )
        slots, cache = self.interaction(slots + change, None if state is None else state.slots, interaction_bias)
        slots = slots + self.mlp(self.mlp_norm(slots))
        kept = memory if self.window is None else memory.last(self.window - 1)
        return slots, assignment, PSBBlockState(kept, cache)

    def _biases(self, steps: int, device: torch.device) -> tuple[TimeBias, TimeBias]:
        """Look-ups, for bottom-up attention and for the interaction, in one evaluation of every offset that occurs."""
        first = 1 - steps
        offsets = torch.arange(first, 1 if self.causal else steps, device=device)
        bottom_up, interaction = self.time_bias(offsets).split([self.bottom_up_heads, self.time_heads])
        return lambda offset: bottom_up[:, offset - first], lambda offset: interaction[:, offset - first]
