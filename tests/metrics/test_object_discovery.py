"""Scopes, special samples and the state of the object-discovery metrics."""

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score

from slotbench.metrics.contingency import contingency, frame_tables
from slotbench.metrics.segmentation import ARI, FGARI, MatchedIoU, MeanBestOverlap, matched_iou

EVERY = [ARI, FGARI, MatchedIoU, MeanBestOverlap, lambda scope: MatchedIoU(scope, ignore_background=False)]
SCOPES = ["frame", "video", "step", "scene"]
every_metric = pytest.mark.parametrize("make", EVERY, ids=["ARI", "FGARI", "mIoU", "mBO", "mIoU with background"])


def random_clips(*shape, objects=4, slots=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    true = torch.randint(0, objects + 1, shape, generator=generator)
    other = torch.randint(0, slots, shape, generator=generator)
    return torch.where(torch.rand(shape, generator=generator) < 0.6, true % slots, other), true


def value_of(metric, *arguments):
    metric.update(*arguments)
    return metric.compute().item()


def scikit_learn_fg_ari(predicted, true):
    front = true.flatten() > 0
    return adjusted_rand_score(true.flatten()[front].numpy(), predicted.flatten()[front].numpy())


def test_the_score_of_a_video_is_that_of_all_its_pixels_at_once():
    predicted, true = random_clips(3, 4, 6, 7)
    whole = [scikit_learn_fg_ari(predicted[i], true[i]) for i in range(3)]
    frames = [scikit_learn_fg_ari(predicted[i, t], true[i, t]) for i in range(3) for t in range(4)]
    assert value_of(FGARI("video"), predicted, true) == pytest.approx(np.mean(whole), abs=1e-12)
    assert value_of(FGARI("frame"), predicted, true) == pytest.approx(np.mean(frames), abs=1e-12)


def test_slots_that_exchange_their_objects_are_seen_in_videos_only():
    true = torch.tensor([[[[1, 1, 2, 2]], [[1, 1, 2, 2]]]])
    predicted = torch.tensor([[[[0, 0, 1, 1]], [[1, 1, 0, 0]]]])
    for make in (ARI, FGARI):
        assert value_of(make("frame"), predicted, true) == 1.0
        assert value_of(make("video"), predicted, true) == pytest.approx(-1 / 6, abs=1e-12)
    for make in (MatchedIoU, MeanBestOverlap):
        assert value_of(make("frame"), predicted, true) == 1.0
        assert value_of(make("video"), predicted, true) == pytest.approx(1 / 3, abs=1e-12)


def test_the_four_groupings_of_several_cameras_pool_what_they_say():
    predicted, true = random_clips(2, 3, 4, 5, 6)  # batch time views height width
    groups = {
        "frame": [(i, t, v) for i in range(2) for t in range(3) for v in range(4)],
        "video": [(i, slice(None), v) for i in range(2) for v in range(4)],
        "step": [(i, t, slice(None)) for i in range(2) for t in range(3)],
        "scene": [(i, slice(None), slice(None)) for i in range(2)],
    }
    for scope, members in groups.items():
        expected = np.mean([scikit_learn_fg_ari(predicted[group], true[group]) for group in members])
        metric = FGARI(scope)
        assert value_of(metric, predicted, true) == pytest.approx(expected, abs=1e-12)
        assert metric.counts()["samples"] == len(members)
        ious = [matched_iou(contingency(predicted[g].flatten(), true[g].flatten()))[0].item() for g in members]
        assert value_of(MatchedIoU(scope), predicted, true) == pytest.approx(np.mean(ious), abs=1e-12)


def test_small_soft_masks_are_resized_to_the_truth():
    true = torch.zeros(1, 2, 8, 8, dtype=torch.int64)
    true[..., 2:6, 2:6] = 3
    soft = torch.stack([(true == 0).float(), (true == 3).float()], dim=2)[..., ::2, ::2]
    assert value_of(MeanBestOverlap("video"), soft, true) > 0.6
    assert value_of(MeanBestOverlap("video"), soft.half(), true) > 0.6


@every_metric
@pytest.mark.parametrize("scope", SCOPES)
def test_neither_the_split_into_batches_nor_their_order_matters(make, scope):
    predicted, true = random_clips(7, 2, 2, 5, 6)
    whole, split = make(scope), make(scope)
    whole.update(predicted, true)
    for part in ([6, 0], [3, 1, 2], [5], [4]):
        split.update(predicted[part], true[part])
    assert split.compute().item() == pytest.approx(whole.compute().item(), abs=1e-12)
    assert split.counts() == whole.counts()
    assert split.mean_of_several() == pytest.approx(whole.mean_of_several(), abs=1e-12)


def test_everything_that_is_reported_is_that_of_all_processes():
    predicted, true = random_clips(3, 2, 5, 6)
    alone, together = MatchedIoU("frame"), MatchedIoU("frame")
    # a second process that has seen the same clips
    together.distributed_available_fn = lambda: True
    together.dist_sync_fn = lambda state, group: [state, state]
    for metric in (alone, together):
        metric.update(predicted, true)
    assert together.counts() == {name: 2 * count for name, count in alone.counts().items()}
    assert together.compute().item() == pytest.approx(alone.compute().item(), abs=1e-12)
    assert together.mean_of_several() == pytest.approx(alone.mean_of_several(), abs=1e-12)
    together.update(predicted, true)  # and goes on from its own state
    assert together.counts()["samples"] == 4 * alone.counts()["samples"]


@pytest.fixture
def special_clips():
    """All background; one object in one slot; one object in two; two objects well found; two objects ill found."""
    true = torch.tensor([[0, 0, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1], [0, 1, 2, 2], [0, 1, 1, 2]])
    predicted = torch.tensor([[0, 1, 1, 1], [0, 0, 2, 2], [0, 0, 1, 2], [0, 1, 2, 2], [0, 1, 2, 2]])
    return predicted[:, None, None], true[:, None, None]


def test_special_samples_are_counted_beside_the_mean_of_fg_ari(special_clips):
    metric = FGARI("video")
    assert value_of(metric, *special_clips) == pytest.approx((1 + 1 + 0 + 1 - 0.5) / 5)
    assert metric.mean_of_several() == pytest.approx((1 - 0.5) / 2)
    assert metric.counts() == {
        "samples": 5,
        "several_objects": 2,
        "single_object": 2,
        "without_objects": 1,
        "skipped": 0,
    }


def test_samples_without_objects_are_skipped_by_ious_and_counted(special_clips):
    per_sample = {MatchedIoU: [1, 0.5, 1, 0.5], MeanBestOverlap: [1, 0.5, 1, 0.5]}
    for make, values in per_sample.items():
        metric = make("frame")
        assert value_of(metric, *special_clips) == pytest.approx(np.mean(values))
        assert metric.mean_of_several() == pytest.approx(0.75)
        counts = metric.counts()
        assert (counts["samples"], counts["skipped"], counts["without_objects"]) == (4, 1, 1)
    with_background = MatchedIoU("frame", ignore_background=False)
    with_background.update(*special_clips)
    assert with_background.counts()["samples"] == 5
    assert with_background.counts()["without_objects"] == 1


@every_metric
def test_pixels_that_do_not_count_change_nothing_whatever_their_ids(make):
    predicted, true = random_clips(3, 2, 6, 8)
    valid = torch.ones_like(true, dtype=torch.bool)
    valid[..., 5:] = False
    expected = value_of(make("video"), predicted[..., :5], true[..., :5])
    spoiled_true = torch.where(valid, true, torch.tensor(255_000))
    spoiled = torch.where(valid, predicted, torch.tensor(-1))
    assert value_of(make("video"), spoiled, spoiled_true, valid) == pytest.approx(expected, abs=1e-12)


@every_metric
def test_a_sample_without_a_valid_pixel_is_left_out(make):
    predicted, true = random_clips(2, 3, 5, 6)
    valid = torch.ones_like(true, dtype=torch.bool)
    valid[1, 2] = False
    kept = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    metric = make("frame")
    expected = np.mean([value_of(make("frame"), predicted[i, t][None, None], true[i, t][None, None]) for i, t in kept])
    assert value_of(metric, predicted, true, valid) == pytest.approx(expected, abs=1e-12)
    assert (metric.counts()["samples"], metric.counts()["skipped"]) == (5, 1)


def test_an_id_is_the_same_row_in_all_frames_of_a_clip():
    true = torch.tensor([[[[900, 900, 0]], [[0, 5000, 5000]], [[0, 900, 5000]]]])
    tables = frame_tables(torch.zeros_like(true), true)
    assert tables[0, :, 0, :, 0].tolist() == [[1, 2, 0], [1, 0, 2], [1, 1, 1]]


def test_before_any_sample_has_a_value_there_is_no_mean():
    metric = MatchedIoU("frame")
    metric.update(torch.zeros(1, 1, 2, 2, dtype=torch.int64), torch.zeros(1, 1, 2, 2, dtype=torch.int64))
    assert metric.compute().isnan()
    assert np.isnan(metric.mean_of_several())
