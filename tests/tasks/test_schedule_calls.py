"""Schedules: every one that a configuration may name against formulas written by hand, and how functions are called."""

from __future__ import annotations

import io
import math
from functools import partial

import pytest
import torch
from jsonargparse import ArgumentParser
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import (
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    CyclicLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    MultiStepLR,
    OneCycleLR,
    PolynomialLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)

from slotbench import registry
from slotbench.tasks.optimisation import ConstantRate, WarmupCosine, WarmupHalfLife, WarmupStepsCosine
from slotbench.tasks.optimizer_factories import TrainingSettingsError, build_schedule
from slotbench.tasks.schedule_calls import UNSUITABLE

TOTAL = 8


def cosine(done):
    return (1 + math.cos(math.pi * done)) / 2


def one_cycle(top, pct, total):
    """Up to `top` over the first share of the steps and down to next to nothing, along cosines."""
    low, last, peak = top / 25, top / 25 / 1e4, pct * total - 1
    return lambda n: (
        low + (top - low) * cosine(1 - n / peak)
        if n <= peak
        else last + (top - last) * cosine((n - peak) / (total - 1 - peak))
    )


def triangle(low, top, up):
    return lambda n: low + (top - low) * (1 - abs(n / up - 2 * math.floor(n / (2 * up)) - 1))


def restarted(n):
    """Periods of 2, 4 and 8 steps."""
    return cosine(n / 2 if n < 2 else (n - 2) / 4 if n < 6 else (n - 6) / 8)


