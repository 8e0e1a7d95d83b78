"""The laws themselves: a sound core keeps them all, and each broken core breaks the one that it is made to break."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from slotbench.interfaces import CoreOutput, CoreStep, RecurrentCore, SlotSpec, State, TemporalCore, TokenSpec
from slotbench.testing import aids, laws


class Sound(RecurrentCore):
    """A leaky average of the mean token, read out once per slot."""

    def __init__(self, spec: TokenSpec, num_slots: int = 3, dim: int = 8):
        super().__init__()
        self.slot_spec = SlotSpec(num_slots, dim)
        self.read = nn.Linear(spec.dim, dim)
        self.slots = nn.Parameter(torch.randn(num_slots, dim))
        self.leak = nn.Parameter(torch.zeros(dim))

    def initial_state(self, tokens: Tensor) -> State:
        return tokens.new_zeros(tokens.shape[0], self.slot_spec.dim)

    def cell(self, tokens: Tensor, state: State) -> tuple[Tensor, None, State]:
        state = torch.lerp(self.read(tokens).mean(1).to(state.dtype), state, self.leak.sigmoid().to(state.dtype))
        return torch.tanh(state[:, None] + self.slots), None, state

    def slot_parameters(self) -> dict[str, int] | None:
        return {"slots": 0}


class Reads(Sound):
    """What each slot has read, by tokens: weights sum to 1 over the tokens."""

    attention_kind = "reading"

    def cell(self, tokens: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        slots, _, state = super().cell(tokens, state)
        scores = self.slots.to(tokens.dtype) @ self.read(tokens).mT
        return slots, scores.softmax(dim=-1), state


class Competes(Sound):
    """Which slot has won each token: weights sum to 1 over the slots."""

    attention_kind = "assignment"

    def cell(self, tokens: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        slots, _, state = super().cell(tokens, state)
        scores = self.slots.to(tokens.dtype) @ self.read(tokens).mT
        return slots, scores.softmax(dim=-2), state


class CallsAReadingAnAssignment(Reads):
    attention_kind = "assignment"


class CallsAnAssignmentAReading(Competes):
    attention_kind = "reading"


class HasNegativeAttention(Reads):
    def cell(self, tokens: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        slots, attention, state = super().cell(tokens, state)
        return slots, attention - 0.5, state


class HasAttentionThatIsNotFinite(Reads):
    def cell(self, tokens: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        slots, attention, state = super().cell(tokens, state)
        return slots, attention * float("nan"), state


class HasDetails(Sound):
    """Says of every slot whether its first channel is positive, and how large it is."""

    def cell(self, tokens: Tensor, state: State) -> CoreStep:
        slots, attention, state = super().cell(tokens, state)
        return CoreStep(slots, attention, state, {"active": slots[..., 0] > 0, "size": slots.norm(dim=-1)})


class HasDetailsOfTheCall(HasDetails):
    def forward(self, tokens: Tensor, state: State | None = None) -> CoreOutput:
        output = super().forward(tokens, state)
        output.details["active"] = output.details["active"] & output.details["active"][:, :1]
        return output


class HasDetailsWithoutTime(HasDetails):
    def forward(self, tokens: Tensor, state: State | None = None) -> CoreOutput:
        output = super().forward(tokens, state)
        output.details["size"] = output.details["size"].mean(dim=1)
        return output


class HasDetailsOfOtherSlots(Sound):
    def cell(self, tokens: Tensor, state: State) -> CoreStep:
        slots, attention, state = super().cell(tokens, state)
        return CoreStep(slots, attention, state, {"active": slots[:, 1:, 0] > 0})


class HasDetailsWithAGradient(Sound):
    def forward(self, tokens: Tensor, state: State | None = None) -> CoreOutput:
        output = super().forward(tokens, state)
        output.details["size"] = output.slots.norm(dim=-1)
        return output


class HasFrameSlots(Sound):
    def cell(self, tokens: Tensor, state: State) -> CoreStep:
        slots, attention, state = super().cell(tokens, state)
        return CoreStep(slots, attention, state, {}, tokens[:, :2])


class HasFrameSlotsWithoutAGradient(HasFrameSlots):
    def forward(self, tokens: Tensor, state: State | None = None) -> CoreOutput:
        output = super().forward(tokens, state)
        return replace(output, frame_slots=output.frame_slots.detach())


class HasFrameSlotsOfTheNextFrame(HasFrameSlots):
    def forward(self, tokens: Tensor, state: State | None = None) -> CoreOutput:
        output = super().forward(tokens, state)
        return replace(output, frame_slots=output.frame_slots + output.frame_slots.roll(-1, dims=1))


class HasFrameSlotsOfTheCall(HasFrameSlots):
    def forward(self, tokens: Tensor, state: State | None = None) -> CoreOutput:
        output = super().forward(tokens, state)
        return replace(output, frame_slots=output.frame_slots + output.frame_slots[:, :1])


class HasFrameSlotsWithoutTime(HasFrameSlots):
    def forward(self, tokens: Tensor, state: State | None = None) -> CoreOutput:
        output = super().forward(tokens, state)
        output.frame_slots = output.frame_slots[:, 0]
        return output


class DropsState(Sound):
    def forward(self, tokens: Tensor, state: State | None = None) -> CoreOutput:
        return super().forward(tokens)


class CutsGradientOfState(Sound):
    def forward(self, tokens: Tensor, state: State | None = None) -> CoreOutput:
        return super().forward(tokens, None if state is None else state.detach())


class CountsFromTheStartOfTheCall(Sound):
    def forward(self, tokens: Tensor, state: State | None = None) -> CoreOutput:
        output = super().forward(tokens, state)
        clock = torch.arange(tokens.shape[1]).to(tokens)[None, :, None, None]
        return CoreOutput(output.slots + clock, None, output.state)


class SeesTheFuture(Sound):
    def forward(self, tokens: Tensor, state: State | None = None) -> CoreOutput:
        return super().forward(tokens + 1e-3 * tokens.mean(dim=1, keepdim=True), state)


class IgnoresItsInput(Sound):
    def forward(self, tokens: Tensor, state: State | None = None) -> CoreOutput:
        return super().forward(0 * tokens, state)


class HasADeadParameter(Sound):
    def __init__(self, spec: TokenSpec):
        super().__init__(spec)
        self.forgotten = nn.Parameter(torch.zeros(3))


class HasAMultipliedAwayParameter(HasADeadParameter):
    def cell(self, tokens: Tensor, state: State) -> tuple[Tensor, None, State]:
        slots, attention, state = super().cell(tokens, state)
        return slots + 0 * self.forgotten.sum(), attention, state


class DividesByTheSpreadOverTime(Sound):
    def forward(self, tokens: Tensor, state: State | None = None) -> CoreOutput:
        output = super().forward(tokens, state)
        return CoreOutput(output.slots / tokens.std(dim=1).mean(), None, output.state)


class TreatsSlotsDifferently(Sound):
    def cell(self, tokens: Tensor, state: State) -> tuple[Tensor, None, State]:
        slots, attention, state = super().cell(tokens, state)
        return slots * torch.arange(1, 4).to(slots)[None, :, None], attention, state


class ComputesInAHurryUnderAutocast(Sound):
    def cell(self, tokens: Tensor, state: State) -> tuple[Tensor, None, State]:
        slots, attention, state = super().cell(tokens, state)
        return slots * (1.5 if torch.is_autocast_enabled("cpu") else 1.0), attention, state


class KernelsThatDisagree(Sound):
    def __init__(self, spec: TokenSpec):
        super().__init__(spec)
        self.kernel = "auto"

    def cell(self, tokens: Tensor, state: State) -> tuple[Tensor, None, State]:
        slots, attention, state = super().cell(tokens, state)
        return slots * (1.0 if self.kernel == "reference" else 1.0 + 1e-6), attention, state


class ForgetsASettingInItsCheckpoint(Sound):
    def __init__(self, spec: TokenSpec):
        super().__init__(spec)
        self.register_buffer("offset", torch.rand(8), persistent=False)

    def cell(self, tokens: Tensor, state: State) -> tuple[Tensor, None, State]:
        slots, attention, state = super().cell(tokens, state)
        return slots + self.offset, attention, state


class KeepsItsState(Sound):
    def __init__(self, spec: TokenSpec):
        super().__init__(spec)
        self.memory: Tensor | None = None

    def forward(self, tokens: Tensor, state: State | None = None) -> CoreOutput:
        output = super().forward(tokens, state)
        self.memory = output.state.detach()
        return output


class KeepsItsStateInAList(Sound):
    def __init__(self, spec: TokenSpec):
        super().__init__(spec)
        self.memory: list[Tensor] = []

    def forward(self, tokens: Tensor, state: State | None = None) -> CoreOutput:
        output = super().forward(tokens, state)
        self.memory.append(output.state.detach())
        return output


class KeepsItsStateInABuffer(Sound):
    def __init__(self, spec: TokenSpec):
        super().__init__(spec)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, tokens: Tensor, state: State | None = None) -> CoreOutput:
        self.calls += 1
        return super().forward(tokens, state)


class WritesIntoTheGivenState(Sound):
    def forward(self, tokens: Tensor, state: State | None = None) -> CoreOutput:
        output = super().forward(tokens, state)
        if state is not None:
            state.data.copy_(output.state.data)
        return output


class LeaksAcrossTheBatch(Sound):
    def forward(self, tokens: Tensor, state: State | None = None) -> CoreOutput:
        return super().forward(tokens + 1e-3 * tokens.mean(dim=0, keepdim=True), state)


class PutsTheBatchSecondInItsState(Sound):
    def forward(self, tokens: Tensor, state: State | None = None) -> CoreOutput:
        output = super().forward(tokens, None if state is None else state.T)
        return CoreOutput(output.slots, None, output.state.T)


BROKEN: list[tuple[type[TemporalCore], object, str]] = [
    (DropsState, laws.splitting_carries_state, "cut at"),
    (CutsGradientOfState, laws.splitting_carries_state, "gradient"),
    (CountsFromTheStartOfTheCall, laws.splitting_carries_state, "cut at"),
    (SeesTheFuture, laws.past_ignores_future, "earlier steps"),
    (IgnoresItsInput, laws.past_ignores_future, "changed no slot"),
    (HasADeadParameter, laws.gradient_reaches_every_parameter, "forgotten"),
    (HasAMultipliedAwayParameter, laws.gradient_reaches_every_parameter, "forgotten"),
    (DividesByTheSpreadOverTime, laws.smallest_sizes_are_finite, "not finite"),
    (TreatsSlotsDifferently, laws.permuting_slot_parameters_permutes_slots, "permuting"),
    (CallsAReadingAnAssignment, laws.attention_sums_as_its_kind_says, "from 1 for some token"),
    (CallsAnAssignmentAReading, laws.attention_sums_as_its_kind_says, "not to at most 1"),
    (HasNegativeAttention, laws.attention_sums_as_its_kind_says, "none may be negative"),
    (HasAttentionThatIsNotFinite, laws.attention_sums_as_its_kind_says, "not finite"),
    (HasDetailsOfTheCall, laws.details_are_of_their_steps, "cut at"),
    (HasDetailsWithoutTime, laws.details_are_of_their_steps, "expected \\(2, 7"),
    (HasDetailsOfOtherSlots, laws.details_are_of_their_steps, "for 3 slots"),
    (HasDetailsWithAGradient, laws.details_are_of_their_steps, "carries a gradient"),
    (HasFrameSlotsWithoutAGradient, laws.frame_slots_are_of_their_steps, "no gradient"),
    (HasFrameSlotsOfTheNextFrame, laws.frame_slots_are_of_their_steps, "later step"),
    (HasFrameSlotsOfTheCall, laws.frame_slots_are_of_their_steps, "cut at"),
    (HasFrameSlotsWithoutTime, laws.frame_slots_are_of_their_steps, "batch time first"),
    (KernelsThatDisagree, laws.kernels_agree, "under the kernel"),
    (ComputesInAHurryUnderAutocast, laws.autocast_stays_close, "autocast"),
    (ForgetsASettingInItsCheckpoint, laws.checkpoint_reloads, "state dict"),
    (KeepsItsState, laws.nothing_is_kept_on_the_module, "memory"),
    (KeepsItsStateInAList, laws.nothing_is_kept_on_the_module, "memory"),
    (KeepsItsStateInABuffer, laws.nothing_is_kept_on_the_module, "calls"),
    (WritesIntoTheGivenState, laws.nothing_is_kept_on_the_module, "in place"),
    (LeaksAcrossTheBatch, laws.samples_do_not_meet, "out of the batch"),
    (PutsTheBatchSecondInItsState, laws.samples_do_not_meet, "the batch is"),
]


@pytest.mark.parametrize(
    "law", [*laws.BUILT_FROM_A_SPEC, laws.permuting_slot_parameters_permutes_slots], ids=lambda law: law.__name__
)
def test_sound_core_keeps_the_law(law):
    law(Sound)


def test_details_of_steps_keep_the_law():
    laws.details_are_of_their_steps(HasDetails)
    assert HasDetails(laws.SPEC)(torch.randn(2, 5, 4, 12)).details["active"].shape == (2, 5, 3)


def test_slots_of_frames_keep_the_law():
    laws.frame_slots_are_of_their_steps(HasFrameSlots)
    assert HasFrameSlots(laws.SPEC)(torch.randn(2, 5, 4, 12)).frame_slots.shape == (2, 5, 2, 12)


@pytest.mark.parametrize("core", [Reads, Competes])
def test_attention_of_either_kind_keeps_the_law(core):
    laws.attention_sums_as_its_kind_says(core)
    output = core(laws.SPEC)(torch.randn(1, 2, 4, 12))
    assert output.attention_kind == core.attention_kind


@pytest.mark.parametrize(("core", "law", "message"), BROKEN, ids=[core.__name__ for core, _, _ in BROKEN])
@pytest.mark.filterwarnings("ignore:std\\(\\):UserWarning")
def test_broken_core_breaks_the_law(core, law, message):
    with pytest.raises(AssertionError, match=message):
        law(core)


def test_every_law_has_a_core_that_breaks_it():
    assert {law for _, law, _ in BROKEN} == {*laws.BUILT_FROM_A_SPEC, laws.permuting_slot_parameters_permutes_slots}


def test_weights_leave_their_initial_values_by_the_size_of_an_initialisation():
    layer = nn.Linear(64, 64)
    nn.init.zeros_(layer.weight)
    aids.move_off_initial_values(layer)
    assert layer.weight.std().item() == pytest.approx(0.5 / math.sqrt(64), rel=0.1)
