"""Learning rates at the steps that matter, and the parameters that they are for."""

import math
from functools import partial

import pytest
import torch

from slotbench.nn.parameters import one_group
from slotbench.tasks.schedule import ConstantRate, WarmupCosine, WarmupHalfLife, WarmupStepsCosine


def rates(schedule, total, peak=2.0, **arguments):
    """The rate of every step of a training."""
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
    found = rates(WarmupStepsCosine, 100, warmup_steps=10, reach_zero_at_end=True)
    assert found[10] == 2.0
    assert found[55] == pytest.approx(1.0)
    assert found[90] > 0
    assert 0 < found[-1] < 0.01
    assert rates(WarmupStepsCosine, 100, warmup_steps=10)[90] == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize(
    ("total", "warmup", "expected"),
    [(3, 5000, [0, 2 / 5000, 4 / 5000]), (4, 0, [2.0, None, None, None]), (3, 2, [0, 1.0, 2.0])],
)
def test_short_trainings_have_what_there_is_time_for(total, warmup, expected):
    found = rates(WarmupStepsCosine, total, warmup_steps=warmup)
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
    assert rates(WarmupHalfLife, 3, warmup_steps=0, half_life=1) == [2.0, 1.0, 0.5]
    assert rates(WarmupHalfLife, 3, warmup_steps=0, half_life=1, decay_after_warmup=True) == [2.0, 1.0, 0.5]


def test_the_other_schedules_are_as_they_say():
    found = rates(WarmupCosine, 100, warmup=0.1, final_fraction=0.5)
    assert found[0] == pytest.approx(0.2)
    assert found[9:11] == [2.0, 2.0]
    assert found[55] == pytest.approx(1.5)
    assert 1.0 < found[-1] < 1.01
    assert rates(ConstantRate, 5) == [2.0] * 5


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
        rates(schedule, 10)


def test_one_group_has_everything_that_is_trained():
    layer = torch.nn.Linear(2, 3)
    layer.bias.requires_grad_(False)
    (group,) = one_group(layer.parameters())
    assert group.keys() == {"params"}
    assert [id(parameter) for parameter in group["params"]] == [id(layer.weight)]
