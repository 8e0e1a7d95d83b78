"""All scores of object discovery at once."""

import io
from dataclasses import asdict

import pytest
import torch
from rich.console import Console

from slotbench.interfaces import VideoBatch
from slotbench.metrics.discovery_scores import DiscoveryScores
from slotbench.metrics.frames import frame_psnr, frame_ssim
from slotbench.metrics.mask_metrics import mask_headline, mask_headlines, mask_score_infos
from slotbench.metrics.objects.clear_mot import ClearMOT
from slotbench.metrics.segmentation import FGARI, MatchedIoU
from slotbench.metrics.view_scores import NovelViewScores
from slotbench.runs.headlines import score_table


@pytest.fixture
def clips() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = (3, 4, 8, 8)
    return torch.randint(5, shape, generator=generator), torch.randint(4, shape, generator=generator)


def test_decoder_attention_and_baselines_are_kept_apart(clips):
    predicted, true = clips
    scores = DiscoveryScores()
    scores.update_masks("decoder", true, 5, true)
    scores.update_masks("attention", predicted, 5, true)
    scores.update_baseline("one slot", torch.zeros_like(true), true)
    values = scores.compute()
    assert values["miou/video/decoder"] == 1
    assert values["miou/video/attention"] < 0.5
    assert values["baseline/fg_ari/video/one slot"] == 0
    assert "largest_slot/decoder" in values
    assert "largest_slot/one slot" not in values


@pytest.mark.parametrize("metric", [DiscoveryScores, NovelViewScores, ClearMOT])
def test_pixels_of_minus_one_count_nowhere(clips, metric):
    predicted, true = (ids.clone() for ids in clips)
    void = torch.rand(true.shape, generator=torch.Generator().manual_seed(3)) < 0.3
    found = []
    # whatever slots have them, and as if these pixels were not there
    for slots in (predicted, torch.where(void, 4, predicted)):
        scores, ids = metric(), true.masked_fill(void, -1)
        if metric is DiscoveryScores:
            scores.tracks = True
            scores.update_masks("decoder", slots, 5, ids)
            scores.update_baseline("one slot", slots, ids)
        elif metric is NovelViewScores:
            scores.update_views(slots[:, None], 5, ids[:, None], 2)
        else:
            scores.update(slots, ids)
        found.append(scores.compute())
    occupancy = ("largest_slot", "live_slots", "collapsed")
    same = [name for name in found[0] if not name.startswith(occupancy)]
    first, second = ({name: float(one[name]) for name in same} for one in found)
    assert first == pytest.approx(second, nan_ok=True, abs=0)
    if metric is DiscoveryScores:
        for name, kept in {"fg_ari": FGARI, "miou": MatchedIoU}.items():
            metric = kept("video")
            metric.update(predicted, true, ~void)
            assert found[0][f"{name}/video/decoder"] == pytest.approx(float(metric.compute()))


def test_without_the_truth_there_is_occupancy_and_no_segmentation_score(clips):
    scores = DiscoveryScores()
    scores.update_masks("decoder", clips[0], 5, None)
    assert set(scores.compute()) == {"largest_slot/decoder", "live_slots/decoder", "collapsed/decoder"}


def test_frames_are_scored_one_by_one(clips):
    generator = torch.Generator().manual_seed(1)
    predicted, true = torch.rand(2, 2, 3, 3, 16, 16, generator=generator)
    scores = DiscoveryScores()
    scores.update_frames(predicted, true)
    values = scores.compute()
    assert values["psnr/frame"] == pytest.approx(frame_psnr(predicted, true).mean().item(), abs=1e-5)
    assert values["ssim/frame"] == pytest.approx(frame_ssim(predicted, true).mean().item(), abs=1e-6)


def test_frames_below_the_window_of_ssim_have_none():
    scores = DiscoveryScores()
    scores.update_frames(torch.zeros(1, 1, 3, 8, 8), torch.ones(1, 1, 3, 8, 8))
    assert set(scores.compute()) == {"mse/frame", "psnr/frame"}


