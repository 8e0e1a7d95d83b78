"""Parallelizable spatiotemporal binder: slots of all steps at once, by attention to all frames so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from slotbench.interfaces import Aggregation, CoreOutput, SlotSpec, TemporalCore, TokenSpec
from slotbench.nn.linear import xavier_linear
from slotbench.nn.psb_block import Interaction, PSBBlock, PSBBlockState
from slotbench.nn.slot_init import InitialisedSlots, SlotInit, initial_slots
from slotbench_plugins.aggregations.weighted_mean import WeightedMean


class PSBState(NamedTuple):
    """The slots that were drawn for each clip, if they were drawn, and one `PSBBlockState` per layer."""

    drawn: Float[Tensor, "batch slots dim"] | None
    layers: tuple[PSBBlockState, ...]


class PSB(InitialisedSlots, TemporalCore):
    """Initial slots, the same at every step, are refined by layers that attend to the frames and to other steps' slots.

    Nothing is recurrent: all steps run in parallel, and the number of operations that wait for one another does not
    grow with the clip. Slot k of all steps starts from the same vector, and so can come to mean the same object.

    Streaming keeps keys and values of all earlier steps and gives exactly what the parallel run gives. `window` limits
    in every layer how far back a step looks, and with it the state; the parallel run has the same limit. Since layers
    look at what the layers below have made of earlier steps, step t then depends on the last
    (`num_layers` + 1) (`window` - 1) + 1 frames. To see the last frames alone, use `sliding_window`. `num_slots` may be
    set to another number after training where slots are drawn.

    `CoreOutput.attention` is the last layer's: which share of each token of its own step a slot has won, before it is
    normalised. It sums to 1 over the slots.

    Source: Singh et al., "Parallelized Spatiotemporal Slot Binding for Videos", ICML 2024, Algorithm 1, Appendix D.1.
    The LayerNorm on the initial slots is that of the public code.

    Args:
        token_spec: what the encoder hands over; tokens of another width than `dim` are mapped to it once.
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
        aggregation: makes the part that turns (assignment, values) into updates, from the width of a value; one per
            layer. A step sees the tokens of all steps so far: give `BatchScaled` its `reference_tokens`.

    Raises:
        ValueError: a number below 1, heads that do not divide `dim`, an unknown `slot_init` or `interaction`, or a
            `window` without `causal`.
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
        aggregation: Callable[[int], Aggregation] = WeightedMean,
    ):
        super().__init__()
        if num_layers < 1:
            raise ValueError(f"num_layers must be at least 1, got {num_layers}")
        if window is not None and not causal:
            raise ValueError(f"window={window} limits how far back a causal core looks: drop it, or set causal to true")
        self.slot_spec = SlotSpec(num_slots=num_slots, dim=dim)
        self.causal = causal
        same = token_spec.dim == dim
        self.token_projection = nn.Identity() if same else xavier_linear(token_spec.dim, dim)
        self.slot_init = initial_slots(slot_init, num_slots, dim)
        self.slot_norm = nn.LayerNorm(dim)
        self.layers = nn.ModuleList(
            PSBBlock(
                dim,
                aggregation(dim // bottom_up_heads),
                bottom_up_heads,
                time_heads,
                slot_heads,
                mlp_ratio,
                causal,
                window,
                interaction,
                residual_maps=4 * num_layers,
            )
            for _ in range(num_layers)
        )

    def forward(self, tokens: Float[Tensor, "batch time tokens dim"], state: PSBState | None = None) -> CoreOutput:
        """Slots of every step, and a `PSBState`, or None without `causal`.

        Raises:
            ValueError: a state without `causal`.
        """
        if state is not None and not self.causal:
            raise ValueError(
                "a state was given, but with causal=False early steps see later ones, so that a clip cannot be "
                "continued: pass the whole clip without a state, or build PSB with causal=True"
            )
        drawn = state.drawn if state is not None else None
        initial = self.slot_init(tokens.shape[0]) if drawn is None else drawn
        slots, attention, layers = self._encode(tokens, initial, None if state is None else state.layers)
        if not self.causal:
            return CoreOutput(slots, attention, None, "assignment")
        kept = PSBState(initial if self.draws_slots else None, layers)
        return CoreOutput(slots, attention, kept, "assignment")

    def sliding_window(self, tokens: Float[Tensor, "batch time tokens dim"], window: int) -> CoreOutput:
        """Slots of each step from the last `window` frames alone, as if the clip had started with them.

        This is how clips longer than those of the training are to be evaluated, with the training's length for
        `window`: each step is then computed as in training. Up to step `window` it is the parallel run; after that
        each step costs a run over a window. It is not what streaming with the argument `window` gives, where the
        layers' own states reach further back. Nothing is carried from window to window but the initial slots, so only
        these keep a slot on its object. Returns no state.

        Source: PSB (Singh et al., 2024), Appendix D.1.7 and B.4.

        Raises:
            ValueError: a `window` below 1, or a core that is not causal.
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
        return CoreOutput(slots, attention, None, "assignment")

    def _encode(
        self, tokens: Tensor, initial: Tensor, states: tuple[PSBBlockState, ...] | None = None
    ) -> tuple[Tensor, Tensor, tuple[PSBBlockState, ...]]:
        tokens = self.token_projection(tokens)
        slots = self.slot_norm(initial)[:, None].expand(-1, tokens.shape[1], -1, -1)
        new_states = []
        for index, layer in enumerate(self.layers):
            slots, attention, layer_state = layer(slots, tokens, None if states is None else states[index])
            new_states.append(layer_state)
        return slots, attention, tuple(new_states)
