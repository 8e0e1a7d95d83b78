"""The laws of a temporal core, over every registered core.

A law raises AssertionError where a core breaks it; `test_laws.py` has cores that break each.
"""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slotbench import registry
from slotbench.interfaces import TemporalCore, TokenSpec
from slotbench.testing.laws import (
    BUILT_FROM_A_SPEC,
    SPEC,
    Build,
    attention_sums_as_its_kind_says,
    past_ignores_future,
    permuting_slot_parameters_permutes_slots,
    splitting_carries_state,
)

CORES = registry.names("cores")
# the sizes hardly matter to these laws, and each core has one clip of a usual size besides
FEW = settings(max_examples=3)


def build_of(name: str) -> Build:
    return registry.load("cores", name)


@pytest.mark.parametrize("law", BUILT_FROM_A_SPEC, ids=lambda law: law.__name__)
@pytest.mark.parametrize("name", CORES)
def test_core_keeps_the_law(name, law):
    law(build_of(name))


@pytest.mark.parametrize("name", CORES)
def test_core_is_built_from_a_token_spec_alone_and_says_what_it_hands_over(name):
    core = build_of(name)(TokenSpec(dim=20, num_tokens=6, grid=(2, 3)))
    assert isinstance(core, TemporalCore)
    output = core(torch.randn(2, 3, 6, 20))
    slots = (core.slot_spec.num_slots, core.slot_spec.dim)
    assert output.slots.shape == (2, 3, *slots)
    if output.attention is not None:
        assert output.attention.shape == (2, 3, core.slot_spec.num_slots, 6)


@pytest.mark.parametrize("name", CORES)
@FEW
@given(data=st.data())
def test_any_cut_carries_the_state(name, data):
    time = data.draw(st.integers(2, 10), label="time")
    cuts = tuple(sorted(data.draw(st.sets(st.integers(1, time - 1), min_size=1), label="cuts")))
    spec = TokenSpec(
        dim=data.draw(st.integers(4, 12), label="dim"), num_tokens=data.draw(st.integers(1, 5), label="tokens")
    )
    splitting_carries_state(
        build_of(name), cuts=cuts, batch=data.draw(st.integers(1, 3), label="batch"), time=time, spec=spec
    )


@pytest.mark.parametrize("name", CORES)
def test_one_step_at_a_time_equals_the_whole_clip_in_single_precision(name):
    splitting_carries_state(build_of(name), torch.float32, cuts=tuple(range(1, 12)), time=12)


@pytest.mark.parametrize("name", CORES)
@FEW
@given(data=st.data())
def test_no_step_reaches_back(name, data):
    time = data.draw(st.integers(1, 9), label="time")
    changed = data.draw(st.integers(0, time - 1), label="changed")
    past_ignores_future(build_of(name), changed=changed, batch=data.draw(st.integers(1, 3), label="batch"), time=time)


@pytest.mark.parametrize("name", CORES)
def test_slots_follow_the_parameters_that_the_core_declares(name):
    build = build_of(name)
    if build(SPEC).slot_parameters() is None:
        pytest.skip(f"{name} declares no slot parameters")
    permuting_slot_parameters_permutes_slots(build)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("SAVi", {"num_heads": 2}),
        ("SlotAttention", {"num_heads": 2, "slot_init": "gaussian"}),
        ("PSB", {"bottom_up_heads": 4}),
        ("PSB", {"bottom_up_heads": 2, "causal": False}),
        ("OCSlotSSM", {"bottom_up_heads": 2, "across_heads": True}),
        ("OCSlotSSM", {"bottom_up_heads": 2, "across_heads": False}),
        ("RIM", {"input_attention": "standard", "num_inputs": None, "top_k": 3}),
        ("SlotSSM", {"num_slots": 3}),
    ],
    ids=str,
)
def test_attention_keeps_its_kind_with_other_heads_and_inputs(name, arguments):
    attention_sums_as_its_kind_says(partial(build_of(name), **arguments))


def test_windows_of_a_clip_give_attention_of_the_same_kind_as_the_whole():
    core = build_of("PSB")(SPEC).double()
    with torch.no_grad():
        output = core.sliding_window(torch.randn(2, 5, 4, 12).double(), 2)
    assert output.attention_kind == "assignment"
    torch.testing.assert_close(output.attention.sum(dim=2), torch.ones(2, 5, 4).double())
