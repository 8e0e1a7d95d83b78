"""What a subclass of a task overrides is what every stage uses, for every registered task."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from any_task import TASKS, first_batch, small_data, small_task
from prediction_tasks import quiet_trainer
from torch import Tensor

from slotbench import registry
from slotbench.interfaces import VideoBatch
from slotbench.tasks.autoencoding import AutoencodingTask
from slotbench.tasks.rollouts import rollout

pytestmark = pytest.mark.usefixtures("unchecked_shapes")


def owned(name: str, loss: Any) -> type:
    """The task with another loss, of the loss that it has."""
    base = registry.load("tasks", name)

    def own(self: Any, output: Any, batch: VideoBatch) -> Tensor:
        return loss(base.loss(self, output, batch))

    return type(f"Own{name}", (base,), {"loss": own})


def logged(task: Any, data: Any) -> dict[str, float]:
    trainer = quiet_trainer(max_steps=2, val_check_interval=2, check_val_every_n_epoch=None)
    trainer.fit(task, datamodule=data)
    values = dict(trainer.callback_metrics)
    values |= trainer.test(task, datamodule=data, verbose=False)[0]
    return {name: float(value) for name, value in values.items()}


@pytest.mark.parametrize("name", TASKS)
def test_a_loss_that_doubles_doubles_every_gradient(name: str) -> None:
    batch, found = first_batch(small_data(name)), []
    for factor in (1.0, 2.0):
        task = small_task(name, owned(name, lambda loss, factor=factor: loss * factor)).train()
        torch.manual_seed(1)
        task.training_loss(batch).backward()
        found.append([parameter.grad for parameter in task.parameters()])
    assert any(gradient is not None and gradient.any() for gradient in found[0])
    for once, twice in zip(*found, strict=True):
        assert (once is None) == (twice is None)
        if once is not None:
            torch.testing.assert_close(twice, 2 * once)


@pytest.mark.parametrize("name", TASKS)
def test_a_plain_loop_has_the_loss_of_the_stages(name: str) -> None:
    data, task = small_data(name), small_task(name).train()
    batch = first_batch(data)
    torch.manual_seed(1)
    by_hand = task.loss(task(batch), batch)
    torch.manual_seed(1)
    torch.testing.assert_close(task.training_loss(batch), by_hand)
    scored = quiet_trainer().validate(task.eval(), datamodule=data, verbose=False)[0]["val/loss"]
    batch = first_batch(data, "val")
    with torch.no_grad(), task.deterministic_sampling(batch, 0):
        assert scored == pytest.approx(float(task.loss(task(batch), batch)), rel=1e-5)


@pytest.mark.parametrize("name", TASKS)
def test_every_stage_calls_the_forward_and_the_loss_of_a_subclass(name: str) -> None:
    base, calls = owned(name, lambda loss: loss * 0 + 1000.0), []

    def forward(self: Any, batch: VideoBatch) -> Any:
        calls.append(self.training)
        return base.forward(self, batch)

    task = small_task(name, type(f"Own{name}", (base,), {"forward": forward}))
    values = logged(task, small_data(name))
    assert [values[f"{stage}/loss"] for stage in ("train", "val", "test")] == [1000.0] * 3
    assert calls.count(True) == 2
    assert calls.count(False) >= 2
    if isinstance(task, AutoencodingTask):  # others ask the parts themselves, step by step or for codes alone
        calls.clear()
        quiet_trainer().predict(task, datamodule=small_data(name))
        assert calls


@pytest.mark.parametrize("name", TASKS)
def test_score_and_predict_of_a_subclass_are_what_the_stages_call(name: str) -> None:
    base = registry.load("tasks", name)
    own = {
        "score": lambda self, batch, scores: torch.tensor(3.0),
        "predict": lambda self, batch: {"mine": torch.ones(len(batch))},
    }
    task, data = small_task(name, type(f"Own{name}", (base,), own)), small_data(name)
    trainer = quiet_trainer()
    task.scores_of("val").close = lambda keep_references: {}
    assert trainer.validate(task, datamodule=data, verbose=False) == [{"val/loss": 3.0}]
    predicted = trainer.predict(task, datamodule=data)
    assert all(set(found) == {"mine"} for found in predicted)


def test_a_loss_that_joins_frames_is_given_long_clips_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout, "PIECE", 1)
    data = small_data("VideoPrediction")
    batch = replace(first_batch(data))
    lengths: list[int] = []

    class Jerky(registry.load("tasks", "VideoPrediction")):  # type: ignore[misc]
        def loss(self, output: Any, batch: VideoBatch) -> Tensor:
            lengths.append(batch.num_steps)
            return output.reconstruction.diff(dim=1).square().mean()

    task = small_task("VideoPrediction", Jerky).eval()
    torch.testing.assert_close(task.forced_loss(batch), task.loss(task(batch), batch))
    assert set(lengths) == {batch.num_steps}
    before = small_task("VideoPrediction").eval()
    torch.testing.assert_close(before.forced_loss(batch), before.loss(before(batch), batch))
