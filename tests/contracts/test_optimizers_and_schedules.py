"""Every registered optimiser and schedule: takes a step, stays finite, and resumes from its stored state."""

from __future__ import annotations

import inspect
import io
import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.optim import SGD

from slotbench import registry
from slotbench.tasks.optimizer_factories import LENGTHS, build_optimizer, build_schedule

STEPS = 6
# schedules whose arguments without a default have no number that suits all
NEEDED = {"step_size": 2, "milestones": [2, 4], "gamma": 0.9, "T_0": 3, "max_lr": 0.2, "base_lr": 0.1}


def stored(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def steps_of(optimizer, weight, count):
    def closure():
        optimizer.zero_grad()
        rows = torch.arange(2)
        loss = nn.functional.embedding(rows, weight, sparse=type(optimizer).__name__ == "SparseAdam").pow(4).sum()
        loss.backward()
        return loss

    for _ in range(count):
        optimizer.step(closure)
    return weight.detach().clone()


@pytest.mark.parametrize("name", registry.names("optimizers"))
def test_an_optimiser_built_from_parameters_alone_lowers_the_loss_and_resumes(name):
    cls = registry.load("optimizers", name)
    start = torch.linspace(0.5, 1.5, 6).reshape(2, 3)
    weight = nn.Parameter(start.clone())
    optimizer = build_optimizer(cls, [weight])
    half = steps_of(optimizer, weight, STEPS // 2)
    assert half.square().sum() < start.square().sum()
    state = stored(optimizer.state_dict())
    again = nn.Parameter(half.clone())
    resumed = build_optimizer(cls, [again])
    resumed.load_state_dict(state)
    expected = steps_of(optimizer, weight, STEPS // 2)
    assert torch.equal(steps_of(resumed, again, STEPS // 2), expected)
    assert expected.square().sum() <= half.square().sum()


@pytest.mark.parametrize("name", registry.names("schedules"))
def test_a_schedule_with_what_it_asks_for_gives_finite_rates_and_resumes(name):
    cls = registry.load("schedules", name)
    parameters = [*inspect.signature(cls).parameters.values()][1:]
    missing = [one.name for one in parameters if one.default is one.empty and one.name not in LENGTHS]
    assert set(missing) <= {*NEEDED}, f"{name} asks for {missing}: it needs a default"
    factory = partial(cls, **{argument: NEEDED[argument] for argument in missing})

    def started():
        return build_schedule(factory, SGD([nn.Parameter(torch.zeros(1))], lr=0.1, momentum=0.9), STEPS)

    def rates(schedule, count):
        found = []
        for _ in range(count):
            found.append(schedule.optimizer.param_groups[0]["lr"])
            schedule.optimizer.step()
            schedule.step()
        return found

    whole = rates(started(), STEPS)
    assert all(math.isfinite(rate) and rate >= 0 for rate in whole)
    assert max(whole) > 0
    first = started()
    half = rates(first, STEPS // 2)
    second = started()
    second.load_state_dict(stored(first.state_dict()))
    second.optimizer.load_state_dict(stored(first.optimizer.state_dict()))
    assert half + rates(second, STEPS - STEPS // 2) == whole
