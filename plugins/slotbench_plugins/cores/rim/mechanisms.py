"""What the cores of the RIM family share: modules that compete for inputs, update themselves and communicate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from slotbench.interfaces import CoreOutput, CoreStep, RecurrentCore, SlotSpec, State
from slotbench.nn.parameters import without_decay
from slotbench_plugins.cores.rim.cell import Communication, InputAttention, block_gradient, most_relevant
from slotbench_plugins.cores.rim.draws import Draws
from slotbench_plugins.cores.rim.groups import GroupLSTM

__all__ = ["CommunicationMode", "Initial", "Mechanisms", "Parts", "RIMInputs", "RIMState", "check_modules"]

Initial = Literal["learned", "zeros", "normal"]
"""States before the first step."""

CommunicationMode = Literal["full", "self", "off"]
"""Whom modules hear: all, each itself alone, or none."""


class RIMState(NamedTuple):
    """What the modules remember.

    Attributes:
        hidden: their states.
        memory: the memory cells of LSTMs.
        draws: where the clips stand, of a core that draws.
    """

    hidden: Float[Tensor, "batch slots dim"]
    memory: Float[Tensor, "batch slots dim"] | None
    draws: Draws | None = None


class RIMInputs(NamedTuple):
    """What the modules read, computed for all steps at once.

    Attributes:
        keys: of the inputs and of the null input.
        values: of the inputs and of the null input.
        attention: where in the tokens the inputs come from, if something makes them out of the tokens.
        assignment: which input has won each token, where inputs compete for tokens.
        noise: of the step, for a core that draws in its units.
        slots: the inputs themselves, if something makes them out of the tokens.
    """

    keys: Float[Tensor, "batch *time rows key_dim"]
    values: Float[Tensor, "batch *time rows value_dim"]
    attention: Float[Tensor, "batch *time inputs tokens"] | None = None
    assignment: Float[Tensor, "batch *time inputs tokens"] | None = None
    noise: Float[Tensor, "batch *time slots choices"] | None = None
    slots: Float[Tensor, "batch *time inputs input_dim"] | None = None


class Parts(NamedTuple):
    """What modules are made of.

    Attributes:
        encoder: makes the inputs out of the tokens; None where the tokens are the inputs.
        input_attention: by which modules read the inputs.
        units: by which modules update themselves: (read, state) to a state, for LSTMs (read, state, memory) to both.
        communication: by which modules hear one another, if they do.
    """

    encoder: nn.Module | None
    input_attention: InputAttention
    units: nn.Module
    communication: Communication | None


def check_modules(num_slots: int, top_k: int, name: str = "top_k") -> None:
    """Raises ValueError unless there is a module, and `top_k` of them can be active."""
    if num_slots < 1:
        raise ValueError(f"there must be at least one module, got num_slots={num_slots}")
    if not 1 <= top_k <= num_slots:
        raise ValueError(
            f"{name}={top_k} of num_slots={num_slots} modules cannot be active: "
            f"choose 1 to {num_slots}; {num_slots} means that all always are"
        )


class Mechanisms(RecurrentCore):
    """A core whose slots are the states of modules; a subclass makes the parts and says what the inputs are.

    Args:
        num_slots: modules.
        dim: width of a module's state.
        top_k: active modules per step; all of them if None.
        parts: what the modules are made of.
        initial: states before the first step: learned ones, zeros, or normal noise (anew for every clip in training,
            the same for all clips in evaluation).
        communication: whether active modules attend to all modules ("full"), each to itself alone ("self"), or there
            is none ("off").
        expose_inactive_update: whether others see, of a module that is not active, the state that it would have had, in
            place of the state that it keeps.
        mask_inactive_reads: whether a module that is not active reads zeros; otherwise it reads as the others do. It
            keeps its state either way, so this matters only to those who see its update (`expose_inactive_update`).
        disabled_slots: modules that are switched off: they neither compete for inputs nor are heard, and their states
            are zero. May be set on a trained core, to see what the others do without them.
        evaluation_top_k: active modules per step in evaluation, for models that are trained with few and tested with
            more; as many as in training if None.
    """

    autocast_tolerance: ClassVar[float] = 0.3
    """A rounding can decide which of two modules is active, and with it the whole state of both."""
    attention_kind = "reading"

    def __init__(
        self,
        num_slots: int,
        dim: int,
        top_k: int,
        parts: Parts,
        *,
        initial: Initial = "learned",
        communication: CommunicationMode = "full",
        expose_inactive_update: bool = False,
        mask_inactive_reads: bool = True,
        disabled_slots: Sequence[int] = (),
        evaluation_top_k: int | None = None,
    ):
        super().__init__()
        if evaluation_top_k is not None:
            check_modules(num_slots, evaluation_top_k, "evaluation_top_k")
        self.slot_spec = SlotSpec(num_slots, dim)
        self.state_dim = dim
        self.top_k = top_k
        self.evaluation_top_k = evaluation_top_k
        self.initial = initial
        self.communication_mode = communication
        self.expose_inactive_update = expose_inactive_update
        self.mask_inactive_reads = mask_inactive_reads
        self.disabled_slots = tuple(disabled_slots)
        self.encoder, self.input_attention, self.units, self.communication = parts
        self.has_memory = isinstance(self.units, GroupLSTM)
        if initial == "learned":
            self.initial_modules = without_decay(nn.Parameter(torch.randn(1 + self.has_memory, num_slots, dim)))

    @property
    def num_active(self) -> int:
        """How many modules are active per step: `top_k`, or in evaluation `evaluation_top_k` where that is given."""
        return self.top_k if self.training or self.evaluation_top_k is None else self.evaluation_top_k

    @property
    def disabled_slots(self) -> tuple[int, ...]:
        """Modules that are switched off."""
        return self._disabled_slots

    @disabled_slots.setter
    def disabled_slots(self, value: Sequence[int]) -> None:
        modules = range(self.slot_spec.num_slots)
        wrong = [index for index in value if index not in modules]
        if wrong or len(set(value)) == len(modules):
            raise ValueError(
                f"disabled_slots={tuple(value)} of {len(modules)} modules: give numbers from 0 to {len(modules) - 1}, "
                "and leave at least one module"
            )
        self._disabled_slots = tuple(sorted(set(value)))

    def initial_state(self, tokens: Float[Tensor, "batch tokens token_dim"]) -> RIMState:
        """States as `initial` says, in the precision of the weights."""
        size, weight = (tokens.shape[0], self.slot_spec.num_slots, self.state_dim), self.input_attention.key.weight
        leaves = 1 + self.has_memory
        if self.initial == "learned":
            start = self.initial_modules[:, None].expand(leaves, *size)
        elif self.initial == "zeros":
            start = weight.new_zeros(leaves, *size)
        elif self.training:
            start = torch.randn(leaves, *size, dtype=weight.dtype, device=weight.device)
        else:
            noise = torch.randn(leaves, 1, *size[1:], generator=torch.Generator().manual_seed(0))
            start = noise.to(weight).expand(leaves, *size)
        return RIMState(start[0], start[1] if self.has_memory else None)

    def forward(self, tokens: Float[Tensor, "batch time tokens token_dim"], state: State | None = None) -> CoreOutput:
        """Runs `cell` over the steps of the clip."""
        if state is None:
            state = self.initial_state(tokens[:, 0])
        inputs = self.per_step(tokens) if state.draws is None else self.per_step(tokens, state.draws)
        output = self.run(inputs, state)
        if state.draws is not None:
            step = state.draws.step + tokens.shape[1]
            output.state = output.state._replace(draws=state.draws._replace(step=step))
        return output

    def per_step(self, tokens: Float[Tensor, "batch time tokens token_dim"], draws: Draws | None = None) -> RIMInputs:
        """Keys and values of the tokens, or of what the encoder makes of those of each step."""
        if self.encoder is None:
            return RIMInputs(*self.input_attention.keys_values(tokens))
        inputs, attention = self.encoder(tokens)
        return RIMInputs(*self.input_attention.keys_values(inputs), attention, slots=inputs)

    def cell(self, inputs: RIMInputs, state: RIMState) -> CoreStep:
        """One step; the attention is what active modules read."""
        enabled = self._enabled(state.hidden)
        weights, active = self._attend(inputs.keys, state.hidden, enabled)
        chosen, reading = weights, weights
        if active is not None:
            chosen = weights * active[..., None]
            reading = chosen if self.mask_inactive_reads else weights
        after, details = self._update(self.input_attention.read(reading, inputs.values), state, inputs.noise)
        hidden, heard = self._communicate(after.hidden, state.hidden, active, enabled)
        if active is not None:
            hidden = torch.where(active[..., None], hidden, state.hidden)
            if after.memory is not None and state.memory is not None:
                after = after._replace(memory=torch.where(active[..., None], after.memory, state.memory))
        after = after._replace(hidden=hidden)
        if enabled is not None:
            memory = None if after.memory is None else torch.where(enabled[:, None], after.memory, 0)
            after = after._replace(hidden=torch.where(enabled[:, None], hidden, 0), memory=memory)
            weights = weights * enabled[:, None]
        attention = self.input_attention.input_weights(chosen)
        if inputs.attention is not None:
            attention = torch.matmul(attention.to(inputs.attention.dtype), inputs.attention)
        all_active = weights.new_ones((), dtype=torch.bool).expand(weights.shape[:2])
        details["active"] = all_active if active is None else active
        details["reads"] = self.input_attention.null_last(weights)
        details |= {} if heard is None else {"communication": heard}
        details |= {} if inputs.assignment is None else {"inputs": inputs.assignment}
        return CoreStep(after.hidden, attention, after, details)

    def _enabled(self, hidden: Tensor) -> Bool[Tensor, " slots"] | None:
        """Which modules are not disabled; None for all."""
        if not self.disabled_slots:
            return None
        modules = range(hidden.shape[1])
        return torch.tensor([index not in self.disabled_slots for index in modules], device=hidden.device)

    def _attend(
        self, keys: Tensor, hidden: Tensor, enabled: Bool[Tensor, " slots"] | None
    ) -> tuple[Float[Tensor, "batch slots rows"], Bool[Tensor, "batch slots"] | None]:
        """(what each module attends to, which are active; None for all)."""
        weights = self.input_attention(hidden, keys, enabled)
        count = min(self.num_active, hidden.shape[1] - len(self.disabled_slots))
        if count == hidden.shape[1]:
            return weights, None
        null = self.input_attention.null_weights(weights)
        if enabled is not None:
            null = null.masked_fill(~enabled, torch.inf)
        return weights, most_relevant(null, count)

    def _update(
        self, read: Float[Tensor, "batch slots value_dim"], state: RIMState, noise: Tensor | None
    ) -> tuple[RIMState, dict[str, Tensor]]:
        """(the states that all modules would have, details)."""
        if state.memory is None:
            return state._replace(hidden=self.units(read, state.hidden)), {}
        hidden, memory = self.units(read, state.hidden, state.memory)
        return state._replace(hidden=hidden, memory=memory), {}

    def _communicate(
        self,
        updated: Float[Tensor, "batch slots dim"],
        before: Float[Tensor, "batch slots dim"],
        active: Bool[Tensor, "batch slots"] | None,
        enabled: Bool[Tensor, " slots"] | None,
    ) -> tuple[Float[Tensor, "batch slots dim"], Float[Tensor, "batch slots slots"] | None]:
        """The updated states with what the modules heard from one another, and how much of each; None if nothing."""
        if self.communication is None or self.communication_mode == "off":
            return updated, None
        visible = updated
        if enabled is not None:
            visible = torch.where(enabled[:, None], visible, 0)
        if active is not None:
            chosen = active[..., None]
            # no gradient reaches the unit of a module that is not active, whichever of its states the others see
            visible = block_gradient(visible, chosen) if self.expose_inactive_update else visible.where(chosen, before)
        change, heard = self.communication.listen(visible, active, self.communication_mode, enabled)
        return visible + change, heard
