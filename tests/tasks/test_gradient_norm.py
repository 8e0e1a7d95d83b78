"""The norm of the gradients that is logged: of all of them, before they are clipped, at the steps that are logged."""

from __future__ import annotations

from typing import Any

import lightning
import pytest
import torch
from prediction_tasks import ball_clips, make_task, quiet_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers.*")


class Norms(lightning.Callback):
    """Norms of the gradients after each backward pass, and what is logged of them."""

    def __init__(self) -> None:
        self.raw: list[float] = []
        self.logged: list[float | None] = []

    def on_after_backward(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        gradients = [p.grad.flatten() for p in module.parameters() if p.grad is not None]
        self.raw.append(float(torch.cat(gradients).norm()))

    def on_train_batch_end(self, trainer: lightning.Trainer, *_: Any) -> None:
        found = trainer.logged_metrics.get("train/gradient_norm")
        self.logged.append(None if found is None else float(found))


def fit(steps: int, **arguments: Any) -> Norms:
    data = ball_clips()
    task, norms = make_task(data).train(), Norms()
    quiet_trainer(max_steps=steps, limit_val_batches=0, callbacks=[norms], **arguments).fit(task, datamodule=data)
    return norms


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_the_logged_norm_is_that_before_clipping(precision: str) -> None:
    bound = 1e-3
    norms = fit(2, gradient_clip_val=bound, log_every_n_steps=1, precision=precision)
    assert norms.logged == pytest.approx(norms.raw)
    assert min(norms.raw) > 2 * bound


def test_it_is_computed_at_the_steps_that_are_logged() -> None:
    norms = fit(3, log_every_n_steps=2)
    assert norms.logged[0] is None
    assert norms.logged[1] == pytest.approx(norms.raw[1])
