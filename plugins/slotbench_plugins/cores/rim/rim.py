"""Recurrent independent mechanisms: modules with weights of their own, few of them active at a time."""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from slotbench.interfaces import CoreStep, RecurrentCore, SlotSpec, TokenSpec
from slotbench.nn.parameters import without_decay
from slotbench.nn.slot_encoder import SlotEncoder
from slotbench_plugins.cores.rim.cell import (
    Communication,
    GroupGRU,
    GroupLSTM,
    InputAttention,
    block_gradient,
    most_relevant,
)

RIMInit = Literal["plain", "thesis", "original"]


class RIMState(NamedTuple):
    """What the modules remember: their states, and the memory cells of LSTMs."""

    hidden: Float[Tensor, "batch slots dim"]
    memory: Float[Tensor, "batch slots dim"] | None


class RIMInputs(NamedTuple):
    """What the steps of a `RIM` read, computed for all of them at once.

    Attributes:
        keys: of the inputs and of the null input.
        values: of the inputs and of the null input.
        attention: where in the tokens the encoder's slots looked, if there is an encoder.
    """

    keys: Float[Tensor, "batch *time rows key_dim"]
    values: Float[Tensor, "batch *time rows value_dim"]
    attention: Float[Tensor, "batch *time inputs tokens"] | None


