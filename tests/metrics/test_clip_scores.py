"""Scores of clips: clips at once as one by one, in four scopes, tracking that runs log, and means with intervals."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from slotbench.metrics.clip_scores import ClipScores, score_clip, score_clips, summaries
from slotbench.metrics.contingency import frame_tables
from slotbench.metrics.discovery_scores import DiscoveryScores
from slotbench.metrics.mask_metrics import mask_metrics
from slotbench.metrics.mask_rules import Rules
from slotbench.metrics.tracking import Tracking, track
from slotbench.metrics.view_scores import NovelViewScores

pytestmark = pytest.mark.usefixtures("unchecked_shapes")

_OCCUPANCY = ("largest_slot/decoder", "live_slots/decoder", "collapsed/decoder")


def labels(seed: int, clips: int = 3, time: int = 4, ids: int = 4, side: int = 6) -> torch.Tensor:
    """Blocks of ids, some of which are not in every clip or frame."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randint(ids, (clips, time, side // 2, side // 2), generator=generator)
    coarse = coarse * torch.randint(2, (clips, time, 1, 1), generator=generator)
    return coarse.repeat_interleave(2, 2).repeat_interleave(2, 3)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 1000),
    st.integers(1, 4),
    st.integers(1, 5),
    st.sampled_from([Rules(), Rules(window=1, empty="skip"), Rules(absent="zero", min_pixels=0, background_iou=None)]),
)
def test_clips_scored_at_once_have_the_scores_of_clips_one_by_one(seed, clips, time, rules):
    true, predicted = labels(seed, clips, time), labels(seed + 1, clips, time, ids=5)
    tables = frame_tables(predicted, true)[:, :, 0]
    together = score_clips(tables, np.arange(tables.shape[2]), rules)
    assert len(together) == clips
    for i, found in enumerate(together):
        # its own table has rows and columns for its own ids alone
        table = frame_tables(predicted[i : i + 1], true[i : i + 1])[0, :, 0]
        alone = score_clip(table, np.arange(table.shape[1]), rules)
        assert found.values.keys() == alone.values.keys()
        for name, (value, samples) in alone.values.items():
            assert found.values[name] == (pytest.approx(value, abs=1e-12), samples), name
        assert (found.counts, found.tracking) == (alone.counts, alone.tracking)


@pytest.mark.parametrize("kind", [DiscoveryScores, NovelViewScores])
@pytest.mark.parametrize("tracks", [True, False])
def test_what_runs_log_are_the_means_over_clips(kind, tracks):
    true, predicted = labels(0, 6), labels(1, 6, ids=3)
    if kind is NovelViewScores:
        true, predicted = (one.unflatten(1, (2, 2)) for one in (true, predicted))
    scores = kind()
    scores.tracks = tracks
    for part in (slice(0, 4), slice(4, 6)):
        scores.update_masks("decoder", predicted[part], 3, true[part])
    logged = {name: value for name, value in scores.close().items() if name not in _OCCUPANCY}
    tables = frame_tables(predicted, true)
    clips = score_clips(tables if kind is NovelViewScores else tables[:, :, 0], np.arange(tables.shape[3]), Rules())
    means = {f"{name}/decoder": one.mean for name, one in summaries(clips).items() if one.beyond is None}
    expected = {name: mean for name, mean in means.items() if "of_pairs" not in name and (tracks or "/" in name[:-8])}
    assert logged == pytest.approx(expected, abs=1e-12)
    assert ("mota/decoder" in logged) is tracks
    # of the next evaluation nothing is left
    scores.update_masks("decoder", true, 4, true)
    assert scores.close().get("mota/decoder", 1.0) == 1.0


def views_of(seed: int, clips: int = 3, time: int = 4, views: int = 3, ids: int = 4) -> torch.Tensor:
    return labels(seed, clips, time * views, ids).unflatten(1, (time, views))


