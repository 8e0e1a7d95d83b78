"""The task paints rays of all cameras from slots of some, and scores held-out cameras, and masks over all cameras."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from prediction_tasks import batch_of, quiet_trainer
from sklearn.metrics import adjusted_rand_score
from view_tasks import SIDE, PosedSpheres, RayShares, RowsOfViews, view_task

from slotbench.data.balls.bouncing_balls import BouncingBalls
from slotbench.errors import UserError
from slotbench.evaluation.lengths import measure
from slotbench.evaluation.probe_clips import collect
from slotbench.interfaces import Decoded, PartError
from slotbench.metrics.contingency import masks_to_labels
from slotbench.metrics.frames import frame_ssim
from slotbench.metrics.segmentation_baselines import grid_labels
from slotbench.registry import load


@pytest.fixture
def data():
    return PosedSpheres()


def validate(task, data):
    trainer = quiet_trainer()
    trainer.validate(task, datamodule=data, verbose=False)
    return {name: float(value) for name, value in trainer.callback_metrics.items()}


def val_batches(data):
    return [data.on_after_batch_transfer(batch, 0) for batch in data.val_dataloader()]


def test_the_training_loss_is_that_of_rays_of_all_cameras(data):
    task, batch = view_task(data).train(), batch_of(data, "train")
    torch.manual_seed(3)
    out = task(batch)
    assert out.seen.frames.shape == (2, 2, 1, 3, 1, 20)
    whole = batch.all_views()
    seen = out.seen.rays[:, :, 0, :, 0]
    for clip, step, ray in [(0, 0, 0), (1, 1, 19), (0, 1, 7)]:
        same = (whole.rays[clip, step] == seen[clip, step, :, ray][:, None, None]).all(1)
        view, row, column = same.nonzero()[0].tolist()
        colour = whole.frames[clip, step, view, :, row, column]
        assert torch.equal(out.seen.frames[clip, step, 0, :, 0, ray], colour)
    by_hand = (out.decoded.reconstruction - out.seen.frames).square().mean() + out.decoded.losses["shares"]
    torch.manual_seed(3)
    torch.testing.assert_close(task.training_loss(batch), by_hand)


def test_rays_are_drawn_where_images_differ_from_their_mean_colour_less_and_less(data):
    trainer, batch = quiet_trainer(max_steps=4), batch_of(data, "train")
    for view in (batch, batch.held_out):
        view.frames = torch.full_like(view.frames, 0.5)
    batch.held_out.frames[:, :, 1, :, 2, 3] = 1.0
    task = view_task(data, contrast_share=0.8, rays_per_step=5000)
    bright = (3 * SIDE + 2) * SIDE + 3
    others = 4 * SIDE * SIDE
    # in one image of SIDE x SIDE, a single pixel has all of the contrast but 1 / SIDE^2 of it
    alone = 1 - 1 / SIDE**2

    def drawn(share):
        wanted = share * alone + (1 - share) / others
        assert (task._drawn(batch) == bright).float().mean().item() == pytest.approx(wanted, abs=0.02)

    drawn(0.8)
    trainer.fit(task, datamodule=data)
    drawn(0.0)


@pytest.mark.parametrize("at_once", [1, 1000, 10**6])
def test_an_image_that_is_painted_in_pieces_is_the_whole_one(data, at_once):
    batch, calls = batch_of(data), []

    class Counted(RayShares):
        def forward(self, slots, batch=None):
            calls.append(batch.rays[:, :, 0, 0].numel())
            return super().forward(slots, batch)

    task = view_task(data, decoder=Counted, rays_at_once=at_once)
    with torch.no_grad():
        out = task(batch)
        whole = RayShares.forward(task.decoder, out.slots, batch.all_views())
    torch.testing.assert_close(out.decoded.reconstruction, whole.reconstruction)
    torch.testing.assert_close(out.decoded.masks, whole.masks)
    torch.testing.assert_close(out.decoded.losses, whole.losses)
    assert torch.equal(out.masks, out.decoded.masks[:, :, :2])
    assert max(calls) <= max(at_once, 4)
    assert sum(calls) == 2 * 2 * 4 * SIDE * SIDE


def rand_scores(labels, true, samples):
    """FG-ARI of each sample, whose pixels a plain loop gathers."""
    found = []
    for sample in samples:
        pairs = [(int(p), int(t)) for clip, step, view in sample
                 for p, t in zip(labels[clip, step, view].flatten(), true[clip, step, view].flatten(), strict=True)
                 if t > 0]  # fmt: skip
        found.append(adjusted_rand_score([t for _, t in pairs], [p for p, _ in pairs]) if pairs else 1.0)
    return found


def grouped(clips, steps, views):
    """Which images are scored together, by the name of the grouping."""
    return {
        "frame": [[(c, t, v)] for c in clips for t in steps for v in views],
        "video": [[(c, t, v) for t in steps] for c in clips for v in views],
        "step": [[(c, t, v) for v in views] for c in clips for t in steps],
        "scene": [[(c, t, v) for t in steps for v in views] for c in clips],
    }


def test_scores_are_those_of_plain_loops(data):
    task = view_task(data)
    found = validate(task, data)
    fg_ari, held_out, grid, psnr, foreground, ssim = {}, [], [], [], [], []
    for batch in val_batches(data):
        with torch.no_grad():
            out = task(batch)
        everything, painted = batch.all_views(), out.decoded.reconstruction.clamp(0, 1)
        labels = masks_to_labels(out.decoded.masks)
        shape = labels.shape[:3]
        for scope, samples in grouped(*map(range, shape)).items():
            fg_ari.setdefault(scope, []).extend(rand_scores(labels, everything.masks, samples))
        apart = grouped(range(shape[0]), range(shape[1]), [2, 3])["scene"]
        held_out += rand_scores(labels, everything.masks, apart)
        blind = grid_labels(torch.zeros(1, 1, 3, SIDE, SIDE), 1, 2)[0, 0].expand(*shape, -1, -1)
        grid += rand_scores(blind, everything.masks, apart)
        for image, true, ids in zip(
            painted[:, :, 2:].flatten(0, 2), batch.held_out.frames.flatten(0, 2), batch.held_out.masks.flatten(0, 2),
            strict=True,
        ):  # fmt: skip
            psnr.append(-10 * np.log10(float((image - true).square().mean())))
            ssim.append(float(frame_ssim(image, true)))
            if (ids > 0).any():
                foreground.append(-10 * np.log10(float((image - true)[:, ids > 0].square().mean())))
    for scope, values in fg_ari.items():
        assert found[f"val/fg_ari/{scope}/decoder"] == pytest.approx(np.mean(values), abs=1e-6)
    assert len({round(found[f"val/fg_ari/{scope}/decoder"], 6) for scope in fg_ari}) == 4
    assert found["val/fg_ari/scene/held_out"] == pytest.approx(np.mean(held_out), abs=1e-6)
    assert found["val/baseline/fg_ari/scene/held_out/grid 1x2"] == pytest.approx(np.mean(grid), abs=1e-6)
    assert found["val/psnr/held_out"] == pytest.approx(np.mean(psnr), abs=1e-4)
    assert found["val/psnr_foreground/held_out"] == pytest.approx(np.mean(foreground), abs=1e-4)
    assert found["val/ssim/held_out"] == pytest.approx(np.mean(ssim), abs=1e-4)
    assert {"val/psnr/shown", "val/miou/scene/decoder", "val/ari/scene/decoder", "val/largest_slot/decoder"} <= set(
        found
    )


def test_baselines_stand_beside_the_scores(data):
    task = view_task(data)
    found = validate(task, data)
    headlines = {headline.metric: headline for headline in task.headlines()}
    assert set(headlines["val/psnr/held_out"].baselines) == {"white", "truth"}
    assert headlines["val/psnr/held_out"].baselines["truth"] == 100
    assert headlines["val/psnr_foreground/held_out"].baselines["white"] < 30
    for scope in ("frame", "video", "step", "scene"):
        baselines = headlines[f"val/fg_ari_several/{scope}/decoder"].baselines
        assert {"grid 1x2", "k-means colour", "k-means colour + position"} <= set(baselines)
        assert baselines["one slot"] == 0
    assert "val/fg_ari_several/scene/held_out" in found
    task.scores_of("val").notes["fg_ari_several/frame"] = "without 3 of 4 frames"
    notes = {headline.metric: headline.note for headline in task.headlines() if headline.note}
    assert notes == {"val/fg_ari_several/frame/decoder": "without 3 of 4 frames"}
    # spheres of three colours that the same cameras see
    assert found["val/baseline/fg_ari/scene/k-means colour"] > 0.5
    infos = task.metric_infos(name.removeprefix("val/") for name in found)
    assert set(infos) == {name.removeprefix("val/") for name in found}
    assert infos["ssim/held_out"].label == "SSIM, held out"
    assert infos["baseline/fg_ari/scene/held_out/one slot"].of == "fg_ari/scene/held_out"
    assert not [name for name in validate(view_task(data, baseline_clips=0), data) if "baseline" in name]


def test_pixels_of_which_the_background_has_most_belong_to_no_slot(data):
    class Behind(RayShares):
        def forward(self, slots, batch=None):
            decoded = super().forward(slots, batch)
            return replace(decoded, background=torch.where(batch.rays[..., 0, :, :] > 0, 0.9, 0.0))

    task, batch = view_task(data, decoder=Behind), batch_of(data)
    out = task(batch)
    labels = masks_to_labels(task.predict(batch)["masks"])
    behind = batch.all_views().rays[..., 0, :, :] > 0
    assert (labels[behind] == 3).all()
    assert torch.equal(labels[~behind], out.decoded.masks.argmax(3)[~behind].to(labels))
    assert (out.masks.sum(3) > 0).equal(~behind[:, :, :2])


def test_depth_is_scored_where_decoder_and_data_have_it(data):
    class Deep(RayShares):
        def forward(self, slots, batch=None):
            return replace(super().forward(slots, batch), depth=batch.rays[..., 0, :, :].abs() + 2)

    assert not [name for name in validate(view_task(data), data) if "depth" in name]
    found = validate(view_task(data, decoder=Deep), data)
    errors = []
    for batch in val_batches(data):
        true, depth = batch.held_out.objects["depth"], batch.held_out.rays[..., 0, :, :].abs() + 2
        errors.append((depth - true)[true < 1000].square())
    assert found["val/depth_rmse/held_out"] == pytest.approx(float(torch.cat(errors).mean().sqrt()), rel=1e-5)


def test_wrong_data_and_parts_are_refused(data):
    with pytest.raises(ValueError, match="reads several cameras per step, and this data has one"):
        view_task(BouncingBalls(resolution=16))
    with pytest.raises(PartError, match="SpatialBroadcastDecoder takes one view per step"):
        view_task(data, decoder=partial(load("decoders", "SpatialBroadcastDecoder"), broadcast_size=6))
    with pytest.raises(PartError, match="paints whole images"):
        view_task(data, decoder=type("Whole", (RayShares,), {"paints_rays": False}))
    with pytest.raises(ValueError, match=r"contrast_share is 1\.5"):
        view_task(data, contrast_share=1.5)
    with pytest.raises(ValueError, match="rays_at_once is 0"):
        view_task(data, rays_at_once=0)

    class Short(RayShares):
        def forward(self, slots, batch=None):
            return Decoded(super().forward(slots, batch).reconstruction[..., 1:])

    class Few(RowsOfViews):
        def forward(self, batch):
            return super().forward(batch)[:, :, 1:]

    for wrong, message in [
        ({"decoder": Short}, "returned reconstruction"),
        ({"encoder": Few}, "returned tokens of shape"),
    ]:
        with pytest.raises(PartError, match=message):
            view_task(data, **wrong).train()(batch_of(data, "train"))


def test_pictures_show_all_cameras(data):
    task, batch = view_task(data), batch_of(data)
    pictures, videos = task.pictures(batch), task.videos(batch)
    assert set(pictures) == set(videos) == {"clip_0", "clip_1"}
    sheet, video = pictures["clip_0"], videos["clip_0"]
    assert sheet.dtype == video.dtype == np.uint8
    assert len(video) == 2
    # four cameras of 72 pixels and as many rows of each of two steps
    assert sheet.shape[0] > 8 * 72
    assert sheet.shape[1] > 4 * 72
    found = task.predict(batch)
    assert found["frames"].shape == (2, 2, 4, 3, SIDE, SIDE)
    assert found["masks"].shape == (2, 2, 4, 3, SIDE, SIDE)


def test_slots_are_taken_out_and_the_scene_is_turned_if_asked_for(data):
    task, batch = view_task(data, slot_pictures=True), batch_of(data)
    task.trainer = quiet_trainer()
    task.trainer.validate(task, datamodule=data, verbose=False)
    with torch.no_grad():
        pictures, videos = task.pictures(batch), task.videos(batch)
        assert set(pictures) == {"clip_0", "clip_1", "clip_0_without", "clip_1_without"}
        assert set(videos) == {"clip_0", "clip_1", "turn_0", "turn_1"}
        # five rows of four cameras
        assert 5 * 72 < pictures["clip_0_without"].shape[0] < 6 * 80
        assert len(videos["turn_0"]) == 24
        slots = task(batch).slots[:, -1:]
        last = batch.all_views().slice_time(1, 2)
        whole, less = (task.paint(given, last).reconstruction for given in (slots, slots[:, :, 1:]))
        assert not torch.allclose(whole, less)


def test_slots_are_probed_by_their_masks_in_the_shown_cameras_and_clips_of_other_lengths_are_refused(data):
    task, batches = view_task(data), val_batches(data)
    clips = collect(task, batches, num_clips=3)
    assert clips.slots.shape == (3, 2, 3, 8)
    assert clips.tables.sum((-2, -1)).unique().tolist() == [2 * SIDE * SIDE]
    assert clips.shapes[..., -1].sum(-1) == pytest.approx(torch.ones(3, 2))
    with pytest.raises(UserError, match="cannot be continued from a state"):
        measure(task, batches, 2, [1], 2)
