"""Averages of weights that begin late, and steps of fewer batches than are accumulated: what is validated and saved."""

from __future__ import annotations

from functools import partial

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import EMAWeightAveraging, WeightAveraging
from prediction_tasks import quiet_trainer
from torch.optim import SGD
from unlisted_parts import TinyData, TinyTask

from slotbench.data.base import LoaderOptions
from slotbench.tasks.optimisation import ConstantRate

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers.*", "ignore:.*smaller than the logging interval.*"
)
STEPS = 6


class Seen(lightning.Callback):
    """Weights after each step and at each validation, and the checkpoint of each step."""

    def __init__(self, folder=None):
        self.folder, self.stepped, self.validated = folder, [], []

    def on_train_batch_end(self, trainer, module, *_):
        self.stepped.append(weights_of(module.state_dict()))
        if self.folder is not None:
            trainer.save_checkpoint(self.folder / f"{trainer.global_step}.ckpt")

    def on_validation_batch_start(self, trainer, module, *_):
        self.validated.append(weights_of(module.state_dict()))


def weights_of(state):
    return torch.cat([value.detach().flatten().clone() for value in state.values()])


def fitted(*callbacks, steps=STEPS, start=None, **trainer):
    torch.manual_seed(0)
    data = TinyData(LoaderOptions(batch_size=1, val_batch_size=4))
    task = TinyTask(optimizer=partial(SGD, lr=0.1), schedule=ConstantRate, data_spec=data.spec)
    options = {"check_val_every_n_epoch": None, "val_check_interval": 1} | trainer
    run = quiet_trainer(max_steps=steps, callbacks=list(callbacks), **options)
    run.fit(task, data, ckpt_path=start, weights_only=True)
    return task


def test_plain_weights_are_validated_saved_and_kept_until_an_average_begins(tmp_path):
    plain, seen = Seen(), Seen(tmp_path)
    fitted(plain)
    task = fitted(EMAWeightAveraging(update_starting_at_step=100), seen)
    assert torch.equal(torch.stack(seen.validated), torch.stack(plain.stepped))
    assert torch.equal(weights_of(task.state_dict()), plain.stepped[-1])
    for step, weights in enumerate(plain.stepped, 1):
        saved = torch.load(tmp_path / f"{step}.ckpt", weights_only=True)
        assert torch.equal(weights_of(saved["state_dict"]), weights)


def test_an_average_that_begins_late_is_that_of_the_steps_from_there_on(tmp_path):
    seen = Seen(tmp_path)
    task = fitted(EMAWeightAveraging(decay=0.5, update_starting_at_step=2), seen)
    average = seen.stepped[2]
    for step, weights in enumerate(seen.stepped):
        average = average if step <= 2 else (average + weights) / 2
        expected = weights if step < 2 else average
        torch.testing.assert_close(seen.validated[step], expected)
        saved = torch.load(tmp_path / f"{step + 1}.ckpt", weights_only=True)
        torch.testing.assert_close(weights_of(saved["state_dict"]), expected)
    torch.testing.assert_close(weights_of(task.state_dict()), average)


def test_the_mean_of_all_steps_is_what_is_validated():
    seen = Seen()
    fitted(WeightAveraging(), seen)
    torch.testing.assert_close(seen.validated[-1], torch.stack(seen.stepped).mean(0))


@pytest.mark.parametrize("resumed_after", [1, 2, 4])
def test_a_resumed_average_is_that_of_an_uninterrupted_training(resumed_after, tmp_path):
    def average():
        return EMAWeightAveraging(decay=0.5, update_starting_at_step=2)

    whole = fitted(average(), Seen(tmp_path))
    rest = Seen()
    again = fitted(average(), rest, start=tmp_path / f"{resumed_after}.ckpt")
    assert len(rest.stepped) == STEPS - resumed_after
    assert torch.equal(weights_of(again.state_dict()), weights_of(whole.state_dict()))


def test_an_average_that_begins_late_starts_from_weights_that_were_loaded(tmp_path):
    class Loaded(TinyTask):
        def setup(self, stage):
            super().setup(stage)
            torch.nn.init.constant_(self.decoder.linear.weight, 0.25)

    data = TinyData(LoaderOptions(batch_size=1))
    task = Loaded(optimizer=partial(SGD, lr=0.0), schedule=ConstantRate, data_spec=data.spec)
    # its validation before the training is what is looked at
    run = lightning.Trainer(
        accelerator="cpu",
        max_steps=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[EMAWeightAveraging(update_starting_at_step=100), seen := Seen()],
    )
    run.fit(task, data)
    assert torch.equal(seen.validated[0], weights_of(task.state_dict()))
    assert (task.decoder.linear.weight == 0.25).all()


def accumulated(every, **trainer):
    """The weights after an epoch of four batches."""
    options = {"max_epochs": 1, "limit_val_batches": 0, "val_check_interval": 1.0, "check_val_every_n_epoch": 1}
    return weights_of(fitted(steps=-1, accumulate_grad_batches=every, **(options | trainer)).state_dict())


def test_the_last_step_of_an_epoch_is_of_the_mean_of_its_batches():
    # four batches: a step of all of them, whatever more was to be accumulated
    assert torch.equal(accumulated(4), accumulated(5))
    torch.testing.assert_close(accumulated(4), accumulated(400))
    assert not torch.allclose(accumulated(4), accumulated(2))


def test_steps_of_full_batches_are_as_they_were_and_a_shorter_last_one_is_by_hand():
    torch.manual_seed(0)
    data = TinyData(LoaderOptions(batch_size=1))
    task = TinyTask(data_spec=data.spec)
    optimizer = SGD(task.parameters(), lr=0.1)
    batches = [data.on_after_batch_transfer(batch, 0) for batch in data.train_dataloader()]
    for group in (batches[:3], batches[3:]):
        optimizer.zero_grad()
        torch.stack([task.loss(batch) for batch in group]).mean().backward()
        optimizer.step()
    torch.testing.assert_close(accumulated(3), weights_of(task.state_dict()))


def test_a_limit_of_batches_ends_an_epoch_for_accumulation_too():
    assert torch.equal(accumulated(3, limit_train_batches=3), accumulated(4, limit_train_batches=3))
