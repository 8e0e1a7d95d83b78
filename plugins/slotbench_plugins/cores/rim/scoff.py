"""SCOFF: object files, each with a state of its own, that choose among schemata which all of them share."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from slotbench.interfaces import TokenSpec
from slotbench.nn.slot_init import SlotInit
from slotbench_plugins.cores.rim.cell import Communication, InputAttention, NullRow
from slotbench_plugins.cores.rim.frame_slots import FrameSlots, SlotNorm
from slotbench_plugins.cores.rim.mechanisms import CommunicationMode, Parts, check_modules
from slotbench_plugins.cores.rim.schemata import ObjectFiles, Schemata

_SCHEMA_KEY_DIM = 16
"""Width of the queries and keys by which files choose."""


class SCOFF(ObjectFiles):
    """Schemata / object files: files compete for the inputs, choose one of the shared GRUs each, and communicate.

    No parameter belongs to a file: what tells files apart is the noise that they start from. `num_slots` may be set to
    another number after training. In training the choice of a schema is drawn (Gumbel, straight-through); in evaluation
    it is the largest score, unless `sample_in_evaluation`.

    `CoreOutput.details` has what `OCRIM` has, and `schemata`, the choices one-hot: `slotbench.metrics.usage_entropy` of
    them says whether one schema takes everything.

    Experimental: in the thesis all of ten object-centric trainings diverged at some epoch. The defaults differ from its
    code where this may matter: scores are divided by the root of their width, there is a null input, and evaluation
    does not draw. `SCOFF.thesis` has the settings of the code.

    Source: Goyal et al., "Object Files and Schemata", 2020, as Lin, "Modular Neural Networks for Video Prediction",
    M.Sc. thesis, TU Delft, 2022, section 3.5, describes it.

    Arguments that are not explained here are those of `Mechanisms`.

    Args:
        num_schemata: GRUs that the files share.
        num_inputs: slots of a frame that Slot Attention finds before (OC-SCOFF); None for the tokens themselves.
        slot_dim: width of a frame's slot.
        slot_iterations: corrections per frame.
        slot_mlp_dim: hidden width of the MLP of the slot attention.
        slot_norm: as in `OCRIM`.
        slot_init: where the slots of a frame start, as in `OCRIM`.
        input_attention: what is normalised first, see `InputAttention`.
        input_key_dim: width of the queries and keys of the input attention.
        input_value_dim: width of what a file reads; `dim` if None.
        input_dropout: probability of dropout on its weights.
        null_row: where the null input stands; "none" for no null input, as in the thesis' code.
        scaled: whether the scores of the schemata are divided by the root of their width.
        temperature: of the softmax whose gradient trains the choice; `core.temperature` may be set to anneal it.
        sample_in_evaluation: whether the choice is drawn in evaluation too, by the number of the clip and the step.
        communication_heads: heads of the communication.
        communication_key_dim: width of its queries and keys, per head.
        communication_value_dim: width of its values, per head.
        communication_dropout: probability of dropout before its tanh.
    """

    def __init__(
        self,
        token_spec: TokenSpec,
        num_slots: int = 6,
        dim: int = 64,
        num_schemata: int = 3,
        num_inputs: int | None = None,
        slot_dim: int = 64,
        slot_iterations: int = 3,
        slot_mlp_dim: int = 128,
        slot_norm: SlotNorm = "vector",
        slot_init: SlotInit = "gaussian",
        top_k: int | None = None,
        input_attention: Literal["competitive", "standard"] = "competitive",
        input_key_dim: int = 64,
        input_value_dim: int | None = None,
        input_dropout: float = 0.1,
        null_row: NullRow = "last",
        scaled: bool = True,
        temperature: float = 0.5,
        sample_in_evaluation: bool = False,
        communication: CommunicationMode = "full",
        communication_heads: int = 2,
        communication_key_dim: int = 32,
        communication_value_dim: int = 32,
        communication_dropout: float = 0.1,
        disabled_slots: tuple[int, ...] = (),
    ):
        all_active, top_k = top_k is None, num_slots if top_k is None else top_k
        check_modules(num_slots, top_k)
        encoder: FrameSlots | None = None
        if num_inputs is not None:
            numbers = (num_inputs, slot_dim, slot_iterations, slot_mlp_dim)
            encoder = FrameSlots(token_spec.dim, *numbers, slot_norm, slot_init=slot_init)
        value_dim = dim if input_value_dim is None else input_value_dim
        parts = Parts(
            encoder,
            InputAttention(
                num_slots,
                dim,
                token_spec.dim if encoder is None else slot_dim,
                input_key_dim,
                value_dim,
                normalisation=input_attention,
                share_query=True,
                null_row=null_row,
                dropout=input_dropout,
            ),
            Schemata(num_schemata, value_dim, dim, _SCHEMA_KEY_DIM, scaled=scaled, temperature=temperature),
            None
            if communication == "off"
            else Communication(
                num_slots,
                dim,
                communication_heads,
                communication_key_dim,
                communication_value_dim,
                "gated",
                communication_dropout,
                shared=True,
            ),
        )
        super().__init__(
            num_slots,
            dim,
            top_k,
            parts,
            initial="normal",
            communication=communication,
            disabled_slots=disabled_slots,
        )
        self.sample_in_evaluation = sample_in_evaluation
        self.all_active = all_active

    @property
    def num_slots(self) -> int:
        """Object files. May be set to another number, after training too, for clips that begin then."""
        return self.slot_spec.num_slots

    @num_slots.setter
    def num_slots(self, value: int) -> None:
        top_k = value if self.all_active else self.top_k
        check_modules(value, top_k)
        self.slot_spec, self.top_k = replace(self.slot_spec, num_slots=value), top_k
        self.disabled_slots = tuple(index for index in self.disabled_slots if index < value)

    @classmethod
    def thesis(cls, token_spec: TokenSpec, num_slots: int = 6, num_inputs: int | None = None, dim: int = 100) -> SCOFF:
        """The settings of the thesis' code for SCOFF, or with `num_inputs` OC-SCOFF; initial weights are ours.

        There is no null input, scores are not scaled, and evaluation draws.
        """
        return cls(
            token_spec,
            num_slots,
            dim,
            num_inputs=num_inputs,
            slot_dim=dim,
            slot_norm="joint",
            null_row="none",
            scaled=False,
            sample_in_evaluation=True,
        )
