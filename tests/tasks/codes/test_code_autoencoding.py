"""CodeAutoencoding: what reaches the tokenizer, rates and clipping by part, frames from slots, and the gap."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from code_tasks import TINY_DVAE, balls, code_task, frame_task, quiet_trainer
from torch.nn import functional as F

from slotbench.metrics.frames import frame_psnr
from slotbench.tasks.codes.code_scores import CodeScores
from slotbench.tasks.optimisation import WarmupHalfLife


def clips_of(data):
    return data.on_after_batch_transfer(next(iter(data.val_dataloader())), 0)


@pytest.fixture(scope="module")
def run_of_a_tokenizer(tmp_path_factory):
    data, file = balls(), tmp_path_factory.mktemp("tokenizer") / "last.ckpt"
    trainer = quiet_trainer(max_steps=1, limit_val_batches=0)
    trainer.fit(frame_task(data), datamodule=data)
    trainer.save_checkpoint(file)
    return str(file)


def test_a_training_has_all_scores_and_its_checkpoint_rebuilds_it(tmp_path):
    data = balls()
    task = code_task(data)
    trainer = quiet_trainer(max_steps=2, val_check_interval=2)
    trainer.fit(task, datamodule=data)
    logged = trainer.callback_metrics
    for name in ("fg_ari/video/decoder", "miou/video/attention", "cross_entropy", "cross_entropy_other_slots",
                 "slot_gap", "psnr/frame", "psnr_tokenizer/frame", "baseline/cross_entropy/single_codes",
                 "baseline/cross_entropy/left_neighbour", "baseline/fg_ari/video/one slot"):  # fmt: skip
        assert f"val/{name}" in logged, name
    trainer.save_checkpoint(tmp_path / "run.ckpt")
    again = type(task).load_from_checkpoint(tmp_path / "run.ckpt").eval()
    batch = clips_of(data)
    assert torch.equal(again.tokenizer.codebook, task.tokenizer.codebook)
    task.eval()
    assert torch.equal(again.predict(batch)["frames"], task.predict(batch)["frames"])


def test_a_frozen_tokenizer_is_not_trained_nor_put_into_training_mode(run_of_a_tokenizer):
    data = balls()
    task = code_task(data, tokenizer=None, tokenizer_run=run_of_a_tokenizer)
    before = {name: value.clone() for name, value in task.tokenizer.state_dict().items()}
    quiet_trainer(max_steps=2, limit_val_batches=0).fit(task, datamodule=data)
    assert all(torch.equal(value, before[name]) for name, value in task.tokenizer.state_dict().items())
    task.train()
    assert not task.tokenizer.training
    assert task.decoder.training


def test_no_gradient_of_the_codes_reaches_a_tokenizer_that_is_trained_too():
    data = balls()
    task, batch = code_task(data, tokenizer=TINY_DVAE).eval(), clips_of(data)
    task.loss(task(batch), batch).backward()
    assert all(parameter.grad is None for parameter in task.tokenizer.parameters())
    task.train().training_loss(batch).backward()
    assert all(parameter.grad is not None for parameter in task.tokenizer.parameters())
    assert all(parameter.grad is not None for parameter in task.core.parameters())


def seeded(call, given):
    """The same numbers are drawn in each call."""
    torch.manual_seed(1)
    return call(given)


def test_the_joint_loss_is_cross_entropy_and_squared_error_each_summed_over_a_frame():
    data = balls()
    batch, found = clips_of(data), {}
    for summed in ("mean", "frame"):
        task = code_task(data, tokenizer=TINY_DVAE, loss_sum=summed).train()
        codes, out = (seeded(part, given) for part, given in ((task.tokenizer, batch.frames), (task, batch)))
        logits = out.decoded.reconstruction
        cross_entropy = F.cross_entropy(logits.flatten(0, 1), codes.codes.flatten(0, 1))
        error = F.mse_loss(codes.reconstruction, batch.frames)
        factors = (1, 1) if summed == "mean" else (16, batch.frames[0, 0].numel())
        found[summed] = seeded(task.training_loss, batch)
        torch.testing.assert_close(found[summed], factors[0] * cross_entropy + factors[1] * error)


def test_frames_are_sampled_from_the_slots_and_not_from_the_truth():
    data = balls()
    task, batch = code_task(data).eval(), clips_of(data)
    out = task.evaluate(batch)
    codes, _ = task.decoder.sample(out.slots)
    assert torch.equal(task.predict(batch)["frames"], task.tokenizer.decode(codes))
    assert torch.equal(task.painted(out), task.tokenizer.decode(codes))
    assert task.predict(batch)["masks"].shape == (len(batch), 5, 3, 16, 16)
    assert set(task.pictures(batch)) == {f"clip_{i}" for i in range(len(batch))}


def test_the_gap_is_what_another_clips_slots_cost():
    data = balls()
    task, batch = code_task(data).eval(), clips_of(data)
    scores = CodeScores(6)
    task.score(batch, scores)
    found = scores.close()
    slots, read = task.evaluate(batch).slots.detach(), task.read(batch)
    task.requires_grad_(False)
    expected = [
        F.cross_entropy(task.decoder(given, read).reconstruction.flatten(0, 1), read.target.flatten(0, 1))
        for given in (slots, slots[[2, 3, 0, 1]])
    ]
    assert found["cross_entropy"] == pytest.approx(float(expected[0]), rel=1e-5)
    assert found["cross_entropy_other_slots"] == pytest.approx(float(expected[1]), rel=1e-5)
    assert found["slot_gap"] == pytest.approx(float(expected[1] - expected[0]), rel=1e-3, abs=1e-6)
    painted = task.tokenizer.decode(read.target)
    assert found["psnr_tokenizer/frame"] == pytest.approx(float(frame_psnr(painted, batch.frames).mean()), rel=1e-5)


def test_a_decoder_that_does_not_read_the_slots_has_no_gap():
    data = balls()
    task = code_task(data)
    with torch.no_grad():
        for layer in task.decoder.layers:
            layer.cross_output.weight.zero_()
    (found,) = quiet_trainer().validate(task, datamodule=data, verbose=False)
    assert found["val/slot_gap"] == pytest.approx(0, abs=1e-5)


def test_frames_are_sampled_of_the_first_clips_alone():
    data = balls()
    task = code_task(data, sampled_clips=1)
    sampled = []
    task.decoder.sample, plain = lambda *given: sampled.append(len(given[0])) or plain(*given), task.decoder.sample
    quiet_trainer().validate(task, datamodule=data, verbose=False)
    assert sampled == [1]


def test_parts_have_rates_of_their_own_and_the_tokenizers_stays(monkeypatch):
    data = balls()
    task = code_task(
        data, tokenizer=TINY_DVAE, schedule=partial(WarmupHalfLife, warmup_steps=10, half_life=100),
        part_rates={"encoder": 1e-4, "core": 2e-4, "decoder.slot_map": 4e-4}, constant_parts=("tokenizer",),
    )  # fmt: skip
    trainer = quiet_trainer(max_steps=3, limit_val_batches=0)
    trainer.fit(task, datamodule=data)
    (optimiser,) = trainer.optimizers
    names = {id(parameter): name for name, parameter in task.named_parameters()}
    rates = {names[id(p)]: group["lr"] for group in optimiser.param_groups for p in group["params"]}
    factor = 0.4 * 0.5**0.03
    assert rates.keys() == {name for name, _ in task.named_parameters()}
    assert rates["decoder.slot_map.weight"] == pytest.approx(4e-4 * factor)
    assert rates["decoder.head.weight"] == pytest.approx(1e-3 * factor)
    assert rates["core.predictor.output_norm.weight"] == pytest.approx(2e-4 * factor)
    assert {rate for name, rate in rates.items() if name.startswith("tokenizer.")} == {1e-3}


def test_clipping_by_the_largest_number_scales_all_gradients_alike():
    data = balls()
    task = code_task(data, clip_by="largest")
    quiet_trainer(max_steps=1, limit_val_batches=0).fit(task, datamodule=data)
    for number, parameter in enumerate(task.decoder.parameters()):
        parameter.grad = torch.full_like(parameter, 1.0 + number % 2)
    task.encoder.zero_grad()
    task.core.zero_grad()
    (optimiser,) = task.trainer.optimizers
    task.configure_gradient_clipping(optimiser, 0.5)
    found = {round(float(parameter.grad.max()), 4) for parameter in task.decoder.parameters()}
    assert found == {0.25, 0.5}
