"""Object-centric RIM: the slots of each frame are what recurrent independent mechanisms compete for."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from slotbench.interfaces import CoreOutput, SlotSpec, State, TokenSpec
from slotbench.nn.slot_init import SlotInit
from slotbench_plugins.cores.rim.cell import Communication, InputAttention
from slotbench_plugins.cores.rim.frame_slots import FrameSlots, SlotInputs, SlotNorm
from slotbench_plugins.cores.rim.groups import group_units
from slotbench_plugins.cores.rim.mechanisms import CommunicationMode, Initial, Parts, check_modules


class OCRIM(SlotInputs):
    """Slot Attention finds the slots of each frame alone; modules with weights of their own compete for these.

    The output slots are the states of the modules, so `num_slots` counts modules, and `num_inputs` the slots of a
    frame. These are drawn anew for every frame, in training from torch's global generator, and in evaluation from the
    numbers of the clip and of the step alone; `slot_init` can change that. With `num_inputs=None` there is no slot
    attention: the tokens are what modules compete for.

    `CoreOutput.attention` is what the active modules read, in terms of the tokens: their attention to the slots times
    where the slots come from. `CoreOutput.details` has what `RIM` has, and `inputs`, which slot of a frame has won each
    token. `core.communication_mode` and `core.disabled_slots` may be changed
    on a trained core.

    Source: Lin, "Modular Neural Networks for Video Prediction", M.Sc. thesis, TU Delft, 2022, section 3.4 and Eq
    3.20-3.23. The settings of its text and its code are `OCRIM.thesis` and `OCRIM.code`; see docs/papers/rim.md.

    Arguments that are not explained here are those of `Mechanisms`.

    Args:
        num_inputs: slots of a frame; None for the tokens themselves.
        slot_dim: width of a frame's slot.
        slot_iterations: corrections per frame.
        slot_mlp_dim: hidden width of the MLP of the slot attention.
        slot_norm: "vector" for LayerNorms of single vectors, as in Slot Attention; "joint" for those of the thesis'
            code over all vectors of a set together, with the GRU on the normalised slots.
        slot_init: where a frame's slots start: drawn anew for every frame, as in the thesis ("gaussian"), or from one
            learned vector each, the same in every frame ("learned"). What is drawn hides the frame from modules that
            have learned nothing yet: see docs/papers/rim.md, which has measurements.
        cell_type: recurrent unit of every module.
        input_attention: what is normalised first, see `InputAttention`.
        input_key_dim: width of its queries and keys.
        input_value_dim: width of what a module reads.
        input_dropout: probability of dropout on its weights.
        communication_heads: heads of the communication.
        communication_key_dim: width of its queries and keys, per head.
        communication_value_dim: width of its values, per head.
        communication_output: what follows its heads, as in `RIM`.
        communication_dropout: probability, as in `RIM`.
        head_dim: hidden width of an MLP that turns the modules' states into slots as wide as those of a frame; None for
            the states as slots. The thesis' code has 256, where it does so.
        init: initial weights: ours ("plain"), or those of the thesis' code.
    """

    def __init__(
        self,
        token_spec: TokenSpec,
        num_slots: int = 6,
        dim: int = 64,
        num_inputs: int | None = 3,
        slot_dim: int = 64,
        slot_iterations: int = 3,
        slot_mlp_dim: int = 128,
        slot_norm: SlotNorm = "vector",
        slot_init: SlotInit = "gaussian",
        top_k: int | None = None,
        cell_type: Literal["gru", "lstm"] = "gru",
        initial: Initial = "learned",
        input_attention: Literal["competitive", "standard"] = "competitive",
        input_key_dim: int = 64,
        input_value_dim: int = 64,
        input_dropout: float = 0.1,
        communication: CommunicationMode = "full",
        communication_heads: int = 4,
        communication_key_dim: int = 16,
        communication_value_dim: int = 16,
        communication_output: Literal["linear", "gated"] = "gated",
        communication_dropout: float = 0.1,
        expose_inactive_update: bool = False,
        disabled_slots: tuple[int, ...] = (),
        head_dim: int | None = None,
        init: Literal["plain", "thesis"] = "plain",
        evaluation_top_k: int | None = None,
    ):
        top_k = num_slots if top_k is None else top_k
        check_modules(num_slots, top_k)
        if head_dim is not None and (num_inputs is None or head_dim < 1):
            raise ValueError(f"head_dim={head_dim} makes slots like those of a frame: give num_inputs, and 1 or more")
        std = None if init == "plain" else 0.01
        encoder = None
        if num_inputs is not None:
            encoder = FrameSlots(
                token_spec.dim,
                num_inputs,
                slot_dim,
                slot_iterations,
                slot_mlp_dim,
                slot_norm,
                slot_init=slot_init,
                init=init,
            )
        parts = Parts(
            encoder,
            InputAttention(
                num_slots,
                dim,
                token_spec.dim if encoder is None else slot_dim,
                input_key_dim,
                input_value_dim,
                normalisation=input_attention,
                std=std,
                dropout=input_dropout,
            ),
            group_units(cell_type, num_slots, input_value_dim, dim),
            None
            if communication == "off"
            else Communication(
                num_slots,
                dim,
                communication_heads,
                communication_key_dim,
                communication_value_dim,
                communication_output,
                communication_dropout,
                std=std,
            ),
        )
        super().__init__(
            num_slots,
            dim,
            top_k,
            parts,
            initial=initial,
            communication=communication,
            expose_inactive_update=expose_inactive_update,
            disabled_slots=disabled_slots,
            evaluation_top_k=evaluation_top_k,
        )
        if init == "thesis":
            self.input_attention.key.reset_parameters()
            self.input_attention.value.reset_parameters()
        self.head: nn.Module | None = None
        if head_dim is not None:
            self.head = nn.Sequential(nn.Linear(dim, head_dim), nn.ReLU(), nn.Linear(head_dim, slot_dim))
            self.slot_spec = SlotSpec(num_slots, slot_dim)

    def forward(self, tokens: Float[Tensor, "batch time tokens token_dim"], state: State | None = None) -> CoreOutput:
        """The modules' states of every step, or the slots that the head makes of them."""
        output = super().forward(tokens, state)
        return output if self.head is None else replace(output, slots=self.head(output.slots))

    @classmethod
    def thesis(
        cls,
        token_spec: TokenSpec,
        num_slots: int = 6,
        num_inputs: int | None = 3,
        top_k: int | None = None,
        dim: int = 100,
        slot_dim: int = 64,
    ) -> OCRIM:
        """The settings of the thesis' text, its Table 4.1: slots of width 64; where it is silent, those of its code."""
        return cls(
            token_spec,
            num_slots,
            dim,
            num_inputs,
            slot_dim,
            slot_norm="joint",
            top_k=top_k,
            initial="normal",
            input_value_dim=2 * dim,
            communication_heads=2,
            communication_key_dim=32,
            communication_value_dim=dim,
            communication_output="linear",
            expose_inactive_update=True,
            init="thesis",
        )

    @classmethod
    def code(
        cls,
        token_spec: TokenSpec,
        num_slots: int = 6,
        num_inputs: int | None = 3,
        top_k: int | None = None,
        dim: int = 100,
    ) -> OCRIM:
        """The settings of the thesis' code, in which slots are as wide as the modules' states."""
        return cls.thesis(token_spec, num_slots, num_inputs, top_k, dim, slot_dim=dim)

    @classmethod
    def feature_flow(cls, token_spec: TokenSpec, num_slots: int = 6, top_k: int | None = None, dim: int = 100) -> OCRIM:
        """OC-RIM (FF) of the thesis: no slot attention, the modules compete for the tokens of the feature map."""
        return cls.thesis(token_spec, num_slots, None, top_k, dim)
