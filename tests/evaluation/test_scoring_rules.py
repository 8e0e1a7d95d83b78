"""Each rule changes the score that it is said to change, and nothing else; conventions are rules."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score
from torch import from_numpy
from torch.nn import functional as F
from written_masks import clip

from slotbench import cli
from slotbench.evaluation.alignment import align
from slotbench.evaluation.conventions import CONVENTIONS, under
from slotbench.evaluation.mask_files import MaskClip
from slotbench.metrics.clip_scores import score_clip
from slotbench.metrics.mask_rules import Rules

TRUE, SLOTS, SOFT = clip(1)


def scores(masks, truth, **rules):
    rules = Rules(**rules)
    masks, truth = (MaskClip(Path("a"), np.asarray(values)) for values in (masks, truth))
    aligned = align(masks, truth, rules)
    found = score_clip(aligned.tables(aligned.labels), aligned.true_ids, rules)
    return {name: value for name, (value, _) in found.values.items()}


def fg_ari(true, slots):
    return adjusted_rand_score(true[true > 0], slots[true > 0])


def test_frames_left_out_are_as_if_they_were_not_there():
    assert scores(SLOTS, TRUE, skip=2, first=6) == scores(SLOTS[2:6], TRUE[2:6])
    # masks and truth may then be of different lengths
    assert scores(SLOTS[:6], TRUE, first=6) == scores(SLOTS[:6], TRUE[:6])


def test_a_window_is_a_video_of_its_own_and_what_is_left_is_not_scored():
    found = scores(SLOTS, TRUE, window=3)
    pieces = [scores(SLOTS[start : start + 3], TRUE[start : start + 3]) for start in (0, 3)]
    for name in ("fg_ari/video", "miou/video", "mbo/frame"):
        assert found[name] == pytest.approx(np.mean([piece[name] for piece in pieces])), name
    assert found["fg_ari/video"] == pytest.approx(np.mean([fg_ari(TRUE[i : i + 3], SLOTS[i : i + 3]) for i in (0, 3)]))


def test_a_swap_between_two_windows_is_none_within_them():
    assert scores(SLOTS, TRUE)["switches_per_100_frames"] > 0
    assert scores(SLOTS[:4], TRUE[:4], window=2)["switches_per_100_frames"] == 0


def test_pixels_that_are_void_count_nowhere_whatever_the_masks_say():
    truth, noisy = TRUE.copy(), SLOTS.copy()
    truth[:, :6] = 200
    noisy[:, :6] = np.random.default_rng(0).integers(0, 9, noisy[:, :6].shape)
    assert scores(noisy, truth, void=(200,)) == pytest.approx(scores(SLOTS[:, 6:], TRUE[:, 6:]))
    assert scores(noisy, truth)["ari/video"] != pytest.approx(scores(SLOTS[:, 6:], TRUE[:, 6:])["ari/video"])


@pytest.mark.parametrize("background", [1, 3, 255, -1])
def test_the_background_may_have_any_id(background):
    truth = TRUE.astype(np.int32)
    # an object then has the id 0
    truth = np.where(truth == 0, background, np.where(truth == background, 0, truth))
    assert scores(SLOTS, truth, background=background) == pytest.approx(scores(SLOTS, TRUE))


def test_without_a_background_every_id_is_an_object():
    found = scores(SLOTS, TRUE, background=None)
    usual = scores(SLOTS, TRUE)
    assert found["fg_ari/video"] == pytest.approx(usual["ari/video"])
    assert found["miou/frame"] == pytest.approx(usual["miou_with_background/frame"])


def test_pixels_of_no_slot_are_one_segment_or_count_nowhere():
    bare = SOFT.copy()
    bare[:, :, :6] = 0
    own, without = SLOTS.astype(np.int16), SLOTS.astype(np.int16)
    own[:, :6], without[:, :6] = 99, -1
    assert scores(bare, TRUE) == scores(own, TRUE) == scores(without, TRUE)
    assert scores(bare, TRUE, uncovered="void") == pytest.approx(scores(SLOTS[:, 6:], TRUE[:, 6:]))


def test_soft_masks_come_to_the_size_of_the_truth_before_the_argmax():
    small = SOFT[:, :, ::2, ::2]
    large = F.interpolate(from_numpy(small), (24, 24), mode="bilinear", align_corners=False).numpy()
    assert scores(small, TRUE) == scores(large.argmax(1), TRUE)


def test_nearest_is_repetition_after_the_argmax():
    small = SOFT[:, :, ::2, ::2]
    repeated = small.argmax(1).repeat(2, 1).repeat(2, 2)
    assert scores(small, TRUE, resize="nearest") == scores(repeated, TRUE)
    assert scores(small.argmax(1), TRUE, resize="nearest") == scores(repeated, TRUE)
    assert scores(small, TRUE) != scores(repeated, TRUE)


def test_at_the_size_of_the_masks_the_truth_is_shrunk():
    small = SLOTS[:, ::3, ::3]
    assert scores(small, TRUE, resolution="masks") == scores(small, TRUE[:, 1::3, 1::3])


def test_empty_frames_count_1_or_are_left_out():
    truth = TRUE.copy()
    truth[:2] = 0
    values = [fg_ari(true, slots) for true, slots in zip(truth[2:], SLOTS[2:], strict=True)]
    assert scores(SLOTS, truth)["fg_ari/frame"] == pytest.approx(np.mean([1, 1, *values]))
    assert scores(SLOTS, truth, empty="skip")["fg_ari/frame"] == pytest.approx(np.mean(values))
    nothing = scores(SLOTS, np.zeros_like(TRUE), empty="skip")
    assert "fg_ari/video" not in nothing
    assert "miou/video" not in nothing


@given(st.integers(0, 1000))
def test_absent_ids_below_the_highest_count_0_as_slotformer_counts_them(seed):
    rng = np.random.default_rng(seed)
    true = rng.choice([0, 2, 3, 5, 70], (1, 6, 6)).astype(np.uint8)
    slots = rng.integers(0, 4, (1, 6, 6), dtype=np.uint8)
    highest = true.max()
    if not highest:
        return
    # a row for every id from 1 to the highest one, as their one-hot has
    ious = np.array([[iou(true == i, slots == j) for j in range(4)] for i in range(1, highest + 1)])
    best = ious[linear_sum_assignment(ious, maximize=True)].sum()
    assert scores(slots, true, absent="zero")["miou/frame"] == pytest.approx(best / highest)


def iou(one, other):
    return (one & other).sum() / max((one | other).sum(), 1)


def test_conventions_keep_what_the_data_decide_and_set_the_rest():
    given = Rules(first=6, void=(9,), background=2, window=3, empty="skip", resolution="masks")
    found = {one.name: under(given, one) for one in CONVENTIONS}
    assert len(found) == len(CONVENTIONS)
    assert all((one.first, one.void, one.background, one.resolution) == (6, (9,), 2, "masks") for one in found.values())
    assert found["SAVi, paper"].skip == 1
    assert (found["STEVE, PSB"].window, found["STEVE, PSB"].resize) == (6, "nearest")
    assert found["ClevrTex"].resize == "bilinear"
    assert found["SAVi, repository"].window is None
    assert found["SlotFormer"].absent == "zero"
    assert (found["VideoSAUR, YouTube-VIS"].window, found["SlotContrast, YouTube-VIS"].window) == (6, None)
    assert found["SlotContrast, YouTube-VIS"].empty == "skip"


def test_clevrtex_has_two_mious_one_of_which_counts_surplus_slots():
    # 24 pixels: a background of 12, objects of 8 and 4, and slots of 10, 2, 8, 3 and 1
    truth = np.repeat([0, 0, 1, 2], [10, 2, 8, 4]).astype(np.uint8).reshape(1, 4, 6)
    slots = np.repeat([0, 1, 2, 3, 4], [10, 2, 8, 3, 1]).astype(np.uint8).reshape(1, 4, 6)
    matched = 10 / 12 + 8 / 8 + 3 / 4
    found = scores(slots, truth)
    assert found["miou_with_background/frame"] == pytest.approx(matched / 3)
    assert found["miou_of_pairs/frame"] == pytest.approx(matched / 5)
    # as many slots as true segments cost nothing, and fewer are no gain
    assert scores(truth, truth)["miou_of_pairs/frame"] == 1
    assert scores(np.minimum(truth, 1), truth)["miou_of_pairs/frame"] == pytest.approx((1 + 8 / 12) / 3)


def test_the_table_of_conventions_has_the_scores_of_each(tmp_path, capsys):
    for name, values in {"masks": SLOTS, "truth": TRUE}.items():
        np.save(tmp_path / f"{name}.npy", values)
    assert cli.run(["score", str(tmp_path / "masks.npy"), "--truth", str(tmp_path / "truth.npy"), "--conventions"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = {line[:20].strip(): line[20:] for line in lines}
    expected = {
        "SAVi, repository": fg_ari(TRUE, SLOTS),
        "SAVi, paper": fg_ari(TRUE[1:], SLOTS[1:]),
        "STEVE, PSB": fg_ari(TRUE[:6], SLOTS[:6]),
        "VideoSAUR, images": np.mean([fg_ari(true, slots) for true, slots in zip(TRUE, SLOTS, strict=True)]),
    }
    for name, value in expected.items():
        assert f"{value:.3f}" in rows[name], name
    assert any("savi/lib/metrics.py" in line for line in lines)