def test_several_objects_are_averaged_apart():
    true = torch.zeros(2, 1, 4, 4, dtype=torch.int64)
    true[0, 0, 0], true[0, 0, 1], true[1, 0, 0] = 1, 2, 1
    predicted = torch.zeros_like(true)
    scores = DiscoveryScores()
    scores.update_masks("decoder", predicted, 2, true)
    values = scores.compute()
    assert values["fg_ari/video/decoder"] == 0.5
    assert values["fg_ari_several/video/decoder"] == 0


def test_views_that_show_no_two_objects_do_not_count_and_are_counted():
    true = torch.zeros(2, 3, 3, 2, 2, dtype=torch.int64)  # batch time views height width
    true[:, :, 0, 0], true[:, :, 0, 1], true[:, :, 1, 0] = 1, 2, 3  # the third camera sees nothing
    scores = NovelViewScores(200)
    scores.update_views(true, 4, true, shown=1)
    scores.update_baseline("one slot", torch.zeros_like(true), true)
    values = scores.close()
    for scope, floor in {"frame": 2 / 3, "video": 2 / 3, "step": 0, "scene": 0, "scene/held_out": 1}.items():
        assert values[f"baseline/fg_ari/{scope}/one slot"] == pytest.approx(floor)
        assert values.get(f"baseline/fg_ari_several/{scope}/one slot", 0) == 0
    assert "fg_ari_several/scene/held_out" not in values, "they show one object"
    for scope, note in {"frame": "without 12 of 18 frames, which show fewer than 2 objects", "step": ""}.items():
        headline = mask_headline("fg_ari_several", "decoder", "told apart", scope)
        found = headline.headline("val", scores.references, notes=scores.notes)
        assert (found.note, found.higher_is_better, found.baselines) == (note, True, {"one slot": 0})
        shown = Console(width=120, file=io.StringIO(), record=True)
        shown.print(score_table([asdict(found)], {found.metric: 0.5}))
        assert note in shown.export_text()


def baselines_of(clips, bound, order=(0, 1, 2), numbered=True):
    """Baselines of three clips, of which those below the bound are to count, given one by one in this order."""
    scores = DiscoveryScores(baseline_clips=bound)
    frames = torch.rand(3, 4, 3, 8, 8, generator=torch.Generator().manual_seed(2))
    for i in order:
        one = VideoBatch(
            frames[i : i + 1],
            torch.arange(4)[None],
            masks=clips[1][i : i + 1],
            index=torch.tensor([i]) if numbered else None,
        )
        scores.update_baselines(one, 5)
    return scores.compute()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_baselines_are_of_the_first_clips_of_the_set_whatever_the_order(clips, order):
    found = baselines_of(clips, 2, order)
    assert found == baselines_of(clips, 9, (0, 1)) != baselines_of(clips, 9)
    assert found["baseline/ari/video/one slot"] == 0
    assert baselines_of(clips, 2, numbered=False) == baselines_of(clips, 9, (0, 1))  # counted as they come
    assert baselines_of(clips, 0) == {}


def test_reports_begin_with_fg_ari_and_its_mean_over_scenes_of_several_objects():
    names = [info.name for info in mask_score_infos()]
    assert names[:5] == ["fg_ari", "fg_ari_several", "miou", "ari", "miou_of_pairs"]
    assert names.index("mbo") < names.index("mota")


def test_the_report_has_each_metric_of_masks_that_papers_use():
    found = [one.name for one in mask_headlines()]
    assert {f"{name}/video/decoder" for name in ("fg_ari", "miou", "mbo", "ari")} <= set(found)
    assert [one.name for one in mask_headlines("fg_ari", "mbo")] == ["fg_ari/video/decoder", "mbo/video/decoder"]
