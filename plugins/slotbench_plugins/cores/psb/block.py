"""The layers of PSB: attention to the frames, over time and among slots, and an MLP."""

from __future__ import annotations

from typing import NamedTuple

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from slotbench.nn.inverted_attention import InvertedAttention
from slotbench.nn.linear import MLP
from slotbench.nn.temporal_attention import AttentionCache, TemporalAttention, TimeBias
from slotbench.ops.inverted_attention import StepSums, TokenMemory
from slotbench_plugins.cores.psb.softmax_attention import SoftmaxAttention
from slotbench_plugins.cores.psb.time_bias import BucketTimeBias, RelativeTimeBias

__all__ = ["TOKEN_EPS", "DecoupledInteraction", "JointInteraction", "PSBBlock", "PSBBlockState"]

TOKEN_EPS = 1e-5  # of the LayerNorm on the tokens, which is the same for all layers but for weight and bias


class PSBBlockState(NamedTuple):
    """What slots that are alike at all steps have won of earlier frames; keys and values of the attention over time."""

    sums: StepSums | None
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

    @property
    def over_time(self) -> TemporalAttention:
        """The attention that looks at other steps."""
        return self.time_attention

    def forward(
        self, slots: Float[Tensor, "batch time slots dim"], cache: AttentionCache | None, time_bias: TimeBias | None
    ) -> tuple[Float[Tensor, "batch time slots dim"], AttentionCache]:
        """(slots, cache with leaves "batch slots heads time 1 head_dim")."""
        slots, cache = self.along_time(slots, cache, time_bias)
        return self.among_slots(slots), cache

    def along_time(
        self, slots: Float[Tensor, "batch time slots dim"], cache: AttentionCache | None, time_bias: TimeBias | None
    ) -> tuple[Float[Tensor, "batch time slots dim"], AttentionCache]:
        """The first half: no slot learns of another."""
        batch, _, num_slots, _ = slots.shape
        folded = None if cache is None else AttentionCache(*(leaf.flatten(0, 1) for leaf in cache))
        sequences = rearrange(self.time_norm(slots), "batch time slots dim -> (batch slots) time 1 dim")
        change, folded = self.time_attention(sequences, folded, time_bias)
        change = rearrange(change, "(batch slots) time 1 dim -> batch time slots dim", slots=num_slots)
        return slots + change, AttentionCache(*(leaf.unflatten(0, (batch, num_slots)) for leaf in folded))

    def among_slots(self, slots: Float[Tensor, "batch time slots dim"]) -> Float[Tensor, "batch time slots dim"]:
        """The second half: no step learns of another."""
        steps = rearrange(self.slot_norm(slots), "batch time slots dim -> (batch time) 1 slots dim")
        change, _ = self.slot_attention(steps)
        return slots + rearrange(change, "(batch time) 1 slots dim -> batch time slots dim", time=slots.shape[1])


