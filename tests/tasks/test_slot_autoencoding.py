"""The task takes clips apart into slots and scores what each slot has taken, as it says."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from autoencoding_tasks import MeanColours, ball_clips, make_task
from prediction_tasks import batch_of, quiet_trainer
from torch.nn import functional as F

from slotbench.data.balls.blinking_balls import BlinkingBalls
from slotbench.figures.painting import slots_of_clusters
from slotbench.figures.slot_panels import slot_video
from slotbench.interfaces import DataSpec, VideoSpec
from slotbench.metrics.discovery_scores import DiscoveryScores
from slotbench.metrics.segmentation import FGARI, MatchedIoU
from slotbench.metrics.segmentation_baselines import (
    FEATURE_SEGMENTATIONS,
    feature_segmentations,
    simple_segmentations,
)
from slotbench.registry import load

MLPEncoder, MLPPatchDecoder = load("encoders", "MLPEncoder"), load("decoders", "MLPPatchDecoder")
FEATURES = {"encoder": partial(MLPEncoder, dim=16), "decoder": partial(MLPPatchDecoder, hidden_dim=16)}


@pytest.fixture
def data():
    return ball_clips()


def validate(task, data):
    trainer = quiet_trainer()
    trainer.validate(task, datamodule=data, verbose=False)
    return {name: float(value) for name, value in trainer.callback_metrics.items()}


def test_the_loss_is_the_mean_squared_error_of_every_frame(data):
    task, batch = make_task(data), batch_of(data)
    with torch.no_grad():
        out = task(batch)
        loss = task.loss(out, batch)
    assert out.decoded.reconstruction.shape == batch.frames.shape
    torch.testing.assert_close(loss, (out.decoded.reconstruction - batch.frames).square().mean())


def test_signed_pixels_are_learned_on_their_own_scale_and_shown_in_the_unit_range(data):
    task, batch = make_task(data, pixels="signed"), batch_of(data)
    assert torch.equal(task._target(task.read(batch)), 2 * batch.frames - 1)
    with torch.no_grad():
        out = task(batch)
        loss = task.loss(out, batch)
    torch.testing.assert_close(loss, (out.decoded.reconstruction - 2 * batch.frames + 1).square().mean())
    torch.testing.assert_close(task.frames(out.decoded), ((out.decoded.reconstruction + 1) / 2).clamp(0, 1))


def test_scores_are_those_of_the_decoders_masks_and_of_the_attention(data):
    task = make_task(data)
    found = validate(task, data)
    fg_ari, miou = FGARI("video"), MatchedIoU("frame")
    for batch in data.val_dataloader():
        batch = data.on_after_batch_transfer(batch, 0)
        with torch.no_grad():
            out = task(batch)
        fg_ari.update(out.masks, batch.masks)
        attention = F.interpolate(
            out.attention.reshape(-1, 3, 8, 8), size=(16, 16), mode="bilinear", align_corners=False
        ).unflatten(0, (len(batch), 5))
        miou.update(attention, batch.masks)
    assert found["val/fg_ari/video/decoder"] == pytest.approx(fg_ari.compute().item(), abs=1e-6)
    assert found["val/miou/frame/attention"] == pytest.approx(miou.compute().item(), abs=1e-6)
    assert {"val/psnr/frame", "val/ssim/frame", "val/live_slots/decoder", "val/collapsed/attention"} <= set(found)


@pytest.mark.parametrize("name", ["SlotSSM", "SlotRNN", "SlotTransformer", "RIM"])
def test_what_slots_have_read_is_neither_scored_nor_shown(data, name):
    task = make_task(data, core=partial(load("cores", name), num_slots=3, dim=16))
    found = validate(task, data) | validate(task, data)
    assert "val/fg_ari/video/decoder" in found
    assert not [metric for metric in found if "attention" in metric]
    batch = batch_of(data)
    with torch.no_grad():
        assert task.core(task.encoder(batch)).attention is not None
        assert task.evaluate(batch).attention is None


def test_baselines_are_scored_on_the_first_clips_and_stand_beside_the_scores(data):
    task = make_task(data, baseline_clips=5)
    found = validate(task, data)
    assert found["val/baseline/fg_ari/video/one slot"] == 0
    headline = task.headlines()[0]
    assert headline.metric == "val/fg_ari/video/decoder"
    assert {"one slot", "stripes", "k-means colour"} <= set(headline.baselines)
    batch = batch_of(data)
    stripes = FGARI("video")
    labels = (torch.arange(16) * 3 // 16).expand(5, 5, 16, 16)
    more = data.on_after_batch_transfer(list(data.val_dataloader())[1], 0)
    stripes.update(labels, torch.cat([batch.masks, more.masks])[:5])
    assert headline.baselines["stripes"] == pytest.approx(stripes.compute().item(), abs=1e-6)


def test_without_baselines_none_are_scored(data):
    assert not [name for name in validate(make_task(data, baseline_clips=0), data) if "/baseline/" in name]


def test_a_collapse_into_one_slot_is_seen(data):
    task = make_task(data)
    decode = task.decoder.forward

    def greedy(slots, batch=None):
        decoded = decode(slots, batch)
        masks = torch.zeros_like(decoded.masks)
        masks[:, :, 1] = 1
        return replace(decoded, masks=masks)

    task.decoder.forward = greedy
    found = validate(task, data)
    assert found["val/collapsed/decoder"] == 1
    assert found["val/largest_slot/decoder"] == 1
    assert found["val/live_slots/decoder"] == 1
    assert found["val/fg_ari/video/decoder"] == found["val/baseline/fg_ari/video/one slot"]


def test_drawn_slots_score_the_same_each_time(data):
    task = make_task(data, core=partial(load("cores", "SAVi"), num_slots=3, dim=16, slot_init="gaussian"))
    first, second = validate(task, data), validate(task, data)
    assert {name: first[name] for name in second} == second


def test_looking_leaves_the_runs_random_state_alone(data):
    task, batch = (
        make_task(data, core=partial(load("cores", "SAVi"), num_slots=3, slot_init="gaussian")),
        batch_of(data),
    )
    before = torch.random.get_rng_state()
    with torch.no_grad():
        task.pictures(batch)
        task.predict_step(batch, 3)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_another_number_of_slots_at_test_time_is_decoded_and_scored(data):
    task = make_task(data, core=partial(load("cores", "SlotAttention"), num_slots=3, dim=16, slot_init="gaussian"))
    task.core.num_slots = 6
    with torch.no_grad():
        assert task(batch_of(data)).masks.shape == (4, 5, 6, 16, 16)
    found = validate(task, data)
    assert "val/fg_ari/video/attention" in found
    assert "val/baseline/miou/video/grid 2x3" in found


def test_pictures_and_videos_show_every_clip(data):
    task, batch = make_task(data), batch_of(data)
    with torch.no_grad():
        pictures, videos, out = task.pictures(batch), task.videos(batch), task.evaluate(batch)
    clusters = simple_segmentations(batch.pixels, 3)["k-means colour + position"][0]
    beside = slots_of_clusters(clusters, out.masks[0].argmax(1), 3)[clusters]
    expected = slot_video(batch.pixels[0], task.frames(out.decoded)[0], out.masks[0], batch.masks[0], clusters=beside)
    assert np.array_equal(videos["clip_0"], expected)
    assert list(pictures) == list(videos) == [f"clip_{i}" for i in range(4)]
    assert all(picture.ndim == 3 and picture.shape[-1] == 3 for picture in pictures.values())
    assert all(len(video) == 5 for video in videos.values())


def test_a_prediction_says_which_slot_has_each_pixel(data):
    task, batch = make_task(data), batch_of(data)
    with torch.no_grad():
        found, out = task.predict_step(batch, 0), task(batch)
    assert torch.equal(found["labels"].long(), out.masks.argmax(2))
    torch.testing.assert_close(found["frames"], out.decoded.reconstruction.clamp(0, 1))


@pytest.mark.parametrize(("core", "window"), [("SAVi", None), ("PSB", None), ("PSB", 2), ("PSB", 1)])
def test_a_video_that_is_read_in_pieces_is_the_video_that_is_read_at_once(data, core, window):
    kind = partial(load("cores", core), num_slots=3, dim=16)
    task, batch = make_task(data, core=kind, eval_window=window), batch_of(data)
    video = replace(batch.map(lambda value: value[:1]), index=torch.tensor([7]))
    with torch.no_grad():
        whole = task.predict_step(video, 0)
        parts = [task.predict_step(video.slice_time(*ends), 0) for ends in ((0, 2), (2, 3), (3, 5))]
        other = task.predict_step(replace(video, index=torch.tensor([8])).slice_time(3, 5), 0)
    for name in ("slots", "masks", "frames", "attention"):
        pieces = torch.cat([part[name] for part in parts], dim=1)
        torch.testing.assert_close(pieces, whole[name], rtol=1e-4, atol=1e-5)
    # another video begins anew
    if window != 1:
        assert (other["slots"] - whole["slots"][:, 3:]).abs().max() > 1e-4


class TestWindow:
    def test_each_step_is_computed_from_the_last_frames_alone(self, data):
        task = make_task(data, core=partial(load("cores", "PSB"), num_slots=3, dim=16, num_layers=2), eval_window=2)
        batch = batch_of(data)
        with torch.no_grad():
            found = task.evaluate(batch).slots
            last = task(batch.slice_time(3, 5)).slots[:, -1]
            whole = task(batch).slots
        torch.testing.assert_close(found[:, 4], last, rtol=1e-4, atol=1e-5)
        assert (found[:, 4] - whole[:, 4]).abs().max() > 1e-4

    def test_a_core_without_windows_is_refused(self, data):
        with pytest.raises(ValueError, match=r"eval_window=2.*SAVi"):
            make_task(data, eval_window=2)


class TestFeatures:
    def test_the_parts_read_and_reconstruct_the_networks_features(self, data):
        task, batch = make_task(data, features=MeanColours, **FEATURES), batch_of(data)
        features = MeanColours(data.spec.input)(batch.frames)
        assert features.shape == (4, 5, 2, 4, 4)
        with torch.no_grad():
            out = task(batch)
            loss = task.loss(out, batch)
        assert out.decoded.reconstruction.shape == features.shape
        torch.testing.assert_close(loss, (out.decoded.reconstruction - features).square().mean())

    def test_masks_are_brought_to_the_frames_size(self, data):
        task, batch = make_task(data, features=MeanColours, **FEATURES), batch_of(data)
        with torch.no_grad():
            out = task(batch)
        wanted = F.interpolate(out.decoded.masks[0], size=(16, 16), mode="bilinear", align_corners=False)
        torch.testing.assert_close(out.masks[0], wanted)
        assert "val/fg_ari/frame/decoder" in validate(task, data)

    def test_k_means_on_the_features_stands_beside_the_scores_and_a_test_follows_objects(self, data):
        task, batch = make_task(data, features=MeanColours, **FEATURES, baseline_clips=4), batch_of(data)
        found = validate(task, data)
        with torch.no_grad():
            features = task.read(batch).frames
        expected = DiscoveryScores(200)
        for name, labels in feature_segmentations(features, 3, (16, 16)).items():
            expected.update_baseline(name, labels, batch.masks)
        values = expected.compute()
        for name in FEATURE_SEGMENTATIONS:
            for score in ("fg_ari/video", "mbo/frame", "jaccard/video"):
                reference = f"baseline/{score}/{name}"
                assert found[f"val/{reference}"] == pytest.approx(values[reference], abs=1e-6)
        assert {*FEATURE_SEGMENTATIONS, "stripes"} <= set(task.headlines()[0].baselines)
        trainer = quiet_trainer()
        trainer.test(task, datamodule=data, verbose=False)
        followed = ("hota/decoder", "switches_per_100_frames/attention", "jaccard/video/decoder")
        assert {f"test/{name}" for name in followed} <= set(trainer.callback_metrics)
        assert not [name for name in validate(make_task(data), data) if "k-means features" in name]

    def test_features_that_the_data_brings_need_no_network(self, data):
        spec = VideoSpec(channels=2, height=4, width=4)
        task = make_task(data, **FEATURES, data_spec=DataSpec(data.spec.input, data.spec.target, features=spec))
        batch = batch_of(data)
        features = MeanColours(data.spec.input)(batch.frames)
        batch = replace(batch, features=features.half())
        with torch.no_grad():
            out = task(batch)
            loss = task.loss(out, batch)
        torch.testing.assert_close(loss, (out.decoded.reconstruction - features.half().float()).square().mean())

    def test_no_checkpoint_holds_the_network(self, data):
        task = make_task(data, features=MeanColours, **FEATURES)
        assert not [name for name in task.state_dict() if "extractor" in name]

    def test_there_are_pictures_without_a_reconstruction(self, data):
        task = make_task(data, features=MeanColours, **FEATURES)
        with torch.no_grad():
            assert len(task.pictures(batch_of(data))) == 4
        with pytest.raises(ValueError, match="features, which are no frames"):
            task.frames(task(batch_of(data)).decoded)

    def test_k_means_stands_beside_the_slots_in_pictures_and_of_a_video_read_in_pieces_too(self, data, tmp_path):
        task, batch = make_task(data, features=MeanColours, **FEATURES), batch_of(data)
        one = batch.map(lambda values: values[:1])
        with torch.no_grad():
            out, recording = task.evaluate(one), task.recording(tmp_path / "kept", 5)
            for start, stop in ((0, 2), (2, 5)):
                piece = one.slice_time(start, stop)
                recording.add(piece, task.predict(piece))
            panel, video = task.pictures(one)["clip_0"], task.videos(one)["clip_0"]
        assert np.array_equal(recording.pictures()["panel"], panel)
        assert np.array_equal(np.stack(list(recording.videos()["video"])), video)
        clusters = feature_segmentations(task.read(one).frames, 3, (16, 16))["k-means features, clip"][0].long()
        shown = slots_of_clusters(clusters, out.masks[0].argmax(1), 3)[clusters]
        attended = task.attention_masks(out.attention, (16, 16))[0].argmax(1)
        expected = slot_video(one.pixels[0], None, out.masks[0], one.masks[0], clusters=shown, attended=attended)
        assert np.array_equal(expected, video)


def test_a_target_that_is_no_frame_is_refused():
    data = BlinkingBalls(resolution=16, patches_per_side=2)
    with pytest.raises(ValueError, match="SlotAutoencoding reconstructs the frames that it reads"):
        make_task(data)


def test_the_loss_of_a_model_in_float64_is_computed_in_float64(data):
    task, batch = make_task(data).double(), batch_of(data)
    batch = replace(batch, frames=batch.frames.double())
    with torch.no_grad():
        out = task(batch)
        loss = task.loss(out, batch)
    assert loss.dtype == torch.float64
    expected = (out.decoded.reconstruction - batch.frames).square().mean()
    torch.testing.assert_close(loss, expected, rtol=1e-14, atol=0)
