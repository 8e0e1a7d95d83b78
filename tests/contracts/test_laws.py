"""The laws themselves: a sound core keeps them all, and each broken core breaks the one that it is made to break."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from changed_parts import changed, forgetful, mistakes, with_dead_parameter
from torch import Tensor, nn

from slotbench.interfaces import CoreOutput, CoreStep, RecurrentCore, SlotSpec, State, TokenSpec
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


class HasDetails(Sound):
    """Says of every slot whether its first channel is positive, and how large it is."""

    def cell(self, tokens: Tensor, state: State) -> CoreStep:
        slots, attention, state = super().cell(tokens, state)
        return CoreStep(slots, attention, state, {"active": slots[..., 0] > 0, "size": slots.norm(dim=-1)})


def mix(tokens: Tensor, axis: int) -> Tensor:
    return tokens + 1e-3 * tokens.mean(dim=axis, keepdim=True)


def of_cell(change, base=Sound, **more):
    """A core with other slots of a step: `change` takes the core, and the slots."""

    def output(core, found, *_):
        return (change(core, found[0]), *found[1:])

    return changed(base, output, method="cell", **more)


def of_attention(change):
    return changed(Reads, lambda core, found, *_: (found[0], change(found[1]), found[2]), method="cell")


def of_details(base, name, change):
    """A core with another detail: `change` takes the output of a call."""
    return changed(base, lambda core, out, *_: replace(out, details={**out.details, name: change(out)}))


def counted(core, output, tokens, state=None):
    clock = torch.arange(tokens.shape[1]).to(tokens)[None, :, None, None]
    return CoreOutput(output.slots + clock, None, output.state)


def divided(core, output, tokens, state=None):
    return CoreOutput(output.slots / tokens.std(dim=1).mean(), None, output.state)


def detached(tokens, state=None):
    return tokens, None if state is None else state.detach()


def with_memory(core, output, *given):
    core.memory = output.state.detach()
    return output


def with_list(core, output, *given):
    core.memory.append(output.state.detach())
    return output


def with_buffer(core, output, *given):
    core.calls += 1
    return output


def written(core, output, tokens, state=None):
    if state is not None:
        state.data.copy_(output.state.data)
    return output


BROKEN = {
    laws.splitting_carries_state: {
        "drops the state": (changed(Sound, given=lambda tokens, state=None: (tokens,)), "cut at"),
        "cuts the gradient of the state": (changed(Sound, given=detached), "gradient"),
        "counts from the start of the call": (changed(Sound, counted), "cut at"),
    },
    laws.past_ignores_future: {
        "sees the future": (changed(Sound, given=lambda tokens, *state: (mix(tokens, 1), *state)), "earlier steps"),
        "ignores its input": (changed(Sound, given=lambda tokens, *state: (0 * tokens, *state)), "changed no slot"),
    },
    laws.gradient_reaches_every_parameter: {
        "has a dead parameter": (with_dead_parameter(Sound), "forgotten"),
        "multiplies a parameter away": (
            of_cell(lambda core, slots: slots + 0 * core.forgotten.sum(), with_dead_parameter(Sound)),
            "forgotten",
        ),
    },
    laws.smallest_sizes_are_finite: {
        "divides by the spread over time": (changed(Sound, divided), "not finite"),
    },
    laws.permuting_slot_parameters_permutes_slots: {
        "treats slots differently": (
            of_cell(lambda core, slots: slots * torch.arange(1, 4).to(slots)[None, :, None]),
            "permuting",
        ),
    },
    laws.attention_sums_as_its_kind_says: {
        "calls a reading an assignment": (
            changed(Reads, attention_kind="assignment"),
            r"sums over the slots to .* from 1",
        ),
        "calls an assignment a reading": (changed(Competes, attention_kind="reading"), "above 1"),
        "has negative attention": (of_attention(lambda attention: attention - 0.5), "none may be negative"),
        "has attention that is not finite": (of_attention(lambda attention: attention * float("nan")), "not finite"),
    },
    laws.details_are_of_their_steps: {
        "has details of the call": (
            of_details(HasDetails, "active", lambda out: out.details["active"] & out.details["active"][:, :1]),
            "cut at",
        ),
        "has details without time": (
            of_details(HasDetails, "size", lambda out: out.details["size"].mean(dim=1)),
            "expected \\(2, 7",
        ),
        "has details of other slots": (
            changed(Sound, lambda core, found, *_: CoreStep(*found, {"active": found[0][:, 1:, 0] > 0}), method="cell"),
            "for 3 slots",
        ),
        "has details with a gradient": (
            of_details(Sound, "size", lambda out: out.slots.norm(dim=-1)),
            "carries a gradient",
        ),
    },
    laws.kernels_agree: {
        "has kernels that disagree": (
            of_cell(
                lambda core, slots: slots * (1.0 if core.kernel == "reference" else 1.0 + 1e-6),
                made=lambda core: setattr(core, "kernel", "auto"),
            ),
            "under the kernel",
        ),
    },
    laws.autocast_stays_close: {
        "computes in a hurry under autocast": (
            of_cell(lambda core, slots: slots * (1.5 if torch.is_autocast_enabled("cpu") else 1.0)),
            "autocast",
        ),
    },
    laws.checkpoint_reloads: {
        "forgets a setting in its checkpoint": (
            forgetful(Sound, 8, lambda core, found, *_: (found[0] + core.offset, *found[1:]), method="cell"),
            "state dict",
        ),
    },
    laws.nothing_is_kept_on_the_module: {
        "keeps its state": (changed(Sound, with_memory, made=lambda core: setattr(core, "memory", None)), "memory"),
        "keeps its state in a list": (
            changed(Sound, with_list, made=lambda core: setattr(core, "memory", [])),
            "memory",
        ),
        "keeps its state in a buffer": (
            changed(Sound, with_buffer, made=lambda core: core.register_buffer("calls", torch.zeros(()))),
            "calls",
        ),
        "writes into the given state": (changed(Sound, written), "in place"),
    },
    laws.samples_do_not_meet: {
        "leaks across the batch": (
            changed(Sound, given=lambda tokens, *state: (mix(tokens, 0), *state)),
            "out of the batch",
        ),
        "puts the batch second in its state": (
            changed(
                Sound,
                lambda core, output, *_: CoreOutput(output.slots, None, output.state.T),
                lambda tokens, state=None: (tokens, None if state is None else state.T),
            ),
            "the batch is",
        ),
    },
}


@pytest.mark.parametrize(
    "law", [*laws.BUILT_FROM_A_SPEC, laws.permuting_slot_parameters_permutes_slots], ids=lambda law: law.__name__
)
def test_sound_core_keeps_the_law(law):
    law(Sound)


def test_details_of_steps_keep_the_law():
    laws.details_are_of_their_steps(HasDetails)
    assert HasDetails(laws.SPEC)(torch.randn(2, 5, 4, 12)).details["active"].shape == (2, 5, 3)


@pytest.mark.parametrize("core", [Reads, Competes])
def test_attention_of_either_kind_keeps_the_law(core):
    laws.attention_sums_as_its_kind_says(core)
    output = core(laws.SPEC)(torch.randn(1, 2, 4, 12))
    assert output.attention_kind == core.attention_kind


@pytest.mark.parametrize(("law", "part", "message"), mistakes(BROKEN))
@pytest.mark.filterwarnings("ignore:std\\(\\):UserWarning")
def test_broken_core_breaks_the_law(law, part, message):
    with pytest.raises(AssertionError, match=message):
        law(part)


def test_every_law_has_a_core_that_breaks_it():
    assert set(BROKEN) == {
        *laws.BUILT_FROM_A_SPEC,
        laws.permuting_slot_parameters_permutes_slots,
    }


def test_weights_leave_their_initial_values_by_the_size_of_an_initialisation():
    layer = nn.Linear(64, 64)
    nn.init.zeros_(layer.weight)
    aids.move_off_initial_values(layer)
    assert layer.weight.std().item() == pytest.approx(0.5 / math.sqrt(64), rel=0.1)
