"""DepthAutoencoding: what counts in its loss, what it predicts and shows, and its baselines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from autoencoding_tasks import ball_clips
from depth_tasks import deep_balls, depth_task, with_depth
from prediction_tasks import batch_of, quiet_trainer

from slotbench.errors import UserError
from slotbench.tasks.depth.depth_autoencoding import DEPTH_TRANSFORMS


def numpy_target(depth: np.ndarray, kind: str) -> np.ndarray:
    return {"log": np.log(1 + depth), "inverse": 1 / depth, "plain": depth}[kind]


@pytest.mark.parametrize("kind", ["log", "inverse", "plain"])
def test_the_loss_is_the_squared_error_of_the_transformed_depth_where_there_is_depth(kind):
    data = deep_balls(valid=True)
    task, batch = depth_task(data, depth_target=kind), batch_of(data)
    with torch.no_grad():
        out = task(batch)
        loss = task.loss(out, batch)
    assert out.decoded.reconstruction.shape == (4, 5, 1, 16, 16)
    depth, painted = batch.objects["depth"].numpy(), out.decoded.reconstruction[:, :, 0].numpy()
    counted = np.isfinite(depth)
    counted[..., 0] = False
    square = (painted - numpy_target(np.where(counted, depth, 1), kind)) ** 2
    # every clip has as many pixels with depth
    assert float(loss) == pytest.approx(square[counted].mean(), rel=1e-5)


def test_pixels_without_depth_have_no_gradient_and_no_score():
    data = deep_balls()
    task, batch = depth_task(data, depth_range=(0.01, 5.5)), batch_of(data)
    out = task(batch)
    out.decoded.reconstruction.retain_grad()
    task.loss(out, batch).backward()
    gradient = out.decoded.reconstruction.grad[:, :, 0]
    depth = batch.objects["depth"]
    without = depth.isnan() | (depth > 5.5)
    assert without.sum() > batch.num_steps
    assert (gradient[without] == 0).all()
    assert (gradient[~without] != 0).all()


def test_a_clip_without_depth_changes_nothing_and_a_batch_of_none_has_no_loss():
    data = deep_balls()
    task, batch = depth_task(data), batch_of(data)
    first = batch.map(lambda value: value[:1])
    two = batch.map(lambda value: value[:2].clone())
    two.objects["depth"][1] = float("inf")
    none = replace(first, objects={"depth": torch.zeros_like(first.objects["depth"])})
    with torch.no_grad():
        torch.testing.assert_close(task.loss(task(two), two), task.loss(task(first), first))
        assert task.loss(task(none), none) == 0


@pytest.mark.parametrize("kind", ["log", "inverse", "plain"])
def test_the_way_back_from_a_target_gives_the_depth_within_the_range(kind):
    transform = DEPTH_TRANSFORMS[kind]
    depth = torch.linspace(0.5, 80, 200, dtype=torch.float64)
    torch.testing.assert_close(transform.depth(transform.target(depth), (0.5, 80.0)), depth)
    wild = transform.depth(torch.tensor([-1e9, -1.0, 0.0, 1e9]), (0.5, 80.0))
    assert ((wild >= 0.5) & (wild <= 80)).all()


def test_a_training_has_errors_beside_baselines_of_the_clips_it_has_read_and_its_checkpoint_too(tmp_path):
    data = deep_balls()
    task = depth_task(data).train()
    trainer = quiet_trainer(max_steps=2, val_check_interval=2)
    trainer.fit(task, datamodule=data)
    found = {name: float(value) for name, value in trainer.callback_metrics.items()}
    seen = torch.cat(
        [with_depth(batch).objects["depth"] for batch, _ in zip(data.train_dataloader(), range(2), strict=False)]
    )
    val = [data.on_after_batch_transfer(batch, 0) for batch in data.val_dataloader()]
    true = torch.cat([batch.objects["depth"] for batch in val]).double()
    constant = seen.double().nanmean()
    wanted = ((constant - true).abs() / true).nanmean()
    assert found["val/baseline/depth_abs_rel/all/constant"] == pytest.approx(wanted.item(), rel=1e-6)
    assert found["val/baseline/depth_rmse/objects/mean image"] > 0
    assert {"val/fg_ari/video/decoder", "val/depth_log_rmse/objects", "val/miou/frame/attention"} <= set(found)
    headline = task.headlines()[0]
    assert headline.metric == "val/depth_abs_rel/all"
    assert set(headline.baselines) == {"constant", "mean image"}
    task.eval()
    with torch.no_grad():
        predicted = torch.cat([task.depth(task(batch).decoded) for batch in val])
    rmse = (predicted - true).square().nanmean().sqrt()
    assert found["val/depth_rmse/all"] == pytest.approx(rmse.item(), rel=1e-5)
    trainer.save_checkpoint(tmp_path / "run.ckpt")
    again = type(task).load_from_checkpoint(tmp_path / "run.ckpt").eval()
    assert torch.equal(again.means.sums, task.means.sums)
    other = depth_task(data, init_from=str(tmp_path / "run.ckpt")).train()
    quiet_trainer(max_steps=1, limit_val_batches=0).fit(other, datamodule=data)
    assert other.means.counts.max() == 3 * 3  # of its own clips alone
    assert torch.equal(again.predict(val[0])["depth"], task.predict(val[0])["depth"])


def test_a_prediction_has_depth_and_panels_show_it_beside_the_truth():
    data = deep_balls()
    task, batch = depth_task(data), batch_of(data)
    task.training_loss(batch)
    with torch.no_grad():
        found = task.predict(batch)
        panels, videos = task.pictures(batch), task.videos(batch)
    assert found["depth"].shape == (4, 5, 16, 16)
    assert found["frames"].shape == found["target"].shape == (4, 5, 1, 16, 16)
    assert (found["target"][:, :, 0, 3, 3] == 0).all()  # no depth there
    near = batch.masks > 0
    near[:, :, 3, 3] = False
    far = ~near & batch.objects["depth"].isfinite()
    assert found["target"][:, :, 0][near].min() > found["target"][:, :, 0][far].max()
    without = replace(batch, objects={})
    with torch.no_grad():
        plain = task.pictures(without), task.videos(without)
    assert panels["clip_0"].shape[0] > plain[0]["clip_0"].shape[0]
    assert videos["clip_0"].shape[2] > plain[1]["clip_0"].shape[2]
    assert "target" not in task.predict(without)


def test_a_video_read_piece_by_piece_keeps_its_depth(tmp_path):
    data = deep_balls()
    task, batch = depth_task(data), batch_of(data)
    one = batch.map(lambda value: value[:1])
    parts = [
        replace(one.slice_time(*cut), objects={"depth": one.objects["depth"][:, slice(*cut)]})
        for cut in ((0, 2), (2, 5))
    ]
    recording = task.recording(tmp_path / "kept", 5, ("depth",))
    with torch.no_grad():
        whole = task.predict(one)["depth"]
        for part in parts:
            recording.add(part, task.predict(part))
        np.testing.assert_allclose(recording.arrays(["depth"])["depth"], whole[0].numpy(), rtol=1e-5)
        assert recording.pictures()["panel"].ndim == 3
        assert len(list(recording.videos()["video"])) == 5
    recording.close()


def test_data_without_depth_or_with_depth_of_another_size_is_refused_in_one_sentence():
    data = ball_clips()
    task, batch = depth_task(data), batch_of(data)
    with pytest.raises(UserError, match=r"no depth[\s\S]*--data.depth true"):
        task.training_loss(batch)
    small = replace(batch, objects={"depth": torch.ones(4, 5, 8, 8)})
    with pytest.raises(UserError, match="expected that of the frames"):
        task.training_loss(small)
