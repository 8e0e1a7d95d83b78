"""FrameTokenization: its loss and scores, baselines of the data, what is fitted, and a run whose tokenizer is read."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from code_tasks import balls, frame_task, quiet_trainer

from slotbench.metrics.frames import frame_psnr
from slotbench.pretrained.weights import WeightError
from slotbench.registry import load
from slotbench.tasks.codes.chosen_tokenizer import trained_tokenizer


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A training of two steps, its data and its checkpoint."""
    data, folder = balls(), tmp_path_factory.mktemp("run")
    task = frame_task(data)
    trainer = quiet_trainer(max_steps=2, val_check_interval=2)
    trainer.fit(task, datamodule=data)
    (folder / "checkpoints").mkdir()
    trainer.save_checkpoint(folder / "checkpoints" / "last.ckpt")
    return task, data, folder, dict(trainer.callback_metrics)


def test_scores_stand_beside_what_needs_no_tokenizer(trained):
    _, _, _, logged = trained
    names = {name for name in logged if "baseline" in name}
    assert names == {f"val/baseline/psnr/frame/{name}" for name in ("mean_frame", "mean_colours", "k_means")}
    assert {"val/psnr/frame", "val/mse/frame", "val/perplexity", "val/dead_codes"} <= set(logged)
    # as many patches as there are codes keep more of a frame than one mean frame does
    assert logged["val/baseline/psnr/frame/k_means"] > logged["val/baseline/psnr/frame/mean_frame"]


def test_the_mean_frame_and_the_mean_colours_are_what_they_are_called(trained):
    task, data, _, _ = trained
    batch = next(iter(data.val_dataloader()))
    batch = data.on_after_batch_transfer(batch, 0)
    found = task._baselines(batch)
    cell = batch.frames[1, 2, :, 4:8, 8:12]
    torch.testing.assert_close(
        found["mean_colours"][1, 2, :, 4:8, 8:12], cell.mean((1, 2), keepdim=True).expand_as(cell)
    )
    assert torch.equal(found["mean_frame"][0, 0], found["mean_frame"][1, 3])
    assert frame_psnr(found["mean_colours"], batch.frames).mean() > frame_psnr(found["mean_frame"], batch.frames).mean()


def test_the_loss_is_of_soft_codes_in_training_and_sums_over_a_frame_if_asked():
    data = balls()
    batch = data.on_after_batch_transfer(next(iter(data.val_dataloader())), 0)
    losses = []
    for summed in ("mean", "frame"):
        task = frame_task(data, loss_sum=summed).train()
        torch.manual_seed(1)
        losses.append(task.training_loss(batch))
    torch.testing.assert_close(losses[1], losses[0] * batch.frames[0, 0].numel())
    losses[0].backward()


def test_the_temperature_follows_the_steps(trained):
    task, _, _, _ = trained
    assert task.tokenizer.temperature < task.tokenizer.first_temperature


def test_a_tokenizer_that_is_fitted_is_fitted_before_the_first_step():
    data = balls()
    task = frame_task(data, partial(load("tokenizers", "PatchKMeans"), num_codes=6, fit_frames=12))
    quiet_trainer(max_steps=1, limit_val_batches=0).fit(task, datamodule=data)
    assert task.tokenizer.is_fitted
    batch = data.on_after_batch_transfer(next(iter(data.val_dataloader())), 0)
    nearest = task.tokenizer.decode(task.tokenizer.encode(batch.frames))
    assert torch.equal(nearest, task.predict(batch)["frames"])
    assert (
        frame_psnr(nearest, batch.frames).mean()
        > frame_psnr(batch.frames.mean((0, 1)).expand_as(batch.frames), batch.frames).mean()
    )


def test_without_a_data_set_nothing_can_be_fitted():
    data = balls()
    task = frame_task(data, load("tokenizers", "PatchKMeans"))
    with pytest.raises(ValueError, match="give the trainer a SlotDataModule"):
        quiet_trainer(max_steps=1).fit(task, data.train_dataloader(), data.val_dataloader())


def test_a_runs_tokenizer_is_read_frozen_and_as_it_was(trained):
    task, data, folder, _ = trained
    read = trained_tokenizer(str(folder), data.spec.input)
    assert not any(parameter.requires_grad for parameter in read.parameters())
    assert not read.training
    batch = data.on_after_batch_transfer(next(iter(data.val_dataloader())), 0)
    task.eval()
    assert torch.equal(read.encode(batch.frames), task.tokenizer.encode(batch.frames))
    codes = read.encode(batch.frames)
    assert torch.equal(read.decode(codes), task.tokenizer.decode(codes))


def test_a_run_that_is_none_or_of_other_frames_is_refused(trained, tmp_path):
    _, _, folder, _ = trained
    with pytest.raises(WeightError, match="trained on frames of 1 x 16 x 16, and the data give 1 x 24 x 24"):
        trained_tokenizer(str(folder), balls(resolution=24).spec.input)
    with pytest.raises(WeightError, match=r"there\s+is\s+no\s+such\s+path"):
        trained_tokenizer(str(tmp_path / "nowhere"), balls().spec.input)
    torch.save({"state_dict": {"encoder.weight": torch.zeros(2)}}, tmp_path / "other.ckpt")
    with pytest.raises(WeightError, match="holds no tokenizer"):
        trained_tokenizer(str(tmp_path / "other.ckpt"), balls().spec.input)
