"""SAVi: recurrent slots, corrected by each frame with Slot Attention and predicted for the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from slotbench.interfaces import (
    Aggregation,
    CoreOutput,
    RecurrentCore,
    SlotSpec,
    State,
    TokenSpec,
    VideoBatch,
)
from slotbench.nn.slot_attention import CorrectorMLP, SlotCorrector, check_iterations
from slotbench.nn.slot_attention_init import SlotAttentionInit, initialise_slot_attention
from slotbench.nn.slot_init import Condition, ConditionedSlots, InitialisedSlots, SlotInit, initial_slots
from slotbench.nn.slot_predictor import PreNormBlock, SlotPredictor
from slotbench.ops.inverted_attention import Memory
from slotbench_plugins.aggregations.weighted_mean import WeightedMean


class SAViStart(NamedTuple):
    """The state before the first frame: initial slots."""

    slots: Float[Tensor, "batch slots dim"]


class SAViState(NamedTuple):
    """The state after a frame.

    Attributes:
        slots: as the frame has corrected them.
        statistics: what the aggregation measured at the first iteration of the first frame, if it measures anything.
    """

    slots: Float[Tensor, "batch slots dim"]
    statistics: State


class SAVi(InitialisedSlots, RecurrentCore):
    """Slot Attention corrects the slots by each frame; a transformer block predicts those of the next frame from them.

    A step returns the corrected slots; the predictor runs between two frames, and not after the last one. Frames
    wait for one another, and so do the iterations of a frame, but keys and values of all frames are computed at once.
    `num_slots` (with drawn or conditioned slots), `num_iterations` and `first_iterations` may be set to other numbers
    after training.

    An aggregation that measures (`BatchScaled`) does so at the first iteration of the first frame, and all others use
    that: there is one update of the running averages per clip, and the scale is the same all along.

    `CoreOutput.attention` is that of a frame's last iteration: which share of each token a slot has won, before the
    aggregation. It sums to 1 over the slots. The loss does not show if one slot takes everything: watch the share of
    the largest slot.

    With a `condition` slots begin with the boxes of the objects in the clip's first frame, or with their centres, by an
    MLP, in place of `slot_init`; tasks of auto-encoding hand them over (`first_state`). The masks of such a model are
    told where the objects are: its scores compare with those of other conditional models only.

    Source: Kipf et al., "Conditional Object-Centric Learning from Video", ICLR 2022. The small model there has one
    iteration, no MLP in the corrector, and a predictor that normalises after each part; that of SlotSSM (Jiang et al.,
    2024) is STEVE's, with 2 iterations, `corrector_mlp="between"` and drawn slots; that of PSB (Singh et al., 2024),
    Appendix B.7, has 3 iterations, as many as PSB has layers. The predictor is STEVE's, or with `form` that of
    VideoSAUR (Zadaianchuk et al., 2023) and SlotContrast (Manasyan et al., 2025), with 2 iterations, and 3 at first.
    SAVi++ (Elsayed et al., 2022) is this core with a `condition`, behind `ResNetTransformerEncoder`, with depth as the
    target.

    Args:
        num_slots: slots per step.
        dim: width of a slot.
        num_iterations: corrections per frame.
        first_iterations: corrections by the first frame of a clip; `num_iterations` if None.
        num_heads: heads of the inverted attention, each a competition of its own.
        predictor_heads: heads of the predictor.
        mlp_ratio: hidden width of the MLPs in units of `dim`.
        corrector_mlp: after which iterations an MLP follows: "every", "between" (all but a frame's last), or "none".
        slot_init: "learned" has one vector per slot; "gaussian" draws the slots of each clip from one distribution.
        aggregation: makes the part that turns (assignment, values) into updates, from the width of a value.
        init: whose initial weights: those of STEVE's code ("steve"), of Slot Attention's ("slot_attention"), of
            VideoSAUR's ("videosaur"), or Xavier-uniform for every map, with slots drawn from a standard normal
            distribution ("plain"); see `slotbench.nn.slot_attention_init.initialise_slot_attention`.
        norm_eps: epsilon of the LayerNorms: 1e-5 in STEVE's code, 1e-6 in flax and with it in SAVi's.
        predictor_mlp_ratio: that of the predictor's, if it is another one; STEVE's code has 1 in the corrector and 4
            in the predictor.
        condition: what slots know of the objects in a clip's first frame: "none", "boxes" or "centres".
        form: whose corrector and predictor. In VideoSAUR's code, the GRU's state are the normalised slots, and the
            predictor is a `PreNormBlock`, with `sharp` attention and no LayerNorm at its ends.
    """

    attention_kind = "assignment"

    def __init__(
        self,
        token_spec: TokenSpec,
        num_slots: int = 8,
        dim: int = 64,
        num_iterations: int = 2,
        first_iterations: int | None = None,
        num_heads: int = 1,
        predictor_heads: int = 4,
        mlp_ratio: int = 4,
        corrector_mlp: CorrectorMLP = "every",
        slot_init: SlotInit = "learned",
        aggregation: Callable[[int], Aggregation] = WeightedMean,
        init: SlotAttentionInit = "steve",
        norm_eps: float = 1e-5,
        predictor_mlp_ratio: int | None = None,
        condition: Condition = "none",
        form: Literal["steve", "videosaur"] = "steve",
    ):
        super().__init__()
        check_iterations(num_iterations)
        if first_iterations is not None:
            check_iterations(first_iterations, "first_iterations")
        self.slot_spec = SlotSpec(num_slots, dim)
        self.slot_init = (
            initial_slots(slot_init, num_slots, dim)
            if condition == "none"
            else ConditionedSlots(num_slots, dim, condition, hidden_dim=2 * dim)
        )
        self.corrector = SlotCorrector(
            dim,
            token_spec.dim,
            num_heads,
            mlp_ratio,
            corrector_mlp,
            aggregation=aggregation(dim // num_heads),
            norm_eps=norm_eps,
            normalised_state=form == "videosaur",
        )
        of_predictor = mlp_ratio if predictor_mlp_ratio is None else predictor_mlp_ratio
        self.predictor = (
            SlotPredictor(dim, predictor_heads, of_predictor, norm_eps)
            if form == "steve"
            else PreNormBlock(dim, predictor_heads, of_predictor, sharp=True, norm_eps=norm_eps)
        )
        initialise_slot_attention(init, self.slot_init, self.corrector, self.predictor)
        self.num_iterations = num_iterations
        self.first_iterations = first_iterations

    def initial_state(self, tokens: Float[Tensor, "batch tokens token_dim"]) -> SAViStart:
        """Initial slots for each clip, learned or drawn."""
        return SAViStart(self.slot_init(tokens.shape[0]))

    def first_state(self, batch: VideoBatch) -> SAViStart | None:
        """With a `condition`, the initial slots of these clips."""
        return (
            SAViStart(self.slot_init.from_first_frame(batch)) if isinstance(self.slot_init, ConditionedSlots) else None
        )

    def forward(self, tokens: Float[Tensor, "batch time tokens token_dim"], state: State | None = None) -> CoreOutput:
        """Runs `cell` over the frames, whose keys and values are computed at once."""
        if state is None:
            state = self.initial_state(tokens[:, 0])
        slots, attention = [], []
        for frame in self.corrector.frames(tokens, state.slots.shape[1], self.num_iterations):
            corrected, shares, state = self.cell(frame, state)
            slots.append(corrected)
            attention.append(shares)
        return CoreOutput(torch.stack(slots, dim=1), torch.stack(attention, dim=1), state, "assignment")

    def cell(
        self, inputs: Float[Tensor, "batch tokens token_dim"] | Memory, state: SAViStart | SAViState
    ) -> tuple[Float[Tensor, "batch slots dim"], Float[Tensor, "batch slots tokens"], SAViState]:
        """One frame: (corrected slots, who won which token, state); `inputs` are tokens, or of `corrector.frames`."""
        if isinstance(state, SAViStart):
            first = self.num_iterations if self.first_iterations is None else self.first_iterations
            slots, attention, statistics = self.corrector(state.slots, inputs, first)
        else:
            predicted = self.predictor(state.slots)
            slots, attention, statistics = self.corrector(predicted, inputs, self.num_iterations, state.statistics)
        return slots, attention, SAViState(slots, statistics)