class RIM(RecurrentCore):
    """Recurrent Independent Mechanisms: recurrent modules that compete for the input and communicate sparsely.

    At every step each module attends to the inputs and to a null input of zeros. The `top_k` modules that attend least
    to the null input are active: they update their state with what they read, and then attend to all modules. The
    others keep their state to the bit, and no gradient reaches their units. The states of the modules are the slots.

    The defaults are those of the SlotSSM paper's comparison in small: a slot encoder, as all slot cores have it, makes
    the inputs. `RIM.thesis` and `RIM.original` have the settings of the two sources.

    `CoreOutput.attention` is what the active modules read, in terms of the tokens. It sums to less than 1, since a part
    goes to the null input, and is zero for modules that are not active. `CoreOutput.details` has `active`, `reads` and,
    unless the communication is off, `communication`, the mean over its heads; see `slotbench.interfaces.CoreOutput`.

    `core.communication_mode` may be changed on a trained core to see what the modules are without one another.

    Source: Goyal, Lamb, Hoffmann, Sodhani, Levine, Bengio, Schölkopf, "Recurrent Independent Mechanisms", ICLR 2021;
    Lin, "Modular Neural Networks for Video Prediction", M.Sc. thesis, TU Delft, 2022, section 3.3. Where the two
    differ, see docs/papers/rim.md.

    Args:
        token_spec: what the encoder hands over.
        num_slots: modules.
        dim: width of a module's state.
        top_k: active modules per step; two thirds of them, rounded, if None (4 of 6, as in the original).
        num_inputs: a slot encoder reads the tokens of a step into so many inputs ("num_slots": as many as there are
            modules); None for the tokens themselves.
        num_heads: heads of the slot encoder.
        encoder_layers: self-cross layers of the slot encoder.
        mlp_ratio: hidden width of the slot encoder's MLPs in units of `dim`.
        cell_type: recurrent unit of every module.
        lstm_bias: whether LSTMs have biases; GRUs have them.
        initial: states before the first step: learned ones, zeros, or normal noise (anew for every clip in training,
            the same for all clips in evaluation).
        input_attention: what is normalised first, see `InputAttention`.
        input_heads: heads of the input attention.
        input_key_dim: width of its queries and keys.
        input_value_dim: width of what a module reads.
        input_bias: whether its keys and values have a bias.
        input_dropout: probability of its dropout.
        input_dropout_on: whether that is on the weights or on what has been read.
        share_query: whether all modules make their queries with one map; needs another start than zeros.
        null_row: where the null input stands among the inputs; of no effect on slots and gradients.
        communication: whether active modules attend to all modules, each to itself alone, or there is none.
        communication_heads: heads of the communication.
        communication_key_dim: width of its queries and keys, per head.
        communication_value_dim: width of its values, per head.
        communication_output: what follows its heads, see `Communication`. "linear" has no bound:
            start it small (`projection_std`), as the thesis does, or the states can grow without end.
        communication_dropout: probability, on its weights ("linear") or output ("gated").
        expose_inactive_update: whether others see, of a module that is not active, the state that it would have had, in
            place of the state that it keeps.
        mask_inactive_reads: whether a module that is not active reads zeros; otherwise it reads as the others do. It
            keeps its state either way, so this matters only to those who see its update (`expose_inactive_update`).
        projection_std: standard deviation of the initial weights of the modules' own projections; if None, that of
            `init`, which is Xavier's for "plain" and 0.01 for the others.
        init: initial weights of keys, values, units and gate: ours ("plain"), or those of the "thesis" or of the
            "original" authors' code.

    Raises:
        ValueError: `top_k` is not between 1 and `num_slots`, a size is below 1, `share_query` with a start from zeros,
            or `num_heads` does not divide `dim`.
    """

    autocast_tolerance: ClassVar[float] = 0.3
    """A rounding can decide which of two modules is active, and with it the whole state of both."""
    attention_kind = "reading"

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
        lstm_bias: bool = False,
        initial: Literal["learned", "zeros", "normal"] = "learned",
        input_attention: Literal["competitive", "standard"] = "competitive",
        input_heads: int = 1,
        input_key_dim: int = 64,
        input_value_dim: int = 64,
        input_bias: bool = False,
        input_dropout: float = 0.1,
        input_dropout_on: Literal["weights", "read"] = "weights",
        share_query: bool = False,
        null_row: Literal["first", "last"] = "last",
        communication: Literal["full", "self", "off"] = "full",
        communication_heads: int = 4,
        communication_key_dim: int = 16,
        communication_value_dim: int = 16,
        communication_output: Literal["linear", "gated"] = "gated",
        communication_dropout: float = 0.1,
        expose_inactive_update: bool = False,
        mask_inactive_reads: bool = True,
        projection_std: float | None = None,
        init: RIMInit = "plain",
    ):
        super().__init__()
        if num_slots < 1:
            raise ValueError(f"a RIM needs at least one module, got num_slots={num_slots}")
        self.top_k = round(2 * num_slots / 3) if top_k is None else top_k
        if not 1 <= self.top_k <= num_slots:
            raise ValueError(
                f"top_k={top_k} of num_slots={num_slots} modules cannot be active: "
                f"choose 1 to {num_slots}; {num_slots} means that all always are"
            )
        if share_query and initial == "zeros":
            raise ValueError(
                "share_query=True with initial='zeros' gives all modules the same query at the first step: "
                "use initial='learned' or 'normal'"
            )
        if projection_std is None and init != "plain":
            projection_std = 0.01
        self.slot_spec = SlotSpec(num_slots, dim)
        self.cell_type = cell_type
        self.initial = initial
        self.communication_mode = communication
        self.expose_inactive_update = expose_inactive_update
        self.mask_inactive_reads = mask_inactive_reads
        self.encoder: SlotEncoder | None = None
        if num_inputs is not None:
            count = num_slots if num_inputs == "num_slots" else num_inputs
            self.encoder = SlotEncoder(token_spec.dim, count, dim, encoder_layers, num_heads, mlp_ratio)
        self.input_attention = InputAttention(
            num_slots,
            dim,
            token_spec.dim if self.encoder is None else dim,
            input_key_dim,
            input_value_dim,
            input_heads,
            input_attention,
            share_query=share_query,
            bias=input_bias,
            null_row=null_row,
            std=projection_std,
        )
        self.input_dropout = nn.Dropout(input_dropout)
        self.drops_what_is_read = input_dropout_on == "read"
        self.units: GroupGRU | GroupLSTM
        if cell_type == "lstm":
            self.units = GroupLSTM(num_slots, input_value_dim, dim, bias=lstm_bias)
        else:
            self.units = GroupGRU(num_slots, input_value_dim, dim)
        self.communication: Communication | None = None
        if communication != "off":
            self.communication = Communication(
                num_slots,
                dim,
                communication_heads,
                communication_key_dim,
                communication_value_dim,
                communication_output,
                communication_dropout,
                std=projection_std,
            )
        if initial == "learned":
            leaves = 2 if cell_type == "lstm" else 1
            self.initial_modules = without_decay(nn.Parameter(torch.randn(leaves, num_slots, dim)))
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
            lstm_bias=True,
            initial="zeros",
            input_attention="standard",
            input_value_dim=4 * dim,
            input_dropout_on="read",
            null_row="first",
            expose_inactive_update=True,
            mask_inactive_reads=False,
            init="original",
        )

    def initial_state(self, tokens: Float[Tensor, "batch tokens token_dim"]) -> RIMState:
        """States as `initial` says, in the precision of the weights."""
        size, weight = (tokens.shape[0], self.slot_spec.num_slots, self.slot_spec.dim), self.units.hidden_weight
        leaves = 2 if self.cell_type == "lstm" else 1
        if self.initial == "learned":
            start = self.initial_modules[:, None].expand(leaves, *size)
        elif self.initial == "zeros":
            start = weight.new_zeros(leaves, *size)
        elif self.training:
            start = torch.randn(leaves, *size, dtype=weight.dtype, device=weight.device)
        else:
            noise = torch.randn(leaves, 1, *size[1:], generator=torch.Generator().manual_seed(0))
            start = noise.to(weight).expand(leaves, *size)
        return RIMState(start[0], start[1] if leaves == 2 else None)

    def per_step(self, tokens: Float[Tensor, "batch time tokens token_dim"]) -> RIMInputs:
        """Encodes the steps, if there is an encoder, and makes keys and values of them."""
        attention = None
        if self.encoder is not None:
            inputs, weights = self.encoder(tokens.flatten(0, 1))
            tokens, attention = (leaf.unflatten(0, tokens.shape[:2]) for leaf in (inputs, weights))
        return RIMInputs(*self.input_attention.keys_values(tokens), attention)

    def cell(self, inputs: RIMInputs, state: RIMState) -> CoreStep:
        """One step; the attention is what active modules read."""
        weights = self.input_attention(state.hidden, inputs.keys)
        reads = self.input_attention.null_last(weights)
        active, reading = None, weights
        if self.top_k < self.slot_spec.num_slots:
            active = most_relevant(self.input_attention.null_weights(weights), self.top_k)
            weights = weights * active[..., None]
            reading = weights if self.mask_inactive_reads else reading
        if not self.drops_what_is_read:
            reading = self.input_dropout(reading)
        read = torch.matmul(reading.to(inputs.values.dtype), inputs.values)
        if self.drops_what_is_read:
            read = self.input_dropout(read)
        after = self._update(read, state)
        hidden, heard = self._communicate(after.hidden, state.hidden, active)
        if active is not None:
            hidden = torch.where(active[..., None], hidden, state.hidden)
            if after.memory is not None and state.memory is not None:
                after = after._replace(memory=torch.where(active[..., None], after.memory, state.memory))
        attention = self.input_attention.input_weights(weights)
        if inputs.attention is not None:
            attention = torch.matmul(attention.to(inputs.attention.dtype), inputs.attention)
        all_active = weights.new_ones((), dtype=torch.bool).expand(weights.shape[:2])
        details = {"active": all_active if active is None else active, "reads": reads}
        if heard is not None:
            details["communication"] = heard
        return CoreStep(hidden, attention, after._replace(hidden=hidden), details)

    def _update(self, read: Float[Tensor, "batch slots value_dim"], state: RIMState) -> RIMState:
        if state.memory is None:
            return RIMState(self.units(read, state.hidden), None)
        return RIMState(*self.units(read, state.hidden, state.memory))

    def _communicate(
        self,
        updated: Float[Tensor, "batch slots dim"],
        before: Float[Tensor, "batch slots dim"],
        active: Bool[Tensor, "batch slots"] | None,
    ) -> tuple[Float[Tensor, "batch slots dim"], Float[Tensor, "batch slots slots"] | None]:
        """The updated states with what the modules heard from one another, and how much of each; None if nothing."""
        if self.communication is None or self.communication_mode == "off":
            return updated, None
        visible = updated
        if active is not None:
            chosen = active[..., None]
            # no gradient reaches the unit of a module that is not active, whichever of its states the others see
            visible = block_gradient(updated, chosen) if self.expose_inactive_update else updated.where(chosen, before)
        change, heard = self.communication.listen(visible, active, self.communication_mode)
        return visible + change, heard
