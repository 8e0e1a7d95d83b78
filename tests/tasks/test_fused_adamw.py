"""AdamW is fused where nobody has said otherwise: the same training as the plain one, before and after a checkpoint."""

from __future__ import annotations

from functools import partial

import lightning
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lightning.pytorch.plugins.precision import MixedPrecision
from prediction_tasks import ball_clips, make_task, quiet_trainer
from torch.optim import SGD, Adam, AdamW

from slotbench.tasks.optimizer_factories import build_optimizer

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers.*")

SHAPES = st.lists(st.lists(st.integers(1, 9), max_size=3).map(tuple), min_size=1, max_size=5)


def parameters_of(shapes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def grouped(parameters):
    """Two groups with settings of their own."""
    return [
        {"params": parameters[::2], "weight_decay": 0.3},
        {"params": parameters[1::2], "weight_decay": 0.0, "lr": 0.01},
    ]


def train(optimizer, parameters, steps, seed=1):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()


def agree(ours, theirs):
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)


@given(
    SHAPES,
    st.floats(1e-4, 0.1),
    st.tuples(st.floats(0.5, 0.95), st.floats(0.8, 0.999)),
    st.booleans(),
    st.booleans(),
)
def test_the_default_is_fused_and_trains_as_the_loop_does(shapes, lr, betas, amsgrad, maximize):
    make = partial(AdamW, lr=lr, betas=betas, amsgrad=amsgrad, maximize=maximize)
    ours, theirs = parameters_of(shapes), parameters_of(shapes)
    fused, plain = build_optimizer(make, grouped(ours)), make(grouped(theirs), foreach=False)
    assert type(fused) is AdamW
    settings = [
        {name: value for name, value in group.items() if name not in ("params", "foreach", "fused")}
        for group in (*fused.param_groups, *plain.param_groups)
    ]
    assert settings[:2] == settings[2:]
    assert [group["fused"] for group in fused.param_groups] == [True, True]
    train(fused, ours, 4)
    train(plain, theirs, 4)
    agree(ours, theirs)


@pytest.mark.parametrize(
    "make",
    [
        partial(AdamW, fused=False),
        partial(AdamW, foreach=True),
        partial(AdamW, foreach=False),
        partial(AdamW, differentiable=True),
        Adam,
        partial(SGD, lr=0.1),
        type("MyAdamW", (AdamW,), {}),
    ],
)
def test_what_the_user_says_stays(make):
    ours, given_to = parameters_of([(3, 2), (4,)]), []
    kept = build_optimizer(lambda groups: given_to.append(make(groups)) or given_to[0], ours)
    assert kept is given_to[0]
    assert not kept.defaults.get("fused")


def fit(**arguments):
    data = ball_clips()
    task = make_task(data).train()
    trainer = quiet_trainer(max_steps=2, limit_val_batches=0, gradient_clip_val=1e-3, **arguments)
    before = [value.detach().clone() for value in task.parameters()]
    trainer.fit(task, datamodule=data)
    moved = sum((value.detach() - start).norm() for value, start in zip(task.parameters(), before, strict=True))
    return trainer.optimizers[0], float(moved)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_a_task_is_trained_and_clipped_with_the_fused_form(precision):
    optimizer, moved = fit(precision=precision)
    assert optimizer.defaults["fused"]
    assert len(optimizer.param_groups) == 2
    assert moved > 0


def test_with_a_gradient_scaler_the_plain_form_is_clipped():
    scaler = torch.amp.GradScaler("cpu")
    plugin = MixedPrecision("16-mixed", "cpu", scaler)
    optimizer, moved = fit(plugins=[plugin])
    assert not optimizer.defaults["fused"]
    assert moved > 0
    assert isinstance(optimizer.param_groups[0]["lr"], float)
    with pytest.raises(RuntimeError, match="does not allow for gradient clipping"):
        fit_fused_and_scaled()


def fit_fused_and_scaled():
    """What a user who asks for both is told, by Lightning."""
    data = ball_clips()
    task = make_task(data).train()
    task._optimizer = partial(AdamW, lr=1e-3, fused=True)
    trainer = lightning.Trainer(
        accelerator="cpu",
        plugins=[MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))],
        max_steps=1,
        limit_val_batches=0,
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(task, datamodule=data)