# name, arguments that are given, and the rate of step n of 8 where the optimiser's is 1
BY_HAND = [
    (ConstantLR, {"total_iters": 3}, lambda n: 1 / 3 if n < 3 else 1),
    (ConstantLR, {"factor": 0.5, "total_iters": 2}, lambda n: 0.5 if n < 2 else 1),
    (ConstantLR, {}, lambda n: 1 / 3),
    (CosineAnnealingLR, {}, lambda n: cosine(n / 8)),
    (CosineAnnealingLR, {"T_max": 4, "eta_min": 0.2}, lambda n: 0.2 + 0.8 * cosine(n / 4)),
    (CosineAnnealingWarmRestarts, {"T_0": 2, "T_mult": 2}, restarted),
    (CyclicLR, {"base_lr": 0.1, "max_lr": 0.5, "step_size_up": 2}, triangle(0.1, 0.5, 2)),
    (ExponentialLR, {"gamma": 0.9}, lambda n: 0.9**n),
    (LinearLR, {}, lambda n: 1 / 3 + 2 / 3 * n / 8),
    (LinearLR, {"start_factor": 1.0, "end_factor": 0.2, "total_iters": 4}, lambda n: 1 - 0.8 * min(n, 4) / 4),
    (MultiStepLR, {"milestones": [2, 5], "gamma": 0.5}, lambda n: 0.5 ** ((n >= 2) + (n >= 5))),
    (OneCycleLR, {"max_lr": 0.7}, one_cycle(0.7, 0.3, 8)),
    (OneCycleLR, {"max_lr": 0.7, "total_steps": 20}, one_cycle(0.7, 0.3, 20)),
    (OneCycleLR, {"max_lr": 0.7, "epochs": 5, "steps_per_epoch": 4}, one_cycle(0.7, 0.3, 20)),
    (PolynomialLR, {}, lambda n: 1 - n / 8),
    (PolynomialLR, {"power": 2.0, "total_iters": 4}, lambda n: (1 - min(n, 4) / 4) ** 2),
    (StepLR, {"step_size": 3}, lambda n: 0.1 ** (n // 3)),
    (ConstantRate, {}, lambda n: 1),
    (WarmupCosine, {"warmup": 0.25}, lambda n: (n + 1) / 2 if n < 2 else cosine((n - 2) / 6)),
    (WarmupStepsCosine, {"warmup_steps": 2}, lambda n: n / 2 if n < 2 else cosine(min(1, (n - 2) / 4))),
    (WarmupHalfLife, {"warmup_steps": 2, "half_life": 4}, lambda n: min(1, (n + 1) / 2) * 0.5 ** (n / 4)),
]
CASES = pytest.mark.parametrize(
    ("schedule", "arguments", "expected"), BY_HAND, ids=[f"{row[0].__name__} {row[1]}" for row in BY_HAND]
)


def optimizer_of(*rates):
    return Adam([{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": rate} for rate in rates])


def stepped(schedule, steps):
    """The learning rates of the first group at so many steps."""
    found = []
    for _ in range(steps):
        found.append(schedule.optimizer.param_groups[0]["lr"])
        schedule.optimizer.step()
        schedule.step()
    return found


def test_every_schedule_that_may_be_named_is_compared():
    assert {*registry.names("schedules")} <= {schedule.__name__ for schedule, *_ in BY_HAND}
    assert not {*registry.names("schedules")} & {*UNSUITABLE}


@CASES
def test_rates_are_those_of_the_formula(schedule, arguments, expected):
    factories = [partial(schedule, **arguments)] + ([] if arguments else [schedule])
    for factory in factories:
        found = stepped(build_schedule(factory, optimizer_of(1.0), TOTAL), TOTAL)
        assert found == pytest.approx([expected(n) for n in range(TOTAL)], abs=1e-12)


@CASES
def test_the_parser_gives_a_schedule_its_own_arguments_and_no_other(schedule, arguments, expected, parse_factory):
    factory = parse_factory(schedule, arguments)
    found = stepped(build_schedule(factory, optimizer_of(1.0), TOTAL), TOTAL)
    assert found == pytest.approx([expected(n) for n in range(TOTAL)], abs=1e-12)


@pytest.fixture
def parse_factory():
    from collections.abc import Callable

    from slotbench.config.jsonargparse_compat import parser_unchanged
    from slotbench.config.policy import apply_policy

    def parse(schedule, arguments):
        parser = ArgumentParser(exit_on_error=False)
        parser.add_argument("--schedule", type=Callable[[torch.optim.Optimizer, int], LRScheduler])
        path = f"{schedule.__module__}.{schedule.__qualname__}"
        values = parser.parse_object({"schedule": {"class_path": path, "init_args": arguments}})
        return parser.instantiate(values).schedule

    with parser_unchanged():
        apply_policy()
        yield parse


@CASES
def test_a_schedule_goes_on_from_its_state_read_as_plain_values(schedule, arguments, expected):
    factory, half = partial(schedule, **arguments), TOTAL // 2
    before = build_schedule(factory, optimizer_of(1.0), TOTAL)
    stepped(before, half)
    buffer = io.BytesIO()
    torch.save([before.state_dict(), before.optimizer.state_dict()], buffer)
    buffer.seek(0)
    state, of_optimizer = torch.load(buffer, weights_only=True)
    after = build_schedule(factory, optimizer_of(1.0), TOTAL)
    after.load_state_dict(state)
    after.optimizer.load_state_dict(of_optimizer)
    assert stepped(after, TOTAL - half) == stepped(before, TOTAL - half)


def test_one_cycle_moves_the_momentum_of_adam_too():
    optimizer = optimizer_of(1.0)
    schedule = build_schedule(partial(CyclicLR, base_lr=0.1, max_lr=0.5, step_size_up=2), optimizer, TOTAL)
    assert optimizer.param_groups[0]["betas"][0] == pytest.approx(0.9)
    stepped(schedule, 2)
    assert optimizer.param_groups[0]["betas"][0] == pytest.approx(0.8)


@pytest.mark.parametrize(
    "factory",
    [
        lambda optimizer, steps: WarmupCosine(optimizer, steps, warmup=0.25),
        lambda optimizer, *rest: WarmupCosine(optimizer, *rest, warmup=0.25),
        lambda optimizer: WarmupCosine(optimizer, TOTAL, warmup=0.25),
        lambda optimizer, warmup=0.25: WarmupCosine(optimizer, TOTAL, warmup),
        lambda optimizer, *, total_steps: WarmupCosine(optimizer, total_steps, 0.25),
        partial(lambda optimizer, steps, warmup: WarmupCosine(optimizer, steps, warmup), warmup=0.25),
        partial(lambda kind, optimizer, steps: kind(optimizer, steps, 0.25), WarmupCosine),
        partial(WarmupCosine, total_steps=TOTAL, warmup=0.25),
    ],
)
def test_functions_of_the_optimiser_and_of_the_length_work_alike(factory):
    expected = stepped(WarmupCosine(optimizer_of(1.0), TOTAL, 0.25), TOTAL)
    assert stepped(build_schedule(factory, optimizer_of(1.0), TOTAL), TOTAL) == expected


def test_a_schedule_of_schedules_can_be_made_in_python():
    def chained(optimizer):
        return SequentialLR(optimizer, [ConstantLR(optimizer, 0.5, 10), ExponentialLR(optimizer, 0.5)], milestones=[2])

    assert stepped(build_schedule(chained, optimizer_of(1.0), None), 4) == [0.5, 0.5, 1.0, 0.5]


class ByAnotherName(LambdaLR):
    def __init__(self, optimizer, steps):
        super().__init__(optimizer, lambda step: step / steps)


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        (StepLR, "StepLR needs step_size"),
        (MultiStepLR, "MultiStepLR needs milestones"),
        (CyclicLR, "CyclicLR needs base_lr and max_lr"),
        (ByAnotherName, "ByAnotherName needs steps"),
        (ReduceLROnPlateau, "ReduceLROnPlateau waits for a score"),
        (partial(StepLR, step_size=0), "step_size is 0; expected 1 or more"),
        (partial(CosineAnnealingLR, T_max=0), "T_max is 0; expected 1 or more"),
        (partial(OneCycleLR, max_lr=1.0, total_steps=4), "OneCycleLR ends after 4 steps, and the training has 8"),
        (partial(CyclicLR, base_lr=0.1, max_lr=1.0, step_size_up=0), "invalid arguments for CyclicLR"),
        (
            partial(StepLR, step_size=2, last_epoch=3),
            "(?s)arguments for StepLR: .*key: model.schedule.last_epoch",
        ),
        (lambda optimizer, length: None, "is a NoneType, and no LRScheduler"),
    ],
)
def test_what_cannot_be_a_schedule_is_a_sentence(schedule, said):
    with pytest.raises(TrainingSettingsError, match=said):
        build_schedule(schedule, optimizer_of(1.0), TOTAL)


def test_a_mistake_in_a_function_of_the_users_keeps_its_traceback():
    with pytest.raises(TypeError, match="unsupported operand"):
        build_schedule(lambda optimizer, length: StepLR(optimizer, length + "1"), optimizer_of(1.0), TOTAL)


@pytest.mark.parametrize("schedule", [PolynomialLR, LinearLR, ConstantLR, CosineAnnealingLR])
def test_torchs_default_of_five_epochs_is_never_taken_for_steps(schedule):
    with pytest.raises(TrainingSettingsError, match=f"no end in steps, and {schedule.__name__} needs one"):
        build_schedule(schedule, optimizer_of(1.0), None)


@pytest.mark.parametrize("schedule", [partial(OneCycleLR, max_lr=0.5), partial(CyclicLR, base_lr=0.1, max_lr=0.5)])
def test_a_schedule_that_sets_one_rate_refuses_parts_with_rates_of_their_own(schedule):
    with pytest.raises(TrainingSettingsError, match="parts of the model have rates of their own"):
        build_schedule(schedule, optimizer_of(1.0, 0.1), TOTAL)
    build_schedule(schedule, optimizer_of(1.0, 1.0), TOTAL)


@CASES
def test_every_other_schedule_keeps_the_ratio_of_the_rates_of_parts(schedule, arguments, expected):
    if schedule in (OneCycleLR, CyclicLR) or "eta_min" in arguments:
        return  # these say rates and no factors
    optimizer = SGD([{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": rate} for rate in (1.0, 0.1)], lr=1.0)
    stepped(built := build_schedule(partial(schedule, **arguments), optimizer, TOTAL), 3)
    assert built.get_last_lr() == pytest.approx([expected(3), 0.1 * expected(3)])
