"""CodeAutoencoding with a decoder of masks: it learns from the slots, and the slots are as without it."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from code_tasks import TINY_DVAE, balls, code_task, quiet_trainer
from torch.nn import functional as F

from slotbench.interfaces import PartError
from slotbench.metrics.discovery_scores import DiscoveryScores
from slotbench.metrics.frames import frame_psnr
from slotbench.registry import load
from slotbench.tasks.codes.code_scores import CodeScores

BROADCAST = partial(load("decoders", "SpatialBroadcastDecoder"), channels=8, num_layers=1)


def clips_of(data):
    return data.on_after_batch_transfer(next(iter(data.val_dataloader())), 0)


def weights(task, *parts):
    return {name: value.clone() for name, value in task.state_dict().items() if name.startswith(parts)}


def same(weights, others):
    return weights.keys() == others.keys() and all(torch.equal(value, others[name]) for name, value in weights.items())


def test_no_gradient_reaches_the_slots():
    data = balls()
    task, batch = code_task(data, mask_decoder=BROADCAST).train(), clips_of(data)
    slots = task.core(task.encoder(batch)).slots
    task.mask_decoder.loss(slots, batch).backward()
    assert all(parameter.grad is not None for parameter in task.mask_decoder.parameters())
    assert all(parameter.grad is None for parameter in (*task.encoder.parameters(), *task.core.parameters()))
    error = F.mse_loss(task.mask_decoder.decoder(slots).reconstruction, batch.frames)
    torch.testing.assert_close(task.mask_decoder.loss(slots, batch), error)


@pytest.mark.parametrize("clip_by", ["norm", "largest"])
def test_slots_train_exactly_as_without_it(clip_by):
    found = []
    for mask_decoder in (None, BROADCAST):
        data = balls()
        task = code_task(data, tokenizer=TINY_DVAE, clip_by=clip_by, mask_decoder=mask_decoder)
        before = weights(task, "mask_decoder.")
        # a bound that every gradient exceeds
        quiet_trainer(max_steps=2, limit_val_batches=0, gradient_clip_val=1e-3).fit(task, datamodule=data)
        found.append(weights(task, "encoder.", "core.", "decoder.", "tokenizer."))
    assert same(*found)
    after = weights(task, "mask_decoder.")
    assert not any(torch.equal(value, before[name]) for name, value in after.items() if value.any())


def test_its_own_gradients_are_clipped_by_themselves():
    task = code_task(balls(), mask_decoder=BROADCAST)
    for parameter in task.parameters():
        parameter.grad = torch.full_like(parameter, 3.0)
    others = [p.grad.clone() for p in task.core.parameters()]
    task.mask_decoder.clip(0.5, "norm")
    norm = torch.stack([p.grad.norm() for p in task.mask_decoder.parameters()]).norm()
    torch.testing.assert_close(norm, torch.tensor(0.5))
    assert all(torch.equal(p.grad, other) for p, other in zip(task.core.parameters(), others, strict=True))


def test_each_kind_of_masks_is_scored_under_its_name():
    data = balls()
    task, batch = code_task(data, mask_decoder=BROADCAST).eval(), clips_of(data)
    scores = CodeScores(6)
    with torch.no_grad():
        loss = task.score(batch, scores)
        out = task.evaluate(batch)
        painted = task.mask_decoder(out.slots, batch)
    found = scores.close()
    kinds = {name.removeprefix("fg_ari/video/") for name in found if name.startswith("fg_ari/video/")}
    assert kinds == {"decoder", "attention", "mask_decoder"}
    only = DiscoveryScores()
    only.update_masks("mask_decoder", painted.masks.argmax(2), 3, batch.masks)
    assert found["fg_ari/video/mask_decoder"] == only.close()["fg_ari/video/mask_decoder"]
    expected = frame_psnr(painted.reconstruction.clamp(0, 1), batch.frames).mean()
    assert found["psnr_mask_decoder/frame"] == pytest.approx(float(expected), rel=1e-5)
    assert float(loss) == pytest.approx(found["cross_entropy"], rel=1e-5)  # and so is val/loss


def test_a_training_reports_it_as_a_headline_and_its_checkpoint_rebuilds_it(tmp_path):
    data = balls()
    task = code_task(data, mask_decoder=BROADCAST)
    trainer = quiet_trainer(max_steps=1, val_check_interval=1)
    trainer.fit(task, datamodule=data)
    assert "val/fg_ari/video/mask_decoder" in trainer.callback_metrics
    lines = {headline.metric: headline for headline in task.headlines()}
    assert lines["val/fg_ari/video/mask_decoder"].baselines == lines["val/fg_ari/video/decoder"].baselines != {}
    trainer.save_checkpoint(tmp_path / "run.ckpt")
    again = type(task).load_from_checkpoint(tmp_path / "run.ckpt")
    assert same(weights(again, "mask_decoder."), weights(task, "mask_decoder."))


def test_the_best_checkpoint_is_the_best_of_the_mask_decoder_where_there_is_one():
    data = balls()
    assert code_task(data).monitor == ("val/loss", "min")
    task = code_task(data, mask_decoder=BROADCAST)
    assert task.monitor == ("val/psnr_mask_decoder/frame", "max")
    rates = dict.fromkeys(("encoder", "core", "decoder"), 0.0)
    task = code_task(data, mask_decoder=BROADCAST, part_rates=rates, optimizer=partial(torch.optim.Adam, lr=1e-2))
    seen = []
    for steps in (1, 10):
        trainer = quiet_trainer(max_steps=steps, limit_val_batches=0)
        trainer.fit(task, datamodule=data)
        found = quiet_trainer().validate(task, datamodule=data, verbose=False)[0]
        seen.append((found["val/loss"], found[task.monitor[0]]))
    # of slots that stay as they are the loss tells nothing
    assert seen[0][0] == pytest.approx(seen[1][0])
    assert seen[1][1] > seen[0][1]


@pytest.mark.parametrize("name", ["AutoregressiveTransformer", "ConcatenationDecoder"])
def test_a_decoder_that_gives_no_masks_of_frames_is_refused(name):
    data = balls()
    with pytest.raises(PartError, match=f"mask_decoder: {name} gives .*no masks"):
        code_task(data, mask_decoder=load("decoders", name)).training_loss(clips_of(data))
