"""Optimisers and schedules: rates and steps by hand, and sentences about arguments that cannot be."""

from __future__ import annotations

import copy
import math
from functools import partial

import numpy as np
import pytest
import torch
from torch.optim import SGD, Adam, AdamW
from torch.optim.lr_scheduler import (
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    CyclicLR,
    ExponentialLR,
    LinearLR,
    MultiStepLR,
    OneCycleLR,
    PolynomialLR,
    ReduceLROnPlateau,
    StepLR,
)

from slotbench import registry
from slotbench.nn.parameters import one_group
from slotbench.tasks.optimisation import AdamTF, ConstantRate, WarmupCosine, WarmupHalfLife, WarmupStepsCosine
from slotbench.tasks.optimizer_factories import TrainingSettingsError, build_optimizer, build_schedule

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


@pytest.mark.parametrize(("schedule", "arguments", "expected"), BY_HAND)
def test_rates_are_those_of_the_formula(schedule, arguments, expected):
    found = stepped(build_schedule(partial(schedule, **arguments), optimizer_of(1.0), TOTAL), TOTAL)
    assert found == pytest.approx([expected(n) for n in range(TOTAL)], abs=1e-12)


@pytest.mark.parametrize(
    "factory",
    [
        lambda optimizer, steps: WarmupCosine(optimizer, steps, warmup=0.25),
        lambda optimizer, *rest: WarmupCosine(optimizer, *rest, warmup=0.25),
        lambda optimizer: WarmupCosine(optimizer, TOTAL, warmup=0.25),
        lambda optimizer, warmup=0.25: WarmupCosine(optimizer, TOTAL, warmup),
        lambda optimizer, *, total_steps: WarmupCosine(optimizer, total_steps, 0.25),
        partial(lambda optimizer, steps, warmup: WarmupCosine(optimizer, steps, warmup), warmup=0.25),
        partial(WarmupCosine, total_steps=TOTAL, warmup=0.25),
    ],
)
def test_functions_of_the_optimiser_and_of_the_length_work_alike(factory):
    expected = stepped(WarmupCosine(optimizer_of(1.0), TOTAL, 0.25), TOTAL)
    assert stepped(build_schedule(factory, optimizer_of(1.0), TOTAL), TOTAL) == expected


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        (StepLR, "invalid arguments for StepLR: .*step_size"),
        (ReduceLROnPlateau, "ReduceLROnPlateau waits for a score"),
        (partial(StepLR, step_size=0), "step_size 0; expected 1 or more"),
        (partial(OneCycleLR, max_lr=1.0, total_steps=4), "OneCycleLR ends after 4 steps, and the training has 8"),
        (partial(CyclicLR, base_lr=0.1, max_lr=1.0, step_size_up=0), "invalid arguments for CyclicLR"),
        (lambda optimizer, length: None, "NoneType is no LRScheduler"),
        (partial(WarmupCosine, warmup=1.0), r"in \[0, 1\); got 1.0"),
        (partial(WarmupCosine, final_fraction=-1.0), "final_fraction is a fraction"),
        (partial(WarmupStepsCosine, warmup_steps=-1), "warmup_steps is -1; expected a number of steps from 0 on"),
        (partial(WarmupHalfLife, half_life=0), "half_life is 0; expected"),
    ],
)
def test_what_cannot_be_a_schedule_is_a_sentence(schedule, said):
    with pytest.raises(TrainingSettingsError, match=said):
        build_schedule(schedule, optimizer_of(1.0), TOTAL)


@pytest.mark.parametrize("schedule", [PolynomialLR, ConstantLR, CosineAnnealingLR, WarmupCosine])
def test_a_schedule_that_needs_the_length_of_the_training_asks_for_it(schedule):
    with pytest.raises(TrainingSettingsError, match=f"no end in steps, and {schedule.__name__} needs one"):
        build_schedule(schedule, optimizer_of(1.0), None)
    assert stepped(build_schedule(ConstantRate, optimizer_of(0.5), None), 1) == [0.5]


def test_a_mistake_in_a_function_of_the_users_keeps_its_traceback():
    with pytest.raises(TypeError, match="unsupported operand"):
        build_schedule(lambda optimizer, length: StepLR(optimizer, length + "1"), optimizer_of(1.0), TOTAL)


@pytest.mark.parametrize("schedule", [partial(OneCycleLR, max_lr=0.5), partial(CyclicLR, base_lr=0.1, max_lr=0.5)])
def test_a_schedule_that_sets_one_rate_refuses_parts_with_rates_of_their_own(schedule):
    with pytest.raises(TrainingSettingsError, match="parts of the model have rates of their own"):
        build_schedule(schedule, optimizer_of(1.0, 0.1), TOTAL)
    build_schedule(schedule, optimizer_of(1.0, 1.0), TOTAL)


@pytest.mark.parametrize(("optimizer", "name"), [(Adam, "eps"), (AdamW, "weight_decay"), (SGD, "lr"), (AdamTF, "lr")])
@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf])
def test_an_optimiser_with_a_number_that_cannot_be_is_named(optimizer, name, wrong):
    if wrong == math.inf or optimizer is not AdamTF:
        arguments = {"lr": 0.1} | {name: wrong}
        with pytest.raises(TrainingSettingsError, match=optimizer.__name__):
            build_optimizer(partial(optimizer, **arguments), [torch.nn.Parameter(torch.zeros(1))])


