"""What records say of masks: clips scored at once as one by one, the means that are logged, which clips they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slotbench.metrics.clip_scores import score_clip, score_clips
from slotbench.metrics.clip_summary import summaries
from slotbench.metrics.contingency import frame_tables
from slotbench.metrics.discovery_scores import DiscoveryScores
from slotbench.metrics.mask_evaluation import MaskEvaluation, truth_digests
from slotbench.metrics.mask_metrics import MASK_METRICS
from slotbench.metrics.mask_rules import Rules
from slotbench.metrics.tracking import Tracking, track
from slotbench.metrics.view_scores import NovelViewScores

pytestmark = pytest.mark.usefixtures("unchecked_shapes")


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


def scored(per_clip: bool, batches: list[int]) -> tuple[dict[str, float], DiscoveryScores]:
    true, predicted = labels(0, 6), labels(1, 6, ids=3)
    scores = DiscoveryScores()
    scores.per_clip = per_clip
    start = 0
    for size in batches:
        part = slice(start, start + size)
        scores.update_masks("decoder", predicted[part], 3, true[part], torch.arange(start, start + size))
        scores.update_masks("attention", true[part], 4, true[part], torch.arange(start, start + size))
        scores.update_baseline("one slot", torch.zeros_like(true[part]), true[part])
        start += size
    return scores.close(), scores


@pytest.mark.parametrize("per_clip", [True, False])
def test_a_record_has_the_means_that_are_logged(per_clip):
    logged, scores = scored(per_clip, [6])
    assert [found.source for found in scores.mask_scores] == ["decoder", "attention"]
    for found in scores.mask_scores:
        segmentation = {name: one["mean"] for name, one in found.scores.items() if "/" in name}
        for scope in ("video", "frame") if per_clip else ():
            # stands beside ClevrTex's numbers, and is not logged
            assert segmentation.pop(f"miou_of_pairs/{scope}") <= segmentation[f"miou_with_background/{scope}"]
        assert segmentation == {
            name.removesuffix(f"/{found.source}"): pytest.approx(value, abs=1e-12)
            for name, value in logged.items()
            if name.endswith(f"/{found.source}") and "/" in name.removesuffix(f"/{found.source}")
        }
        assert len(segmentation) == 12
        assert ("mota" in found.scores) is per_clip
        assert found.baselines["one slot"]["miou/video"]["mean"] == logged["baseline/miou/video/one slot"]
    assert scores.mask_scores[0].rules == Rules().as_record()
    assert scores.mask_scores[0].frames["lengths"] == {"4": 6}
    assert scores.mask_scores[0].frames["sizes"] == {"6x6": 6}


def test_batches_make_no_difference_to_a_record():
    one, other = (scored(True, batches)[1].mask_scores for batches in ([6], [2, 1, 3]))
    # baselines are sums in another order
    assert [replace(found, baselines={}) for found in one] == [replace(found, baselines={}) for found in other]
    assert one[0].clips == [0, 1, 2, 3, 4, 5]


def test_records_of_the_next_evaluation_know_its_clips_alone():
    _, scores = scored(True, [6])
    true = labels(5, 2)
    scores.update_masks("decoder", true, 4, true)
    scores.close()
    (found,) = scores.mask_scores
    assert found.clips == [0, 1]
    # baselines are scored once, and stay
    assert "one slot" in found.baselines


def test_clips_are_known_by_their_truth_whatever_is_in_their_batch():
    true = labels(0, 6)
    true[2:] = true[2:].clamp(max=1)  # which have fewer objects than the batch
    for seen in (true, true.unflatten(1, (2, 2))):  # by one camera, and by two
        digests = truth_digests(frame_tables(torch.zeros_like(seen), seen).squeeze(2))
        assert len(set(digests)) == 6
        for i, digest in enumerate(digests):
            alone = frame_tables(labels(9, 1).view_as(seen[:1]), seen[i : i + 1]).squeeze(2)
            assert truth_digests(alone) == [digest]


def test_the_clips_of_several_processes_are_one_evaluation():
    true, predicted = labels(0, 6), labels(1, 6, ids=3)
    tables = frame_tables(predicted, true)[:, :, 0]
    whole, *parts = (MaskEvaluation(per_clip=True) for _ in range(3))
    whole.add(tables, (6, 6), 3, torch.arange(6))
    for part, chosen in zip(parts, ([1, 3, 5], [0, 2, 4]), strict=True):
        part.add(tables[chosen], (6, 6), 3, torch.tensor(chosen))
    parts[0].merge(parts[1])
    assert parts[0].result("decoder", {}, {}) == whole.result("decoder", {}, {})


def test_clips_are_scored_by_the_rules_and_a_window_is_a_video_of_its_own():
    true, predicted = labels(0), labels(1, ids=3)
    tables = frame_tables(predicted, true)[:, :, 0]
    rules, ids = Rules(window=2, absent="zero"), np.array([0, 2, 5, 9])
    found = MaskEvaluation(rules=rules)
    found.add(tables, (6, 6), 3, true_ids=ids)
    assert found.scores == score_clips(tables, ids, rules) != score_clips(tables, np.arange(4), rules)
    result = found.result("decoder")
    assert result.rules == rules.as_record()
    assert (result.frames["scored"], result.frames["lengths"]) == (3 * 4, {"2": 3})


def views_of(seed: int, clips: int = 3, time: int = 4, views: int = 3, ids: int = 4) -> torch.Tensor:
    return labels(seed, clips, time * views, ids).unflatten(1, (time, views))


@pytest.mark.parametrize("window", [None, 2])
def test_clips_of_several_cameras_have_the_scores_of_the_metrics_in_four_scopes(window):
    true, predicted = views_of(0), views_of(1, ids=5)
    found = score_clips(frame_tables(predicted, true), np.arange(4), Rules(window=window))
    together = summaries(found)
    size = window or 4
    for name, metric in MASK_METRICS.items():
        for scope in ("scene", "step", "video", "frame"):
            expected = metric.make(scope)
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


def test_a_camera_alone_has_the_scores_of_a_clip_without_an_axis_of_views():
    true, predicted = labels(0), labels(1, ids=3)
    plain = score_clips(frame_tables(predicted, true)[:, :, 0], np.arange(4), Rules())
    for one, other in zip(plain, score_clips(frame_tables(predicted, true), np.arange(4), Rules()), strict=True):
        assert one.tracking == other.tracking
        assert one.values.items() <= other.values.items()
        for name, value in one.values.items():
            for scope, same in (("/scene", "/video"), ("/step", "/frame")):
                assert other.values[name.replace(same, scope)] == value


@pytest.mark.parametrize("per_clip", [True, False])
def test_a_record_of_several_cameras_has_the_means_that_are_logged(per_clip):
    true, predicted = views_of(0, 6), views_of(1, 6, ids=3)
    scores = NovelViewScores()
    scores.per_clip = per_clip
    for part in (slice(0, 4), slice(4, 6)):
        scores.update_views(predicted[part], 3, true[part], 2, torch.arange(6)[part])
        scores.update_baseline("one slot", torch.zeros_like(true[part]), true[part])
    logged = scores.close()
    (found,) = scores.mask_scores
    for scope in ("scene", "step", "video", "frame"):
        for name in ("fg_ari", "fg_ari_several", "miou", "mbo", "ari"):
            assert found.scores[f"{name}/{scope}"]["mean"] == pytest.approx(logged[f"{name}/{scope}/decoder"])
        assert found.baselines["one slot"][f"miou/{scope}"]["mean"] == logged[f"baseline/miou/{scope}/one slot"]
    assert ("mota" in found.scores) is per_clip
    # that of the held-out cameras alone is no score of these masks
    assert "baseline/fg_ari/scene/held_out/one slot" in logged
    assert not any("held_out" in name for name in {**found.scores, **found.baselines["one slot"]})
    assert found.frames["views"] == {"2 of 3": 6}
    assert (found.frames["scored"], found.frames["lengths"]) == (6 * 4 * 3, {"4": 6})