class JointInteraction(nn.Module):
    """Each slot attends to all slots of all steps that it may see, at once.

    Source: PSB (Singh et al., 2024), Section 5.3, an ablation; whether it keeps the bias of the offset in time is not
    given there, and it does here.

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

    @property
    def over_time(self) -> TemporalAttention:
        """The attention that looks at other steps."""
        return self.attention

    def forward(
        self, slots: Float[Tensor, "batch time slots dim"], cache: AttentionCache | None, time_bias: TimeBias | None
    ) -> tuple[Float[Tensor, "batch time slots dim"], AttentionCache]:
        """(slots, cache with leaves "batch heads time slots head_dim")."""
        change, cache = self.attention(self.norm(slots), cache, time_bias)
        return slots + change, cache


class PSBBlock(nn.Module):
    """Inverted attention to the frames, attention over time and among the slots of a step, and an MLP.

    All steps run in parallel. Each part is added to the slots and has a LayerNorm before it.

    Source: PSB (Singh et al., 2024), Algorithm 1 and Appendix D.1. That no attention has biases, the form of the time
    bias, and the initial weights (Xavier, Kaiming before a nonlinearity, output maps scaled down by the root of
    `residual_maps`) are those of the public code.

    Args:
        dim: width of a slot and of a token.
        bottom_up: attention to the frames, whose heads compete with one another. With one head the time bias makes no
            difference to it, and this attention is blind to the order of the frames.
        time_bias: added to logits for the time between two steps, for the heads of both attentions that look at other
            steps; None for nothing.
        interaction: attention over time and among slots, which also says how far the whole layer looks.
        mlp_ratio: hidden width of the MLP in units of `dim`.
        residual_maps: maps onto the slots in the whole stack, by which the initial weights are scaled down.
    """

    def __init__(
        self,
        dim: int,
        bottom_up: InvertedAttention | SoftmaxAttention,
        time_bias: RelativeTimeBias | BucketTimeBias | None,
        interaction: DecoupledInteraction | JointInteraction,
        mlp_ratio: int = 4,
        residual_maps: int = 4,
    ):
        super().__init__()
        over_time = interaction.over_time
        self.bottom_up_heads, self.time_heads = bottom_up.num_heads, over_time.num_heads
        self.causal, self.window = over_time.causal, over_time.window
        self.query_norm = nn.LayerNorm(dim)
        self.token_norm = nn.LayerNorm(dim, TOKEN_EPS)
        self.bottom_up = bottom_up
        self.time_bias = time_bias
        self.interaction = interaction
        self.mlp_norm = nn.LayerNorm(dim)
        self.mlp = MLP(dim, mlp_ratio * dim)
        nn.init.kaiming_uniform_(self.mlp.expand.weight, nonlinearity="relu")
        attentions = (m for m in self.modules() if isinstance(m, _ATTENTIONS))
        for linear in (self.mlp.contract, *(attention.output for attention in attentions)):
            assert isinstance(linear, nn.Linear)
            nn.init.xavier_uniform_(linear.weight, gain=residual_maps**-0.5)

    def forward(
        self,
        slots: Float[Tensor, "batch time slots dim"],
        memory: TokenMemory,
        state: PSBBlockState | None = None,
        *,
        alike: bool = False,
        shares: bool = True,
    ) -> tuple[Float[Tensor, "batch time slots dim"], Float[Tensor, "batch time slots tokens"] | None, PSBBlockState]:
        """(slots, what each slot has won or read of each token of its own step, state)."""
        time, num_slots = slots.shape[1:3]
        past, cache = (None, None) if state is None else state
        biases = self._biases(time if cache is None else time + cache.key.shape[-3], slots.device)
        sums = None
        if isinstance(self.bottom_up, SoftmaxAttention):
            query, read = self.query_norm(slots), TokenMemory(memory.tokens, self.token_norm)
            change, shares_won = self.bottom_up(
                query, read, causal=self.causal, window=self.window, time_bias=biases[0], shares=shares
            )
        elif alike and self.causal and self.bottom_up.prefer_cumulative(memory.size[1]):
            query, new = self.query_norm(slots[:, 0]), TokenMemory(memory.tokens[:, -time:], self.token_norm)
            change, shares_won, sums = self.bottom_up.cumulative(query, new, past, window=self.window, shares=shares)
        else:
            seen = self.bottom_up.memory(memory.tokens, time * num_slots, self.token_norm)
            change, shares_won, _ = self.bottom_up(
                self.query_norm(slots),
                seen,
                causal=self.causal,
                window=self.window,
                time_bias=biases[0],
                shares=shares,
            )
        slots, cache = self.interaction(slots + change, cache, biases[1])
        slots = slots + self.mlp(self.mlp_norm(slots))
        return slots, shares_won, PSBBlockState(sums, cache)

    def _biases(self, steps: int, device: torch.device) -> tuple[TimeBias, TimeBias] | tuple[None, None]:
        """Look-ups, for bottom-up attention and for the interaction, in one evaluation of every offset that occurs."""
        if self.time_bias is None:
            return None, None
        first = 1 - steps
        offsets = torch.arange(first, 1 if self.causal else steps, device=device)
        bottom_up, interaction = self.time_bias(offsets).split([self.bottom_up_heads, self.time_heads])
        return lambda offset: bottom_up[:, offset - first], lambda offset: interaction[:, offset - first]


_ATTENTIONS = InvertedAttention | SoftmaxAttention | TemporalAttention
