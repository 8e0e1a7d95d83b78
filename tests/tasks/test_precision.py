"""Training in bfloat16 under autocast: what it takes, and how near it stays."""

from __future__ import annotations

from functools import partial

import lightning
import pytest
import torch
from prediction_tasks import ball_clips, make_task

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers.*")


def losses(precision: str, optimizer: partial, clip: float) -> tuple[float, float, float]:
    """Training and validation loss of two steps, and how far the weights have moved."""
    data = ball_clips()
    task = make_task(data).train()
    task._optimizer = optimizer
    before = torch.cat([value.detach().flatten().clone() for value in task.parameters()])
    trainer = lightning.Trainer(
        accelerator="cpu",
        precision=precision,
        gradient_clip_val=clip,
        max_steps=2,
        val_check_interval=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(task, datamodule=data)
    after = torch.cat([value.detach().flatten() for value in task.parameters()])
    found = trainer.callback_metrics
    return float(found["train/loss"]), float(found["val/loss"]), float((after - before).norm())


def test_bfloat16_with_a_fused_optimiser_and_clipping_stays_near_float32() -> None:
    fused = partial(torch.optim.AdamW, lr=1e-3, fused=True)
    single, half = losses("32-true", fused, clip=1.0), losses("bf16-mixed", fused, clip=1.0)
    assert half == pytest.approx(single, rel=0.02)
    assert half[:2] != single[:2]


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_gradients_are_clipped_in_either_precision(precision: str) -> None:
    plain = partial(torch.optim.SGD, lr=1.0)
    *_, moved = losses(precision, plain, clip=1e-3)
    # the rate is half of it in the first of the two steps' schedule, and never more
    assert 0 < moved <= 2e-3
    assert losses(precision, plain, clip=1e3)[-1] > 0.01
