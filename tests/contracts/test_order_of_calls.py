"""Fit, validate, test and predict in any order, with one trainer and with several: all registered tasks and parts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from any_part import PARTS, any_part
from any_task import TASKS, first_batch, small_data, small_task
from prediction_tasks import quiet_trainer
from torch import Tensor

from slotbench import registry

pytestmark = pytest.mark.usefixtures("unchecked_shapes")

STAGES = ("fit", "validate", "test", "predict")


def validating_trainer() -> Any:
    """One that validates after its only step."""
    return quiet_trainer(max_steps=1, val_check_interval=1, check_val_every_n_epoch=None)


def call(trainer: Any, stage: str, task: Any, data: Any) -> Any:
    """What a stage returns; asserts that it had batches, and that its losses are finite."""
    more = {"verbose": False} if stage in ("validate", "test") else {}
    found = getattr(trainer, stage)(task, datamodule=data, **more)
    if stage == "predict":
        assert found
        return found
    scores = trainer.callback_metrics if stage == "fit" else found[0]
    losses = [float(value) for name, value in scores.items() if name.endswith("/loss")]
    assert losses
    assert np.isfinite(losses).all()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("first", STAGES)
def test_any_stage_may_come_first_and_any_other_after_it(name: str, first: str) -> None:
    task, data = small_task(name), small_data(name)
    for stage in (first, "fit", *STAGES[1:], "fit"):
        call(validating_trainer(), stage, task, data)


@pytest.mark.parametrize("name", TASKS)
def test_one_trainer_may_do_all_of_it_and_the_same_weights_score_the_same_in_every_order(name: str) -> None:
    trainer, task, data = validating_trainer(), small_task(name), small_data(name)
    scores = [call(trainer, stage, task, data)[0] for stage in ("validate", "test", "predict", "validate")]
    alone = call(quiet_trainer(), "test", small_task(name), data)[0]
    assert scores[0]["val/loss"] == scores[3]["val/loss"]
    assert scores[1]["test/loss"] == alone["test/loss"]
    for stage in ("fit", "test", "predict"):
        call(trainer, stage, task, data)


@pytest.mark.parametrize("name", ["FrameTokenization", "CodeAutoencoding"])
def test_a_tokenizer_that_is_fitted_may_be_looked_at_before(name: str) -> None:
    data = small_data(name)
    task = small_task(name, tokenizer=partial(registry.load("tokenizers", "PatchKMeans"), num_codes=6, fit_frames=4))
    for stage in ("validate", "predict", "fit", "validate"):
        call(validating_trainer(), stage, task, data)


@pytest.mark.parametrize("name", TASKS)
def test_looking_before_a_training_changes_nothing_of_it(name: str) -> None:
    trained = []
    for before in ((), STAGES[1:]):
        task, data = small_task(name), small_data(name)
        for stage in before:
            call(quiet_trainer(), stage, task, data)
        torch.manual_seed(3)
        call(quiet_trainer(max_steps=2, limit_val_batches=0), "fit", task, data)
        trained.append({name: value.clone() for name, value in task.state_dict().items()})
    assert trained[0].keys() == trained[1].keys()
    for one, other in zip(*(state.values() for state in trained), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", TASKS)
def test_a_loop_of_ones_own_may_look_in_inference_mode(name: str) -> None:
    task, batch = small_task(name), first_batch(small_data(name))
    for _ in range(2):
        with torch.inference_mode():
            task.eval().predict(batch)
            task.loss(task(batch), batch)
        task.train().zero_grad()
        task.training_loss(batch).backward()
        assert any(parameter.grad is not None and parameter.grad.any() for parameter in task.parameters())


@pytest.mark.parametrize("name", TASKS)
def test_scores_of_a_loop_in_inference_mode_end_no_training_and_are_forgotten(name: str) -> None:
    task, data = small_task(name), small_data(name)
    task.setup = lambda stage: None  # as without a trainer
    call(quiet_trainer(), "validate", task, data)  # some tasks ask their trainer for references
    del task.setup
    with torch.inference_mode(), task.deterministic_sampling(batch := first_batch(data, "val"), 0):
        task.eval().score(batch, task.scores_of("val"))
    call(validating_trainer(), "fit", task, data)
    again, alone = (call(quiet_trainer(), "validate", one, data)[0] for one in (task, same_weights(name, task)))
    assert {name: again[name] for name in again if "fps" not in name} == pytest.approx(
        {name: alone[name] for name in again if "fps" not in name}, nan_ok=True
    )


def same_weights(name: str, task: Any) -> Any:
    fresh = small_task(name)
    fresh.load_state_dict(task.state_dict())
    return fresh


@pytest.mark.parametrize("name", TASKS)
def test_an_evaluation_that_was_broken_off_leaves_nothing_in_the_next(name: str) -> None:
    base = registry.load("tasks", name)

    class BreaksOff(base):  # type: ignore[misc, valid-type]
        broken = False

        def loss(self, output: Any, batch: Any) -> Tensor:
            if self.broken and batch.index is not None and 1 in batch.index:
                raise KeyError("broken off")
            return super().loss(output, batch)

    data = small_data(name)
    data.loader = replace(data.loader, val_batch_size=1)
    task = small_task(name, BreaksOff)
    task.broken = True
    with pytest.raises(KeyError, match="broken off"):
        call(quiet_trainer(), "validate", task, data)
    task.broken = False
    found, alone = (call(quiet_trainer(), "validate", one, data)[0] for one in (task, small_task(name)))
    assert {name: found[name] for name in alone if "fps" not in name} == pytest.approx(
        {name: alone[name] for name in alone if "fps" not in name}, nan_ok=True
    )


@pytest.mark.parametrize("with_module", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", TASKS)
def test_baselines_are_those_of_the_data_that_is_scored(name: str, with_module: bool) -> None:
    task, found = small_task(name), []
    for one in (task, task, small_task(name)):
        data = small_data(name)
        data.loader = replace(data.loader, seed=len(found) if len(found) < 2 else 1)
        given = {"datamodule": data} if with_module else {"dataloaders": data.val_dataloader()}
        scores = quiet_trainer().validate(one, verbose=False, **given)[0]
        kind = "val/baseline/"
        found.append({name: value for name, value in scores.items() if name.startswith(kind) and "mean" not in name})
    assert found[1] == pytest.approx(found[2], nan_ok=True)


def test_a_task_in_evaluation_mode_trains_in_training_mode() -> None:
    base, modes = registry.load("tasks", "SlotAutoencoding"), []

    class Looks(base):  # type: ignore[misc, valid-type]
        def training_loss(self, batch: Any) -> Tensor:
            modes.append(self.training and self.decoder.training)
            return super().training_loss(batch)

    task = small_task("SlotAutoencoding", Looks).eval()
    call(quiet_trainer(max_steps=2, limit_val_batches=0), "fit", task, small_data("SlotAutoencoding"))
    assert modes == [True, True]


@pytest.mark.parametrize(("kind", "name"), PARTS)
def test_a_part_trains_after_it_was_called_in_inference_mode_and_the_other_way_round(kind: str, name: str) -> None:
    part, given = any_part(kind, name)
    for _ in range(2):
        with torch.inference_mode():
            part.eval()(*given)
        loss = sum(value.square().mean() for value in floats(part.train()(*given)))
        if isinstance(loss, Tensor) and loss.requires_grad:
            part.zero_grad()
            loss.backward()
            assert any(parameter.grad is not None and parameter.grad.any() for parameter in part.parameters())


def floats(found: Any) -> list[Tensor]:
    if isinstance(found, Tensor):
        return [found] if found.is_floating_point() else []
    inside = vars(found).values() if hasattr(found, "__dict__") else found if isinstance(found, list | tuple) else ()
    return [value for part in inside for value in floats(part)]
