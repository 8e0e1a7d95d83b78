"""Prediction on a grid of cells: the loss of the ConvS5 models, long roll-outs, frames as bytes, speed, and actions."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from prediction_tasks import ball_clips, batch_of, image_task, make_task, quiet_trainer

from slotbench.data.balls.bouncing_balls import BouncingBalls
from slotbench.data.base import LoaderOptions
from slotbench.interfaces import DataSpec, Decoded, VideoBatch
from slotbench.metrics.frames import frame_mse, frame_psnr, frame_ssim
from slotbench.registry import load
from slotbench.tasks.optimisation import WarmupStepsCosine
from slotbench.tasks.rollouts import rollout
from slotbench.tasks.rollouts.conditions import RolloutOptions
from slotbench.tasks.rollouts.scores import parts_of_curve
from slotbench.tasks.video_prediction import VideoPrediction


@pytest.fixture
def data():
    return ball_clips()


def test_l1_l2_compares_tanh_with_frames_in_minus_one_to_one(data):
    batch = batch_of(data)
    true = batch.frames[:, 1:]
    assert set(true.unique().tolist()) == {0.0, 1.0}
    error = 0.25
    # off by a quarter everywhere, towards the middle
    painted = torch.atanh((2 * true - 1) * (1 - error))
    for share in (0.5, 0.2):
        expected = share * error + (1 - share) * error**2
        task = image_task(data, l1_share=share)
        assert task.loss(Decoded(painted), batch).item() == pytest.approx(expected, rel=1e-4)
        # a row has 16 pixels of one channel
        rows = image_task(data, l1_share=share, loss_sum="rows")
        assert rows.loss(Decoded(painted), batch).item() == pytest.approx(16 * expected, rel=1e-4)
    expected_frames = (true - 0.5) * (1 - error) + 0.5
    torch.testing.assert_close(image_task(data).frames(Decoded(painted)), expected_frames)


def test_scores_of_truncated_frames_are_those_of_bytes(data):
    task = image_task(data, quantise=True)
    torch.nn.init.normal_(task.decoder.head.weight)
    data.sizes["val"] = 4
    quiet_trainer().validate(task, data, verbose=False)
    batch = batch_of(data)
    with torch.no_grad():
        rolled = task.rollout(batch).reconstruction
    true, logged = batch.frames[:, 4:9], task.trainer.callback_metrics
    stored = (rolled * 255).to(torch.uint8).float() / 255
    for name, function in {"mse": frame_mse, "psnr": frame_psnr, "ssim": frame_ssim}.items():
        torch.testing.assert_close(logged[f"val/rollout_{name}"], function(stored, true).mean(), rtol=1e-5, atol=1e-7)
    assert (frame_psnr(stored, true).mean() - frame_psnr(rolled, true).mean()).abs() > 1e-3
    copied = frame_mse(batch.frames[:, 3:4].expand_as(true), true).mean()
    torch.testing.assert_close(logged["val/baseline/rollout_mse/copy the last frame"], copied)


def test_an_evaluation_in_pieces_is_the_evaluation_at_once(monkeypatch):
    data = BouncingBalls(num_balls=2, eval_frames=16, resolution=16, loader=LoaderOptions(val_batch_size=3, val_size=5))
    found = []
    for piece in (32, 3):
        monkeypatch.setattr(rollout, "PIECE", piece)
        task = make_task(data, context=7, horizon=9)
        quiet_trainer().validate(task, data, verbose=False)
        found.append(dict(task.trainer.callback_metrics))
    assert found[0].keys() == found[1].keys()
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name], value, rtol=2e-4, atol=1e-5, msg=lambda text, name=name: name + text)
    frames = torch.cat([data.on_after_batch_transfer(batch, 0).frames for batch in data.val_dataloader()])
    with torch.no_grad():
        batch = VideoBatch(frames, torch.arange(16).expand(5, -1))
        expected = task.loss(task(batch), batch)
    torch.testing.assert_close(found[1]["val/loss"], expected, rtol=1e-4, atol=1e-5)


def test_long_curves_are_thinned_and_first_frames_averaged():
    curve = [float(step) for step in range(1, 1201)]
    logged = dict(parts_of_curve(curve, means_until=(400, 800, 5000)))
    assert logged.pop("") == pytest.approx(600.5)
    assert logged.pop("/first_400") == pytest.approx(200.5)
    assert logged.pop("/first_800") == pytest.approx(400.5)
    steps = {name: value for name, value in logged.items() if name.startswith("/step_")}
    assert steps == logged
    assert len(steps) == 101
    assert next(iter(steps)) == "/step_0001"
    assert [*steps][-1] == "/step_1200"
    assert all(float(name[-4:]) == value for name, value in steps.items())


def test_the_speed_counts_the_frames_of_all_clips_and_the_seconds_of_predicting(data, monkeypatch):
    task, batch = image_task(data), batch_of(data)
    ticks, told = iter(range(100)), []
    monkeypatch.setattr(rollout, "_now", lambda device: float(next(ticks)))
    monkeypatch.setattr(rollout, "PIECE", 2)
    with torch.no_grad():
        steps = task.rollout_steps(batch)
        pieces = list(rollout.in_pieces(steps, 5, lambda *found: told.append(found), task.device))
    assert [at for at, _ in pieces] == [slice(0, 2), slice(2, 4), slice(4, 5)]
    # one tick a piece, and what lies between pieces is not counted
    assert told == [(8, 1.0), (8, 1.0), (4, 1.0)]


def test_given_actions_lead_from_frame_to_frame_in_a_rollout(data):
    spec = replace(data.spec.input, num_actions=3)
    torch.manual_seed(0)
    task = VideoPrediction(
        partial(load("encoders", "ResNetEncoder"), depths=(4, 8), action_dim=2),
        partial(load("cores", "ConvLSTM"), dim=8, num_layers=1),
        partial(load("decoders", "ResNetDecoder"), depths=(4, 8)),
        loss="l1_l2",
        rollout=RolloutOptions(context=4, horizon=5),
        data_spec=DataSpec(spec, spec),
    ).eval()
    batch = batch_of(data)
    actions = torch.nn.functional.one_hot(torch.arange(9) % 3, 3).float().expand(4, -1, -1)
    other = actions.clone()
    other[:, 5] = 0  # masked: what leads from frame 5 to frame 6 is not told
    with torch.no_grad():
        before = task.rollout(replace(batch, actions=actions)).reconstruction
        after = task.rollout(replace(batch, actions=other)).reconstruction
    changed = (before - after).abs().amax(dim=(0, 2, 3, 4)) > 0
    assert changed.tolist() == [False, False, True, True, True]  # frames 4, 5, 6, 7, 8


@pytest.mark.parametrize(("decay", "groups"), [("matrices", [1e-5, 0.0]), ("all", [1e-5])])
def test_weight_decay_is_for_matrices_or_for_all(data, decay, groups):
    task = image_task(data, decay=decay, schedule=partial(WarmupStepsCosine, warmup_steps=2)).train()
    quiet_trainer(max_steps=1, limit_val_batches=0).fit(task, data)
    found = task.trainer.optimizers[0].param_groups
    assert [group["weight_decay"] for group in found] == groups
    assert sum(len(group["params"]) for group in found) == len(list(task.parameters()))