def factor_of(schedule, total=500_000, **arguments):
    (factor,) = schedule(SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0), total, **arguments).lr_lambdas
    return factor


def test_the_authors_schedule_rests_as_long_as_it_warms_up():
    total, warmup = 300_000, 5_000
    factor = factor_of(WarmupStepsCosine, total)
    assert (factor(0), factor(1), factor(warmup)) == (0, pytest.approx(1 / warmup), 1)
    assert factor(120_000) == pytest.approx((1 + math.cos(math.pi * (120_000 - warmup) / (total - 2 * warmup))) / 2)
    assert factor(total - warmup - 1) > 0
    assert all(factor(step) == 0 for step in (total - warmup, total - 1, total))
    to_the_end = factor_of(WarmupStepsCosine, 100, warmup_steps=10, reach_zero_at_end=True)
    assert to_the_end(55) == pytest.approx(0.5)
    assert 0 < to_the_end(99) < 0.01


def test_clevr_decays_from_the_first_step():
    factor = factor_of(WarmupHalfLife, warmup_steps=10_000, half_life=100_000)
    assert 4e-4 * factor(10_000) == pytest.approx(3.7321e-4, rel=1e-5)
    assert 4e-4 * factor(110_000) == pytest.approx(3.7321e-4 / 2, rel=1e-5)
    assert 4e-4 * factor(500_000) == pytest.approx(1.25e-5)
    assert factor(0) == 1e-4
    assert factor(4_999) == pytest.approx(0.5 * 0.5**0.04999)


def test_movi_decays_after_the_warm_up():
    factor = factor_of(WarmupHalfLife, warmup_steps=10_000, half_life=100_000, decay_after_warmup=True)
    assert 4e-4 * factor(10_000) == 4e-4
    assert factor(4_999) == 0.5
    assert factor(110_000) == pytest.approx(0.5)
    assert 4e-4 * factor(500_000) == pytest.approx(1.34e-5, rel=1e-2)


def test_one_group_has_everything_that_is_trained():
    layer = torch.nn.Linear(2, 3)
    layer.bias.requires_grad_(False)
    (group,) = one_group(layer.parameters())
    assert group.keys() == {"params"}
    assert [id(parameter) for parameter in group["params"]] == [id(layer.weight)]


def numpy_adam_tf(start, gradients, lr, beta1, beta2, eps):
    value, m, v = start.copy(), np.zeros_like(start), np.zeros_like(start)
    for t, gradient in enumerate(gradients, start=1):
        m = beta1 * m + (1 - beta1) * gradient
        v = beta2 * v + (1 - beta2) * gradient**2
        value = value - lr * (m / (1 - beta1**t)) / ((np.sqrt(v) + eps) / np.sqrt(1 - beta2**t))
    return value


def trained(optimizer, parameters, gradients):
    for step in gradients:
        for parameter, gradient in zip(parameters, step, strict=True):
            parameter.grad = None if gradient is None else torch.from_numpy(gradient)
        optimizer.step()


def gradients_of(shapes, steps, scale):
    generator = np.random.default_rng(0)
    return [[scale * generator.normal(size=shape) for shape in shapes] for _ in range(steps)]


@pytest.mark.parametrize("scale", [1.0, 1e-7])
def test_steps_are_those_of_the_formula(scale):
    shapes, lr, betas, eps = [(3, 4), (5,)], 0.01, (0.8, 0.99), 1e-6
    gradients = gradients_of(shapes, 12, scale)
    parameters = [torch.nn.Parameter(torch.randn(shape, dtype=torch.float64)) for shape in shapes]
    expected = [
        numpy_adam_tf(parameter.detach().numpy(), [step[i] for step in gradients], lr, *betas, eps)
        for i, parameter in enumerate(parameters)
    ]
    trained(AdamTF(parameters, lr=lr, betas=betas, eps=eps), parameters, gradients)
    for parameter, wanted in zip(parameters, expected, strict=True):
        np.testing.assert_allclose(parameter.detach().numpy(), wanted, rtol=1e-12)


def test_groups_have_rates_of_their_own_and_what_has_no_gradient_stays():
    one, two, idle = (torch.nn.Parameter(torch.ones(2, dtype=torch.float64)) for _ in range(3))
    optimizer = AdamTF([{"params": [one, idle], "lr": 0.1}, {"params": [two], "lr": 0.2}], eps=0.0)
    trained(optimizer, [one, two, idle], [[np.ones(2), np.ones(2), None]])
    torch.testing.assert_close(one, torch.full((2,), 0.9, dtype=torch.float64))
    torch.testing.assert_close(two, torch.full((2,), 0.8, dtype=torch.float64))
    assert idle.tolist() == [1, 1]


def test_a_reloaded_optimiser_goes_on_as_if_nothing_had_happened():
    gradients = gradients_of([(4,)], 6, 1.0)
    parameter = torch.nn.Parameter(torch.randn(4, dtype=torch.float64))
    optimizer = AdamTF([parameter])
    trained(optimizer, [parameter], gradients[:3])
    again = torch.nn.Parameter(parameter.detach().clone())
    resumed = AdamTF([again])
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    trained(optimizer, [parameter], gradients[3:])
    trained(resumed, [again], gradients[3:])
    assert torch.equal(parameter, again)