@pytest.mark.parametrize("window", [None, 2])
def test_clips_of_several_cameras_have_the_scores_of_the_metrics_in_four_scopes(window):
    true, predicted = views_of(0), views_of(1, ids=5)
    found = score_clips(frame_tables(predicted, true), np.arange(4), Rules(window=window))
    together = summaries(found)
    size = window or 4
    for name, metric in mask_metrics().items():
        for scope in ("scene", "step", "video", "frame"):
            expected = metric(scope)
            # a window is a clip of its own
            expected.update(*(x.unflatten(1, (-1, size)).flatten(0, 1) for x in (predicted, true)))
            assert together[f"{name}/{scope}"].mean == pytest.approx(float(expected.compute())), (name, scope)
    assert {sum(one.counts[f"{scope}s"] for one in found) for scope in ("scene", "video")} == {12 // size, 36 // size}
    assert sum(one.counts["steps"] for one in found) == 12


def test_objects_are_tracked_in_each_camera_by_itself():
    true, predicted = views_of(0), views_of(1, ids=5)
    rules = Rules(min_pixels=0, background_iou=None, match_iou=0.1)
    found = score_clips(frame_tables(predicted, true), np.arange(4), rules)
    cameras = [frame_tables(predicted[:, :, v], true[:, :, v])[:, :, 0] for v in range(3)]
    alone = [score_clips(tables, np.arange(tables.shape[2]), rules) for tables in cameras]
    for one, *of_one in zip(found, *alone, strict=True):
        assert one.tracking == sum((camera.tracking for camera in of_one), Tracking())
    # slots that the cameras have in another order are no switch within one of them
    turned = torch.stack([torch.where(true[:, :, v] > 0, (true[:, :, v] + v) % 4 + 1, 0) for v in range(3)], 2)
    assert all(one.tracking.switches == 0 for one in score_clips(frame_tables(turned, true), np.arange(4), rules))
    assert track(frame_tables(turned, true)[0].flatten(0, 1).numpy()).switches > 0


# --- means over clips


def made(*pairs, **tracking):
    return [ClipScores({} if value is None else {"miou/frame": (value, weight)}) for value, weight in pairs]


def test_clips_of_equal_weight_have_students_interval():
    values = [0.2, 0.5, 0.9, 0.4]
    found = summaries(made(*((value, 3) for value in values)))["miou/frame"]
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert (found.mean, found.low, found.high) == pytest.approx((np.mean(values), low, high))


def test_a_mean_is_over_samples_and_its_interval_sees_how_many_a_clip_has():
    found = summaries(made((0.0, 1), (1.0, 3), (None, 0)))["miou/frame"]
    assert found.mean == 0.75
    assert (found.values, found.weights) == ([0.0, 1.0, None], [1, 3, 0])
    # three samples are off by 1/4, one by 3/4, so each clip by 3/4
    half = stats.t.ppf(0.975, 1) * np.sqrt(2 * 2 * 0.75**2) / 4
    assert (found.low, found.high) == pytest.approx((0.75 - half, 0.75 + half))


def test_intervals_hold_the_mean_as_often_as_they_say():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(400):
        weights = rng.integers(5, 30, 12)
        one = summaries(made(*((float(rng.normal(0.5, 0.1)), int(weight)) for weight in weights)))["miou/frame"]
        hits += one.low <= 0.5 <= one.high
    assert 0.91 < hits / 400 < 0.98


def test_a_single_clip_has_no_interval():
    found = summaries(made((0.5, 2)))["miou/frame"]
    assert (found.mean, found.low, found.high) == (0.5, None, None)


def test_the_half_life_is_of_the_lives_of_all_clips():
    both = (Tracking(ended=Counter({3: 1})), Tracking(held=Counter({9: 1})))
    clips = [ClipScores(tracking=tracking) for tracking in both]
    assert summaries(clips)["half_life"].mean == 3
    alone = summaries(clips[1:])["half_life"]
    assert (alone.mean, alone.beyond) == (float("inf"), 9)
