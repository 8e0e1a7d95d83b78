"""Slot Attention on each frame alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from slotbench.interfaces import Aggregation, CoreOutput, SlotSpec, TemporalCore, TokenSpec
from slotbench.nn.slot_attention import CorrectorMLP, SlotCorrector, check_iterations
from slotbench.nn.slot_attention_init import SlotAttentionInit, initialise_slot_attention
from slotbench.nn.slot_init import InitialisedSlots, SlotInit, initial_slots
from slotbench_plugins.aggregations.weighted_mean import WeightedMean


class SlotAttentionState(NamedTuple):
    """The slots that were drawn for each clip, or None where they are learned."""

    drawn: Float[Tensor, "batch slots dim"] | None


class SlotAttention(InitialisedSlots, TemporalCore):
    """Slot Attention, frame by frame: the same initial slots compete for each frame's tokens over a few iterations.

    For single images, as clips of one step, and as the static model beside those of video: nothing is carried from
    frame to frame but the initial slots, so only these keep a slot on its object. All frames run in parallel.
    `num_slots` (with drawn slots) and `num_iterations` may be set to other numbers after training.

    `CoreOutput.attention` is the last iteration's: which share of each token a slot has won, before the aggregation. It
    sums to 1 over the slots.

    Source: Locatello et al., "Object-Centric Learning with Slot Attention", NeurIPS 2020, Algorithm 1; with other
    aggregations, Krimmel et al., TMLR 2024. One frame at a time on video: PSB (Singh et al., 2024), Appendix D.4.

    Args:
        num_slots: slots per step.
        dim: width of a slot.
        num_iterations: corrections per frame; the paper has 3.
        num_heads: heads of the inverted attention, each a competition of its own; the paper has 1.
        mlp_ratio: hidden width of the MLP in units of `dim`; 2 on CLEVR, 4 on DINO features.
        corrector_mlp: after which iterations the MLP follows: "every", "between" (all but the last), or "none".
        slot_init: "gaussian" draws the slots of each clip from one distribution; "learned" has one vector per slot.
        aggregation: makes the part that turns (assignment, values) into updates, from the width of a value.
        init: whose initial weights: those of the authors' code ("slot_attention"), of STEVE's ("steve"), or
            Xavier-uniform for every map, with slots drawn from a standard normal distribution ("plain"); see
            `slotbench.nn.slot_attention_init.initialise_slot_attention`.
        norm_eps: epsilon of the LayerNorms: 1e-3 in the authors' code (Keras), 1e-5 in that of Krimmel et al.
    """

    def __init__(
        self,
        token_spec: TokenSpec,
        num_slots: int = 8,
        dim: int = 64,
        num_iterations: int = 3,
        num_heads: int = 1,
        mlp_ratio: int = 2,
        corrector_mlp: CorrectorMLP = "every",
        slot_init: SlotInit = "gaussian",
        aggregation: Callable[[int], Aggregation] = WeightedMean,
        init: SlotAttentionInit = "slot_attention",
        norm_eps: float = 1e-5,
    ):
        super().__init__()
        check_iterations(num_iterations)
        self.slot_spec = SlotSpec(num_slots, dim)
        self.slot_init = initial_slots(slot_init, num_slots, dim)
        self.corrector = SlotCorrector(
            dim,
            token_spec.dim,
            num_heads,
            mlp_ratio,
            corrector_mlp,
            aggregation=aggregation(dim // num_heads),
            norm_eps=norm_eps,
        )
        initialise_slot_attention(init, self.slot_init, self.corrector)
        self.num_iterations = num_iterations

    def forward(
        self, tokens: Float[Tensor, "batch time tokens token_dim"], state: SlotAttentionState | None = None
    ) -> CoreOutput:
        """Slots of every step, and a `SlotAttentionState`."""
        batch, time = tokens.shape[:2]
        drawn = None if state is None else state.drawn
        initial = self.slot_init(batch) if drawn is None else drawn
        # no frame knows of another, so time is folded into the batch
        slots = initial[:, None].expand(-1, time, -1, -1).flatten(0, 1)
        slots, attention, _ = self.corrector(slots, tokens.flatten(0, 1), self.num_iterations)
        kept = SlotAttentionState(initial if self.draws_slots else None)
        slots, attention = slots.unflatten(0, (batch, time)), attention.unflatten(0, (batch, time))
        return CoreOutput(slots, attention, kept, "assignment")
