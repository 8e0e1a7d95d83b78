"""The laws over the variants of the state space cores that their defaults do not reach.

A law raises AssertionError where a core breaks it.
"""

from __future__ import annotations

from functools import partial

import pytest
import torch

from slotbench import registry
from slotbench.testing.laws import (
    BUILT_FROM_A_SPEC,
    Build,
    attention_sums_as_its_kind_says,
    checkpoint_reloads,
    permuting_slot_parameters_permutes_slots,
    splitting_carries_state,
)


def variant(name: str, **arguments: object) -> Build:
    return partial(registry.load("cores", name), **arguments)


VARIANTS = {
    "SlotSSM, Mamba-2": variant("SlotSSM", ssm="mamba2"),
    "SlotSSM, Mamba-2, exact hold": variant("SlotSSM", ssm="mamba2", exact_zoh=True),
    "SlotSSM, slots change": variant("SlotSSM", num_slots=[3, 2], dim=32, ssm="mamba2"),
    "SingleStateSSM, Mamba-2": variant("SingleStateSSM", ssm="mamba2"),
    "SplitSSM, Mamba-2": variant("SplitSSM", ssm="mamba2"),
    "SplitSSM, no projections": variant("SplitSSM", num_slots=2, dim=32, stack_dim=None),
}
LAWS = [law for law in BUILT_FROM_A_SPEC if law not in (checkpoint_reloads, attention_sums_as_its_kind_says)]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("name", VARIANTS)
def test_variant_keeps_the_law(name, law):
    law(VARIANTS[name])


@pytest.mark.parametrize("name", VARIANTS)
def test_variant_streams_in_single_precision(name):
    splitting_carries_state(VARIANTS[name], torch.float32, cuts=tuple(range(1, 12)), time=12)


def test_slots_of_mamba_2_follow_the_queries():
    permuting_slot_parameters_permutes_slots(VARIANTS["SlotSSM, Mamba-2"])


@pytest.mark.parametrize("arguments", [{}, {"num_slots": 2, "dim": 32, "stack_dim": None}], ids=str)
def test_slots_that_one_state_carries_do_not_follow_the_queries(arguments):
    """Which also checks that the law can fail."""
    core = registry.load("cores", "SplitSSM")

    class SaysThatTheyDo(core):
        def slot_parameters(self):
            return {"encoder.queries": 0}

    with pytest.raises(AssertionError, match="slots after permuting the slot parameters differ"):
        permuting_slot_parameters_permutes_slots(partial(SaysThatTheyDo, **arguments))
