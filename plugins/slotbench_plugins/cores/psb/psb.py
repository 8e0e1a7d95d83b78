"""Parallelizable spatiotemporal binder: slots of all steps at once, by attention to all frames so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from slotbench.interfaces import Aggregation, AttentionKind, CoreOutput, SlotSpec, TokenSpec, WindowedCore
from slotbench.nn.inverted_attention import InvertedAttention
from slotbench.nn.linear import xavier_linear
from slotbench.nn.slot_init import InitialisedSlots, SlotInit, initial_slots
from slotbench.ops.inverted_attention import TokenMemory
from slotbench_plugins.aggregations.weighted_mean import WeightedMean
from slotbench_plugins.cores.psb.block import (
    TOKEN_EPS,
    DecoupledInteraction,
    JointInteraction,
    PSBBlock,
    PSBBlockState,
)
from slotbench_plugins.cores.psb.softmax_attention import SoftmaxAttention
from slotbench_plugins.cores.psb.time_bias import BucketTimeBias, RelativeTimeBias, TimeBiasKind

Attention = Literal["inverted", "softmax"]
"""Slots compete for each token, or each slot spreads over all tokens."""

Interaction = Literal["decoupled", "joint"]
"""Attention over time and then among slots, or over both at once."""


class PSBState(NamedTuple):
    """The slots that were drawn, if they were, the normalised tokens of earlier steps, if a layer looks at them."""

    drawn: Float[Tensor, "batch slots dim"] | None
    tokens: TokenMemory | None
    layers: tuple[PSBBlockState, ...]


class PSB(InitialisedSlots, WindowedCore):
    """Parallelizable Spatiotemporal Binder: layers refine the slots of all steps by attention to frames and steps.

    Nothing is recurrent: all steps run in parallel, and the number of operations that wait for one another does not
    grow with the clip. Slot k of all steps starts from the same vector, and so can come to mean the same object.

    Streaming keeps the tokens of all earlier steps and gives exactly what the parallel run gives. `window` limits
    in every layer how far back a step looks, and with it the state; the parallel run has the same limit. Since layers
    look at what the layers below have made of earlier steps, step t then depends on the last
    (`num_layers` + 1) (`window` - 1) + 1 frames. To see the last frames alone, use `sliding_window`. `num_slots` may be
    set to another number after training where slots are drawn.

    `CoreOutput.attention` is the last layer's: which share of each token of its own step a slot has won, before it is
    normalised. It sums to 1 over the slots. With `attention="softmax"` it is what a slot reads, and sums to 1 over all
    tokens that its step sees.

    Source: Singh et al., "Parallelized Spatiotemporal Slot Binding for Videos", ICML 2024, Algorithm 1, Appendix D.1.
    The LayerNorm on the initial slots is that of the public code.

    Args:
        token_spec: the output of the encoder; tokens of another width than `dim` are mapped to it once.
        num_slots: slots per step.
        dim: width of a slot.
        num_layers: layers, each with weights of its own; the paper has 3.
        bottom_up_heads: heads of the attention to the frames; the paper has 1 for 2D videos and 4 for 3D.
        time_heads: heads of the attention over time.
        slot_heads: heads of the attention among the slots of a step; not used by `interaction="joint"`.
        mlp_ratio: hidden width of the MLPs in units of `dim`.
        causal: look at no later step. Without it there is no streaming, and no state.
        window: steps that each layer sees, its own included; None for no limit.
        slot_init: "learned" has one vector per slot; "gaussian" draws the slots of each clip from one distribution.
        interaction: "decoupled" attends over time, then among slots; "joint" over both at once.
        attention: "inverted", or an ordinary "softmax" over the tokens, the paper's ablation, which has no aggregation.
        time_bias: what logits get for the time between two steps: "mlp" is that of the public code, "buckets" T5's, as
            the paper's text has it, "none" nothing.
        aggregation: makes the part that turns (assignment, values) into updates, from the width of a value; one per
            layer. A step sees the tokens of all steps so far: give `BatchScaled` its `reference_tokens`.
    """

    def __init__(
        self,
        token_spec: TokenSpec,
        num_slots: int = 8,
        dim: int = 64,
        num_layers: int = 2,
        bottom_up_heads: int = 1,
        time_heads: int = 4,
        slot_heads: int = 4,
        mlp_ratio: int = 4,
        causal: bool = True,
        window: int | None = None,
        slot_init: SlotInit = "learned",
        interaction: Interaction = "decoupled",
        attention: Attention = "inverted",
        time_bias: TimeBiasKind = "mlp",
        aggregation: Callable[[int], Aggregation] = WeightedMean,
    ):
        super().__init__()
        if window is not None and not causal:
            raise ValueError(f"window={window} limits how far back a causal core looks: drop it, or set causal to true")
        self.attention_kind: AttentionKind = "assignment" if attention == "inverted" else "reading"
        self.slot_spec = SlotSpec(num_slots=num_slots, dim=dim)
        self.causal, self.window = causal, window
        self.token_projection = nn.Identity() if token_spec.dim == dim else xavier_linear(token_spec.dim, dim)
        self.slot_init = initial_slots(slot_init, num_slots, dim)
        self.slot_norm = nn.LayerNorm(dim)

        def bottom_up() -> InvertedAttention | SoftmaxAttention:
            if attention == "softmax":
                return SoftmaxAttention(dim, bottom_up_heads)
            values = aggregation(dim // bottom_up_heads)
            return InvertedAttention(dim, num_heads=bottom_up_heads, aggregation=values, bias=False)

        def bias() -> RelativeTimeBias | BucketTimeBias | None:
            heads = bottom_up_heads + time_heads
            if time_bias == "none":
                return None
            return RelativeTimeBias(heads) if time_bias == "mlp" else BucketTimeBias(heads, causal)

        def slots_and_time() -> DecoupledInteraction | JointInteraction:
            if interaction == "joint":
                return JointInteraction(dim, time_heads, causal, window)
            return DecoupledInteraction(dim, time_heads, slot_heads, causal, window)

        self.layers = nn.ModuleList(
            PSBBlock(dim, bottom_up(), bias(), slots_and_time(), mlp_ratio, residual_maps=4 * num_layers)
            for _ in range(num_layers)
        )

    def forward(self, tokens: Float[Tensor, "batch time tokens dim"], state: PSBState | None = None) -> CoreOutput:
        """Slots of every step, and a `PSBState`, or None without `causal`."""
        if state is not None and not self.causal:
            raise ValueError(
                "a state was given, but with causal=False early steps see later ones, so that a clip cannot be "
                "continued: pass the whole clip without a state, or build PSB with causal=True"
            )
        initial = self.slot_init(tokens.shape[0]) if state is None or state.drawn is None else state.drawn
        slots, attention, kept = self._encode(tokens, initial, state)
        if not self.causal:
            return CoreOutput(slots, attention, None, self.attention_kind)
        return CoreOutput(
            slots, attention, kept._replace(drawn=initial if self.draws_slots else None), self.attention_kind
        )

    def sliding_window(self, tokens: Float[Tensor, "batch time tokens dim"], window: int) -> CoreOutput:
        """Slots of each step from the last `window` frames alone, as if the clip had started with them.

        This is how clips longer than those of the training are to be evaluated, with the training's length for
        `window`: each step is then computed as in training. Up to step `window` it is the parallel run; after that
        each step costs a run over a window. It is not what streaming with the argument `window` gives, where the
        layers' own states reach further back. Nothing is carried from window to window but the initial slots, so only
        these keep a slot on its object. Returns no state.

        Source: PSB (Singh et al., 2024), Appendix D.1.7 and B.4.
        """
        if window < 1:
            raise ValueError(f"window={window}: give at least 1 frame")
        if not self.causal:
            raise ValueError("sliding_window reads the last step of each window: build PSB with causal=True")
        initial = self.slot_init(tokens.shape[0])
        pieces = [self._encode(tokens[:, :window], initial)[:2]]
        for stop in range(window + 1, tokens.shape[1] + 1):
            slots, attention, _ = self._encode(tokens[:, stop - window : stop], initial)
            pieces.append((slots[:, -1:], attention[:, -1:]))
        slots, attention = (torch.cat(parts, dim=1) for parts in zip(*pieces, strict=True))
        return CoreOutput(slots, attention, None, self.attention_kind)

    def _encode(
        self, tokens: Tensor, initial: Tensor, state: PSBState | None = None
    ) -> tuple[Tensor, Tensor, PSBState]:
        tokens = self.token_projection(tokens)
        new = TokenMemory(nn.functional.layer_norm(tokens, tokens.shape[-1:], eps=TOKEN_EPS))
        memory = new.after(None if state is None else state.tokens)
        slots = self.slot_norm(initial)[:, None].expand(-1, tokens.shape[1], -1, -1)
        states = []
        for index, layer in enumerate(self.layers):
            last = index == len(self.layers) - 1
            past = None if state is None else state.layers[index]
            slots, attention, kept = layer(slots, memory, past, alike=index == 0, shares=last)
            states.append(kept)
        looks_back = any(kept.sums is None for kept in states)
        earlier = memory if self.window is None else memory.last(self.window - 1)
        return slots, attention, PSBState(None, earlier if looks_back else None, tuple(states))
