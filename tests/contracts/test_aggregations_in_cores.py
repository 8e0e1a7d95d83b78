"""The laws of a core, over every registered core that takes an aggregation and every registered aggregation.

A law raises AssertionError where a core breaks it.
"""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import pytest
import torch

from slotbench import registry
from slotbench.interfaces import TemporalCore, TokenSpec
from slotbench.testing.laws import (
    checkpoint_reloads,
    gradient_reaches_every_parameter,
    past_ignores_future,
    samples_do_not_meet,
    smallest_sizes_are_finite,
    splitting_carries_state,
)

AGGREGATIONS = registry.names("aggregations")
NOT_THE_DEFAULT = [name for name in AGGREGATIONS if name != "WeightedMean"]
CORES = [
    name
    for name in registry.names("cores")
    if "aggregation" in inspect.signature(registry.load("cores", name)).parameters
]
# In evaluation, but for the gradients: in training an aggregation may measure the batch and keep running averages.
LAWS = (
    splitting_carries_state,
    past_ignores_future,
    gradient_reaches_every_parameter,
    smallest_sizes_are_finite,
    checkpoint_reloads,
    samples_do_not_meet,
)


pytestmark = pytest.mark.usefixtures("unchecked_shapes")


def built(core: str, aggregation: str, spec: TokenSpec) -> TemporalCore:
    build = registry.load("cores", core)
    layers = {"num_layers": 1} if "num_layers" in inspect.signature(build).parameters else {}
    return build(spec, num_slots=3, dim=16, aggregation=registry.load("aggregations", aggregation), **layers)


def pairs() -> list[Any]:
    """All pairs at night; each time every core and every aggregation in one of them."""
    found = [(core, aggregation) for core in CORES for aggregation in NOT_THE_DEFAULT]
    longer, shorter = max(CORES, NOT_THE_DEFAULT, key=len), min(NOT_THE_DEFAULT, CORES, key=len)
    now = {frozenset(pair) for pair in zip(longer, itertools.cycle(shorter), strict=False)}
    return [pytest.param(*pair, marks=[] if frozenset(pair) in now else pytest.mark.slow) for pair in found]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize(("core", "aggregation"), pairs())
def test_core_keeps_the_law_under_the_aggregation(core, aggregation, law):
    law(lambda spec: built(core, aggregation, spec))


@pytest.mark.parametrize("core", CORES)
def test_the_aggregation_is_all_that_changes_with_its_name(core):
    spec = TokenSpec(dim=16, num_tokens=4)
    names = {
        aggregation: {name for name in built(core, aggregation, spec).state_dict() if ".aggregation." not in name}
        for aggregation in AGGREGATIONS
    }
    assert all(rest == names["WeightedMean"] for rest in names.values())


@pytest.mark.parametrize("core", CORES)
def test_batch_scaling_in_training_measures_the_batch_and_in_evaluation_does_not(core):
    spec = TokenSpec(dim=16, num_tokens=4)
    torch.manual_seed(0)
    model = built(core, "BatchScaled", spec)
    scales = [module for module in model.modules() if hasattr(module, "running_var")]
    model(torch.randn(2, 5, 4, 16)).slots.sum().backward()
    assert scales
    for scale in scales:
        assert scale.running_var != 1
        assert abs(scale.running_var - 0.9) < 10
    before = [scale.running_var.clone() for scale in scales]
    model.eval()(torch.randn(2, 5, 4, 16))
    assert before == [scale.running_var for scale in scales]
