"""Recurrent independent mechanisms: modules with weights of their own, few of them active at a time."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

from slotbench.interfaces import TokenSpec
from slotbench.nn.slot_encoder import SlotEncoder
from slotbench_plugins.cores.rim.cell import Communication, InputAttention
from slotbench_plugins.cores.rim.groups import group_units
from slotbench_plugins.cores.rim.mechanisms import CommunicationMode, Initial, Mechanisms, Parts, check_modules

RIMInit = Literal["plain", "thesis", "original"]


class RIM(Mechanisms):
    """Recurrent Independent Mechanisms: recurrent modules that compete for the input and communicate sparsely.

    At every step each module attends to the inputs and to a null input of zeros. The `top_k` modules that attend least
    to the null input are active: they update their state with what they read, and then attend to all modules. The
    others keep their state to the bit, and no gradient reaches their units. The states of the modules are the slots.

    The defaults are those of the SlotSSM paper's comparison in small: a slot encoder, as all slot cores have it, makes
    the inputs. `RIM.thesis` and `RIM.original` have the settings of the two sources.

    `CoreOutput.attention` is what the active modules read, in terms of the tokens. It sums to less than 1, since a part
    goes to the null input, and is zero for modules that are not active. `CoreOutput.details` has `active`, `reads` and,
    unless the communication is off, `communication`, the mean over its heads; see `slotbench.interfaces.CoreOutput`.

    `core.communication_mode` and `core.disabled_slots` may be changed on a trained core, to see what the modules are
    without one another.

    Source: Goyal, Lamb, Hoffmann, Sodhani, Levine, Bengio, Schölkopf, "Recurrent Independent Mechanisms", ICLR 2021;
    Lin, "Modular Neural Networks for Video Prediction", M.Sc. thesis, TU Delft, 2022, section 3.3. Where the two
    differ, see docs/papers/rim.md.

    Arguments that are not explained here are those of `Mechanisms`.

    Args:
        top_k: active modules per step; two thirds of them, rounded, if None (4 of 6, as in the original).
        num_inputs: a slot encoder reads the tokens of a step into so many inputs ("num_slots": as many as there are
            modules); None for the tokens themselves.
        num_heads: heads of the slot encoder.
        encoder_layers: self-cross layers of the slot encoder.
        mlp_ratio: hidden width of the slot encoder's MLPs in units of `dim`.
        cell_type: recurrent unit of every module.
        input_attention: what is normalised first, see `InputAttention`.
        input_heads: heads of the input attention.
        input_key_dim: width of its queries and keys.
        input_value_dim: width of what a module reads.
        input_dropout: probability of its dropout.
        input_dropout_on: whether that is on the weights or on what has been read.
        null_row: where the null input stands among the inputs; of no effect on slots and gradients.
        communication_heads: heads of the communication.
        communication_key_dim: width of its queries and keys, per head.
        communication_value_dim: width of its values, per head.
        communication_output: what follows its heads, see `Communication`. "linear" has no bound:
            start it small (`projection_std`), as the thesis does, or the states can grow without end.
        communication_dropout: probability, on its weights ("linear") or output ("gated").
        projection_std: standard deviation of the initial weights of the modules' own projections; if None, that of
            `init`, which is Xavier's for "plain" and 0.01 for the others.
        init: initial weights of keys, values, units and gate: ours ("plain"), or those of the "thesis" or of the
            "original" authors' code, whose LSTMs have biases.
    """

    def __init__(
        self,
        token_spec: TokenSpec,
        num_slots: int = 8,
        dim: int = 64,
        top_k: int | None = None,
        num_inputs: int | Literal["num_slots"] | None = "num_slots",
        num_heads: int = 4,
        encoder_layers: int = 3,
        mlp_ratio: int = 4,
        cell_type: Literal["gru", "lstm"] = "gru",
        initial: Initial = "learned",
        input_attention: Literal["competitive", "standard"] = "competitive",
        input_heads: int = 1,
        input_key_dim: int = 64,
        input_value_dim: int = 64,
        input_dropout: float = 0.1,
        input_dropout_on: Literal["weights", "read"] = "weights",
        null_row: Literal["first", "last"] = "last",
        communication: CommunicationMode = "full",
        communication_heads: int = 4,
        communication_key_dim: int = 16,
        communication_value_dim: int = 16,
        communication_output: Literal["linear", "gated"] = "gated",
        communication_dropout: float = 0.1,
        expose_inactive_update: bool = False,
        mask_inactive_reads: bool = True,
        projection_std: float | None = None,
        disabled_slots: tuple[int, ...] = (),
        init: RIMInit = "plain",
        evaluation_top_k: int | None = None,
    ):
        top_k = round(2 * num_slots / 3) if top_k is None else top_k
        check_modules(num_slots, top_k)
        if projection_std is None and init != "plain":
            projection_std = 0.01
        encoder: SlotEncoder | None = None
        if num_inputs is not None:
            count = num_slots if num_inputs == "num_slots" else num_inputs
            encoder = SlotEncoder(token_spec.dim, count, dim, encoder_layers, num_heads, mlp_ratio)
        parts = Parts(
            encoder,
            InputAttention(
                num_slots,
                dim,
                token_spec.dim if encoder is None else dim,
                input_key_dim,
                input_value_dim,
                input_heads,
                input_attention,
                null_row=null_row,
                std=projection_std,
                dropout=input_dropout,
                dropout_on=input_dropout_on,
            ),
            group_units(cell_type, num_slots, input_value_dim, dim, lstm_bias=init == "original"),
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
            expose_inactive_update=expose_inactive_update,
            mask_inactive_reads=mask_inactive_reads,
            disabled_slots=disabled_slots,
            evaluation_top_k=evaluation_top_k,
        )
        self.cell_type = cell_type
        if init != "plain":
            self._start_as_published(init)

    @torch.no_grad()
    def _start_as_published(self, init: RIMInit) -> None:
        """The initial weights of the thesis' or the authors' code, where they are not those of the layers here."""
        for layer in (self.input_attention.key, self.input_attention.value):
            if init == "original":
                nn.init.normal_(layer.weight, std=0.01)
            else:
                layer.reset_parameters()
        if init == "original":
            # its units are one GRU or LSTM as wide as all modules together, with what lies between modules set to zero
            bound = (self.slot_spec.num_slots * self.slot_spec.dim) ** -0.5
            for parameter in self.units.parameters():
                nn.init.uniform_(parameter, -bound, bound)
            if self.communication is not None and self.communication.gated:
                self.communication.output.reset_parameters()  # type: ignore[operator]

    @classmethod
    def thesis(cls, token_spec: TokenSpec, num_slots: int = 6, top_k: int = 6, dim: int = 100) -> RIM:
        """The settings of the thesis, dense as in its best results; the tokens themselves are the inputs.

        Source: its Table 4.1, and its code where the table is silent or differs (start from noise, heads, start of the
        projections' weights, what others see of modules that are not active).
        """
        return cls(
            token_spec,
            num_slots,
            dim,
            top_k,
            num_inputs=None,
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
    def original(
        cls,
        token_spec: TokenSpec,
        num_slots: int = 6,
        top_k: int = 4,
        dim: int = 100,
        cell_type: Literal["gru", "lstm"] = "gru",
    ) -> RIM:
        """The settings of the RIM authors' code; the tokens themselves are the inputs.

        Modules that are not active read and step as the others do, and the others see it; only in the end they are put
        back to the state that they had.

        Source: github.com/anirudh9119/RIMs, event_based/blocks_core.py and attention.py. There the key and value maps
        differ from input to input; here they do not, which is the same for a single input, as in the authors' runs.
        """
        return cls(
            token_spec,
            num_slots,
            dim,
            top_k,
            num_inputs=None,
            cell_type=cell_type,
            initial="zeros",
            input_attention="standard",
            input_value_dim=4 * dim,
            input_dropout_on="read",
            null_row="first",
            expose_inactive_update=True,
            mask_inactive_reads=False,
            init="original",
        )
