"""ALTSCOFF: RIM whose modules choose among GRUs that all of them share."""

from __future__ import annotations

from typing import Literal

from slotbench.interfaces import TokenSpec
from slotbench.nn.slot_init import SlotInit
from slotbench_plugins.cores.rim.cell import Communication, InputAttention
from slotbench_plugins.cores.rim.frame_slots import FrameSlots, SlotNorm
from slotbench_plugins.cores.rim.mechanisms import CommunicationMode, Initial, Parts, check_modules
from slotbench_plugins.cores.rim.schemata import ObjectFiles, Schemata

_SCHEMA_KEY_DIM = 64


class ALTSCOFF(ObjectFiles):
    """RIM whose modules choose at every step among a few shared GRUs in the place of having one each.

    Queries and communication belong to a module, so there are as many as in training. All else is as in `SCOFF`,
    experimental too, and `ALTSCOFF.thesis` has the settings of the thesis' code.

    Source: the code of Lin, "Modular Neural Networks for Video Prediction", M.Sc. thesis, TU Delft, 2022,
    `AltSCOFFCell`.

    Arguments that are not explained here are those of `SCOFF` and of `Mechanisms`.

    Args:
        communication_output: what follows its heads, as in `RIM`.
        communication_dropout: probability, as in `RIM`.
        projection_std: standard deviation of the initial weights of each file's own maps; Xavier-uniform if None.
    """

    def __init__(
        self,
        token_spec: TokenSpec,
        num_slots: int = 6,
        dim: int = 64,
        num_schemata: int = 2,
        num_inputs: int | None = None,
        slot_dim: int = 64,
        slot_iterations: int = 3,
        slot_mlp_dim: int = 128,
        slot_norm: SlotNorm = "vector",
        slot_init: SlotInit = "gaussian",
        top_k: int | None = None,
        initial: Initial = "learned",
        input_attention: Literal["competitive", "standard"] = "competitive",
        input_key_dim: int = 64,
        input_value_dim: int = 64,
        input_dropout: float = 0.1,
        scaled: bool = True,
        temperature: float = 0.5,
        sample_in_evaluation: bool = False,
        communication: CommunicationMode = "full",
        communication_heads: int = 4,
        communication_key_dim: int = 16,
        communication_value_dim: int = 16,
        communication_output: Literal["linear", "gated"] = "gated",
        communication_dropout: float = 0.1,
        disabled_slots: tuple[int, ...] = (),
        projection_std: float | None = None,
    ):
        top_k = num_slots if top_k is None else top_k
        check_modules(num_slots, top_k)
        encoder: FrameSlots | None = None
        if num_inputs is not None:
            numbers = (num_inputs, slot_dim, slot_iterations, slot_mlp_dim)
            encoder = FrameSlots(token_spec.dim, *numbers, slot_norm, slot_init=slot_init)
        input_dim = token_spec.dim if encoder is None else slot_dim
        parts = Parts(
            encoder,
            InputAttention(
                num_slots,
                dim,
                input_dim,
                input_key_dim,
                input_value_dim,
                normalisation=input_attention,
                std=projection_std,
                dropout=input_dropout,
            ),
            Schemata(
                num_schemata,
                input_value_dim,
                dim,
                _SCHEMA_KEY_DIM,
                share_keys=True,
                scaled=scaled,
                temperature=temperature,
            ),
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
                std=projection_std,
            ),
        )
        super().__init__(
            num_slots,
            dim,
            top_k,
            parts,
            initial=initial,
            communication=communication,
            disabled_slots=disabled_slots,
        )
        self.sample_in_evaluation = sample_in_evaluation

    @classmethod
    def thesis(
        cls, token_spec: TokenSpec, num_slots: int = 6, num_inputs: int | None = None, dim: int = 100
    ) -> ALTSCOFF:
        """The settings of the thesis' code: two schemata, and the rest as in `RIM.thesis`; evaluation draws."""
        return cls(
            token_spec,
            num_slots,
            dim,
            num_inputs=num_inputs,
            slot_dim=dim,
            slot_norm="joint",
            initial="normal",
            input_value_dim=2 * dim,
            scaled=False,
            sample_in_evaluation=True,
            communication_heads=2,
            communication_key_dim=32,
            communication_value_dim=dim,
            communication_output="linear",
            projection_std=0.01,
        )
