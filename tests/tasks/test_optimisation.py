"""Optimisers and schedules: AdamTF against numpy, learning rates at the steps that matter, and what is refused."""

from __future__ import annotations

import copy
import math
from functools import partial

import numpy as np
import pytest
import torch
from torch.optim import SGD, Adam, AdamW, RMSprop
from torch.optim.lr_scheduler import CosineAnnealingLR

from slotbench.nn.parameters import one_group
from slotbench.tasks.optimisation import AdamTF, ConstantRate, WarmupCosine, WarmupHalfLife, WarmupStepsCosine
from slotbench.tasks.optimizer_factories import TrainingSettingsError, build_optimizer, build_schedule


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


def learning_rates(schedule, total, peak=2.0, **arguments):
    """The learning rate of every step of a training."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=peak)
    scheduler = schedule(optimizer, total, **arguments)
    found = []
    for _ in range(total):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


def test_the_authors_schedule_rests_as_long_as_it_warms_up():
    total, warmup, peak = 300_000, 5_000, 1e-3
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=peak)
    (factor,) = WarmupStepsCosine(optimizer, total).lr_lambdas

    def rate(step):
        return peak * factor(step)

    assert rate(0) == 0
    assert rate(1) == pytest.approx(peak / warmup)
    assert rate(warmup) == peak
    expected = peak / 2 * (1 + math.cos(math.pi * (120_000 - warmup) / (total - 2 * warmup)))
    assert rate(120_000) == pytest.approx(expected, rel=1e-9)
    assert rate(total // 2) == pytest.approx(peak / 2, rel=1e-9)
    assert rate(total - warmup - 1) > 0
    for step in (total - warmup, total - warmup // 2, total - 1, total):
        assert rate(step) == 0


def test_it_can_last_until_the_end():
    found = learning_rates(WarmupStepsCosine, 100, warmup_steps=10, reach_zero_at_end=True)
    assert found[10] == 2.0
    assert found[55] == pytest.approx(1.0)
    assert found[90] > 0
    assert 0 < found[-1] < 0.01
    assert learning_rates(WarmupStepsCosine, 100, warmup_steps=10)[90] == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize(
    ("total", "warmup", "expected"),
    [(3, 5000, [0, 2 / 5000, 4 / 5000]), (4, 0, [2.0, None, None, None]), (3, 2, [0, 1.0, 2.0])],
)
def test_short_trainings_have_what_there_is_time_for(total, warmup, expected):
    found = learning_rates(WarmupStepsCosine, total, warmup_steps=warmup)
    for rate, wanted in zip(found, expected, strict=True):
        assert wanted is None or rate == pytest.approx(wanted)


def factor_of(schedule, **arguments):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    (factor,) = schedule(optimizer, 500_000, **arguments).lr_lambdas
    return factor


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


def test_psb_warms_up_for_longer_than_others_train():
    factor = factor_of(WarmupHalfLife, warmup_steps=30_000, half_life=1_000_000)
    for step in (0, 1, 29_998, 29_999, 30_000, 299_999):
        assert factor(step) == pytest.approx(min(1, (step + 1) / 30_000) * 0.5 ** (step / 1e6))


def test_no_warm_up_starts_at_the_peak():
    assert learning_rates(WarmupHalfLife, 3, warmup_steps=0, half_life=1) == [2.0, 1.0, 0.5]
    assert learning_rates(WarmupHalfLife, 4, warmup_steps=2, half_life=None) == [1.0, 2.0, 2.0, 2.0]
    assert learning_rates(WarmupHalfLife, 3, warmup_steps=0, half_life=1, decay_after_warmup=True) == [2.0, 1.0, 0.5]


def test_the_other_schedules_are_as_they_say():
    found = learning_rates(WarmupCosine, 100, warmup=0.1, final_fraction=0.5)
    assert found[0] == pytest.approx(0.2)
    assert found[9:11] == [2.0, 2.0]
    assert found[55] == pytest.approx(1.5)
    assert 1.0 < found[-1] < 1.01
    assert learning_rates(ConstantRate, 5) == [2.0] * 5


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (partial(WarmupStepsCosine, warmup_steps=-1), "warmup_steps is -1; expected a number of steps from 0 on"),
        (partial(WarmupHalfLife, warmup_steps=-1), "warmup_steps is -1"),
        (partial(WarmupHalfLife, half_life=0), "half_life is 0; expected"),
        (partial(WarmupCosine, final_fraction=-1.0), "final_fraction is a fraction"),
        (partial(WarmupCosine, warmup=1.0), r"in \[0, 1\); got 1.0"),
    ],
)
def test_arguments_that_cannot_be_are_refused(schedule, message):
    with pytest.raises(ValueError, match=message):
        learning_rates(schedule, 10)


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


def test_it_is_adam_without_an_epsilon_and_another_one_with_small_gradients():
    start = torch.randn(6, dtype=torch.float64)

    def after(optimizer, scale, **arguments):
        parameter = torch.nn.Parameter(start.clone())
        trained(optimizer([parameter], lr=0.1, **arguments), [parameter], gradients_of([(6,)], 5, scale))
        return parameter.detach()

    torch.testing.assert_close(after(AdamTF, 1.0, eps=0.0), after(torch.optim.Adam, 1.0, eps=0.0))
    tf, torchs = after(AdamTF, 1e-7, eps=1e-7) - start, after(torch.optim.Adam, 1e-7, eps=1e-7) - start
    assert (tf.abs() < 0.5 * torchs.abs()).all()


def test_groups_have_rates_of_their_own_and_what_has_no_gradient_stays():
    one, two, idle = (torch.nn.Parameter(torch.ones(2, dtype=torch.float64)) for _ in range(3))
    optimizer = AdamTF([{"params": [one, idle], "lr": 0.1}, {"params": [two], "lr": 0.2}], eps=0.0)
    trained(optimizer, [one, two, idle], [[np.ones(2), np.ones(2), None]])
    torch.testing.assert_close(one, torch.full((2,), 0.9, dtype=torch.float64))
    torch.testing.assert_close(two, torch.full((2,), 0.8, dtype=torch.float64))
    assert idle.tolist() == [1, 1]


def test_a_parameter_that_joins_late_starts_its_own_count():
    early, late = (torch.nn.Parameter(torch.ones(1, dtype=torch.float64)) for _ in range(2))
    trained(AdamTF([early, late], lr=0.1, eps=0.0), [early, late], [[np.ones(1), None], [np.ones(1), np.ones(1)]])
    assert early.item() == pytest.approx(0.8)
    assert late.item() == pytest.approx(0.9)


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


def test_a_closure_is_called_with_gradients_on_and_its_loss_returned():
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = AdamTF([parameter], lr=0.5)

    def closure():
        loss = (3 * parameter).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 3
    assert parameter.item() == pytest.approx(0.5)


@pytest.mark.parametrize("arguments", [{"lr": -1.0}, {"eps": -1e-8}, {"betas": (0.9, 1.0)}, {"betas": (-0.1, 0.9)}])
def test_numbers_out_of_range_are_refused(arguments):
    with pytest.raises(ValueError, match=f"AdamTF: {next(iter(arguments))} is"):
        AdamTF([torch.nn.Parameter(torch.ones(1))], **arguments)
