"""What optimisers and schedules refuse is said with the key that it stands under."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch.optim import SGD, Adam, AdamW, RMSprop
from torch.optim.lr_scheduler import CosineAnnealingLR

from slotbench.tasks.adam_tf import AdamTF
from slotbench.tasks.optimisation import TrainingSettingsError, build_optimizer, build_schedule
from slotbench.tasks.schedule import ConstantRate, WarmupCosine, WarmupHalfLife, WarmupStepsCosine


def parameters():
    return [torch.nn.Parameter(torch.zeros(1))]


@pytest.mark.parametrize("wrong", [-1.0, math.nan])
@pytest.mark.parametrize(
    ("optimizer", "name"),
    [
        *((optimizer, name) for optimizer in (Adam, AdamW) for name in ("lr", "eps", "weight_decay")),
        *((SGD, name) for name in ("lr", "momentum", "weight_decay")),
        *((RMSprop, name) for name in ("lr", "alpha", "eps", "momentum", "weight_decay")),
        *((AdamTF, name) for name in ("lr", "eps")),
    ],
)
def test_a_negative_number_or_none_at_all_names_its_key(optimizer, name, wrong):
    with pytest.raises(TrainingSettingsError, match=optimizer.__name__) as error:
        build_optimizer(partial(optimizer, **({"lr": 0.1} | {name: wrong})), parameters())
    assert f"key: model.optimizer.{name}" in str(error.value)


@pytest.mark.parametrize("optimizer", [Adam, AdamW, AdamTF])
@pytest.mark.parametrize("betas", [(-0.1, 0.9), (0.9, math.nan), (0.9, 1.0)])
def test_betas_out_of_their_range_name_their_key(optimizer, betas):
    with pytest.raises(TrainingSettingsError, match=r"key: model\.optimizer\.betas"):
        build_optimizer(partial(optimizer, betas=betas), parameters())


@pytest.mark.parametrize("wrong", [math.inf, -math.inf])
def test_an_infinite_learning_rate_is_refused(wrong):
    with pytest.raises(TrainingSettingsError, match=r"model\.optimizer\.lr"):
        build_optimizer(partial(AdamW, lr=wrong), parameters())


@pytest.mark.parametrize(
    ("schedule", "arguments"),
    [
        (WarmupCosine, {"warmup": -0.1}),
        (WarmupCosine, {"warmup": math.nan}),
        (WarmupCosine, {"final_fraction": -0.5}),
        (WarmupCosine, {"final_fraction": math.nan}),
        (WarmupStepsCosine, {"warmup_steps": -1}),
        (WarmupHalfLife, {"warmup_steps": -1}),
        (WarmupHalfLife, {"half_life": 0}),
    ],
)
def test_a_schedule_that_cannot_be_names_its_key(schedule, arguments):
    with pytest.raises(TrainingSettingsError, match=schedule.__name__) as error:
        build_schedule(partial(schedule, **arguments), SGD(parameters(), lr=0.1), 100)
    assert f"key: model.schedule.{next(iter(arguments))}" in str(error.value)


@pytest.mark.parametrize("schedule", [WarmupCosine, WarmupStepsCosine, CosineAnnealingLR])
def test_a_schedule_that_needs_the_length_of_the_training_asks_for_it(schedule):
    with pytest.raises(TrainingSettingsError, match=f"no end in steps, and {schedule.__name__} needs one") as error:
        build_schedule(schedule, SGD(parameters(), lr=0.1), None)
    assert "--trainer.max_steps N" in str(error.value)


@pytest.mark.parametrize("schedule", [ConstantRate, partial(WarmupHalfLife, warmup_steps=1)])
def test_a_schedule_that_needs_no_length_does_without(schedule):
    optimizer = SGD(parameters(), lr=0.5)
    build_schedule(schedule, optimizer, None)
    assert optimizer.param_groups[0]["lr"] == 0.5
