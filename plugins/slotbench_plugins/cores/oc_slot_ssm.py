"""Object-centric slot state space model: in every layer slots compete for the tokens, then run through time."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from slotbench.interfaces import Aggregation, CoreOutput, SlotSpec, TemporalCore, TokenSpec
from slotbench.nn.inverted_attention import InvertedAttention
from slotbench.nn.linear import xavier_linear
from slotbench.nn.slot_init import InitialisedSlots, SlotInit, initial_slots
from slotbench.nn.slot_ssm_layer import SlotSSMStack, SSMName, SSMState
from slotbench_plugins.aggregations.weighted_mean import WeightedMean


class OCSlotSSMState(NamedTuple):
    """The slots that were drawn for each clip, if they were drawn, and one state of the SSM per layer."""

    drawn: Float[Tensor, "batch slots dim"] | None
    layers: tuple[SSMState, ...]


class CompetingReader(nn.Module):
    """Inverted attention to a frame's tokens with a residual, and a LayerNorm on both sides before it.

    Its linear maps have no biases: that of the queries would be added to all competitors for a token alike.

    Source: SlotSSM, Eq 14 and 23-26; residual, LayerNorms and the map after the aggregation are those of the public
    code, which has biases.

    Args:
        dim: width of a slot and of a token.
        num_heads: heads.
        across_heads: the slots of all heads compete with one another.
        aggregation: turns (assignment, values) into updates.
    """

    def __init__(self, dim: int, num_heads: int, across_heads: bool, aggregation: Aggregation):
        super().__init__()
        self.slot_norm = nn.LayerNorm(dim)
        self.token_norm = nn.LayerNorm(dim)
        self.attention = InvertedAttention(
            dim, num_heads=num_heads, aggregation=aggregation, across_heads=across_heads, bias=False
        )

    def forward(
        self, slots: Float[Tensor, "batch slots dim"], tokens: Float[Tensor, "batch tokens dim"]
    ) -> tuple[Float[Tensor, "batch slots dim"], Float[Tensor, "batch slots tokens"]]:
        """(slots, share that each has won of each token)."""
        update, assignment = self.attention(self.slot_norm(slots), self.token_norm(tokens))
        return slots + update, assignment


class OCSlotSSM(InitialisedSlots, TemporalCore):
    """In every layer slots compete for the raw tokens, run through time on their own, and are mixed within the step.

    The competition takes the place of `SlotSSM`'s encoder: slots of a step start from the same vectors at every step
    and are refined by the tokens layer after layer, so that slots come to hold one object each. Everything but the scan
    runs in parallel over time. `num_slots` may be set to another number after training where slots are drawn.

    `CoreOutput.attention` is the last layer's: which share of each token a slot has won, before the aggregation. It
    sums to 1 over the slots.

    Source: Jiang, Deng, Singh, Lee, Ahn, "Slot State Space Models", NeurIPS 2024, Section 5.1, Eq 14-16 and 23-26.
    Table 2 has `dim` 192, 11 slots and 4 heads in the competition; the number of layers is not stated there.

    Args:
        token_spec: what the encoder hands over; tokens of another width than `dim` are mapped to it once.
        num_slots: slots per step, the same in all layers.
        dim: width of a slot.
        num_layers: layers, each with weights of its own.
        bottom_up_heads: heads of the competition for tokens.
        across_heads: the slots of all heads compete with one another, as in the public code; otherwise each head holds
            a competition of its own.
        num_heads: heads of the attention that mixes the slots of a step.
        mlp_ratio: hidden width of the MLPs in units of `dim`.
        ssm: the block that carries a slot through time, "mamba" or "mamba2".
        state_dim: SSM state per channel.
        expand: inner width of the SSM block in units of `dim`.
        conv_width: steps that the SSM block's causal convolution sees.
        head_dim: channels that share a decay in Mamba-2; must divide the inner width. Mamba has no heads.
        exact_zoh: discretise the input matrix exactly instead of Mamba's first-order form.
        kernel: which kernel of `slotbench.ops.selective_scan` (of `slotbench.ops.ssd` for Mamba-2) runs the scan.
        slot_init: "learned" has one vector per slot; "gaussian" draws the slots of each clip from one distribution.
        aggregation: makes the part that turns (assignment, values) into updates, from the width of a value; one per
            layer.

    Raises:
        ValueError: a number below 1, heads that do not divide `dim`, `head_dim` does not divide the inner width of
            Mamba-2, or an unknown `slot_init` or `ssm`.
    """

    def __init__(
        self,
        token_spec: TokenSpec,
        num_slots: int = 8,
        dim: int = 64,
        num_layers: int = 2,
        bottom_up_heads: int = 1,
        across_heads: bool = True,
        num_heads: int = 4,
        mlp_ratio: int = 4,
        ssm: SSMName = "mamba",
        state_dim: int = 16,
        expand: float = 1.25,
        conv_width: int = 4,
        head_dim: int = 20,
        exact_zoh: bool = False,
        kernel: str = "auto",
        slot_init: SlotInit = "learned",
        aggregation: Callable[[int], Aggregation] = WeightedMean,
    ):
        super().__init__()
        self.slot_spec = SlotSpec(num_slots, dim)
        same = token_spec.dim == dim
        self.token_projection = nn.Identity() if same else xavier_linear(token_spec.dim, dim)
        self.slot_init = initial_slots(slot_init, num_slots, dim)
        self.layers = SlotSSMStack(
            dim, num_layers, num_heads, mlp_ratio, ssm, state_dim, expand, conv_width, head_dim, exact_zoh, kernel
        )
        self.readers = nn.ModuleList(
            CompetingReader(dim, bottom_up_heads, across_heads, aggregation(dim // bottom_up_heads))
            for _ in range(num_layers)
        )

    def forward(
        self, tokens: Float[Tensor, "batch time tokens token_dim"], state: OCSlotSSMState | None = None
    ) -> CoreOutput:
        """Slots after every step, and an `OCSlotSSMState`."""
        batch, time = tokens.shape[:2]
        drawn = None if state is None else state.drawn
        initial = self.slot_init(batch) if drawn is None else drawn
        # no information crosses time in the competition, so time is folded into the batch
        frames = self.token_projection(tokens).flatten(0, 1)
        slots = initial[:, None].expand(-1, time, -1, -1)
        states = []
        for index, (reader, layer) in enumerate(zip(self.readers, self.layers, strict=True)):
            read, attention = reader(slots.flatten(0, 1), frames)
            slots, layer_state = layer(read.unflatten(0, (batch, time)), None if state is None else state.layers[index])
            states.append(layer_state)
        kept = OCSlotSSMState(initial if self.draws_slots else None, tuple(states))
        return CoreOutput(slots, attention.unflatten(0, (batch, time)), kept, "assignment")
