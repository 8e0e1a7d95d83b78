"""Masks of another proportion than the truth are refused, or cut and stretched as a rule says; so are the frames."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scored_arrays import scored

from slotbench.data.folders.video_folder import middle_square
from slotbench.errors import UserError
from slotbench.evaluation.alignment import align
from slotbench.evaluation.proportions import part_of, same_proportion
from slotbench.interfaces import View
from slotbench.metrics.mask_rules import Rules

PATHS = Path("masks"), Path("truth")


def walk(height=32, width=64, frames=6):
    rows, columns = np.mgrid[:height, :width]
    ids = np.zeros((frames, height, width), np.uint8)
    for t in range(frames):
        for one, (row, column) in enumerate([(8, 20), (22, 30), (12, 44)]):
            ids[t][(rows - row) ** 2 + (columns - column - t) ** 2 < 30] = one + 1
    return ids


def soft(ids, slots=4):
    return np.stack([ids == slot for slot in range(slots)], 1).astype(np.float32)


def labels(masks, truth, view=None, **rules):
    return align(masks, truth, Rules(**rules), PATHS, view)


@pytest.mark.parametrize("as_masks", [soft, lambda ids: ids], ids=["soft masks", "ids"])
@pytest.mark.parametrize("rules", [{}, {"resolution": "masks"}, {"resize": "nearest"}])
def test_masks_of_another_proportion_are_refused_whatever_the_size_of_the_score(as_masks, rules):
    truth = walk()
    with pytest.raises(UserError, match=r"masks of 32 x 32 pixels.* 32 x 64, another proportion.*--fit crop"):
        labels(as_masks(truth[:, :, 16:48]), truth, **rules)


def test_a_middle_square_is_compared_with_the_middle_square_of_the_truth():
    truth = walk()
    found = labels(soft(truth[:, :, 16:48]), truth, fit="crop")
    assert np.array_equal(found.labels.numpy(), found.true.numpy())
    assert found.facts.view == View((32, 64), (0, 16, 32, 32))


def test_wide_masks_are_cut_to_a_truth_that_is_the_middle():
    truth = walk()
    found = labels(soft(truth), truth[:, :, 16:48], fit="crop")
    assert np.array_equal(found.labels.numpy(), truth[:, :, 16:48])
    assert found.facts.mask_size == (32, 64)


@given(st.integers(2, 60), st.integers(2, 60))
def test_the_rule_cuts_what_predict_cuts(height, width):
    truth = np.arange(height * width, dtype=np.int64).reshape(1, height, width)
    side = min(height, width)
    if side == max(height, width):
        return
    found = labels(np.zeros((1, side, side), np.uint8), truth, fit="crop", resize="nearest")
    top, left, rows, columns = found.facts.view.box
    assert np.array_equal(truth[:, top : top + rows, left : left + columns], middle_square(truth))


def test_stretching_is_done_where_it_is_asked_for():
    truth = walk()
    found = labels(soft(truth[:, :, ::2]), truth, fit="stretch", resize="nearest")
    assert np.array_equal(found.labels.numpy(), truth[:, :, ::2].repeat(2, 2))


def test_a_standing_and_a_lying_image_are_no_part_of_each_other():
    truth = walk()
    for rule in ("refuse", "crop"):
        with pytest.raises(UserError, match="rows and columns exchanged"):
            labels(soft(truth.transpose(0, 2, 1)), truth, fit=rule)


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ((480, 854), (240, 427), True),
        ((480, 854), (120, 214), True),  # 213.5
        ((480, 854), (120, 213), True),
        ((480, 854), (120, 212), False),
        ((480, 854), (28, 50), True),
        ((32, 32), (32, 64), False),
        ((32, 32), (16, 17), False),
        ((16, 16), (128, 128), True),
    ],
)
def test_sides_that_were_rounded_are_of_one_proportion(one, other, alike):
    assert same_proportion(one, other) == same_proportion(other, one) == alike


def test_files_say_which_part_they_show_whatever_the_size_of_the_truth():
    truth = walk()
    masks, view = soft(truth[:, :, 32:64]), View((32, 64), (0, 32, 32, 32))
    assert np.array_equal(labels(masks, truth, view, fit="file").labels.numpy(), truth[:, :, 32:64])
    double = truth.repeat(2, 1).repeat(2, 2)
    assert labels(masks, double, view, fit="file").facts.view.box == (0, 64, 64, 64)
    already = labels(masks, truth[:, :, 32:64], view, fit="file")
    assert already.facts.view.box == (0, 0, 32, 32)
    with pytest.raises(UserError, match="the proportion of neither"):
        labels(masks, truth[:, :, :48], view, fit="file")
    with pytest.raises(UserError, match="does not say what its masks show"):
        labels(masks, truth, None, fit="file")


def test_frames_for_baselines_are_cut_as_the_truth_is():
    frame = np.arange(64 * 128 * 3).reshape(64, 128, 3)
    view = View((32, 64), (0, 16, 32, 32))
    assert np.array_equal(part_of(frame, view, Path("video")), frame[:, 32:96])
    assert np.array_equal(part_of(frame[:, :64], view, Path("video")), frame[:, :64])
    with pytest.raises(UserError, match="has frames of 64 x 100 pixels"):
        part_of(frame[:, :100], view, Path("video"))


def test_the_command_says_what_was_cut(tmp_path, capsys):
    truth = walk()
    code, printed, _ = scored(tmp_path, capsys, masks=soft(truth[:, :, 16:48]), truth=truth)
    assert code == 2
    assert "another proportion" in printed
    code, printed, _ = scored(tmp_path, capsys, "--fit", "crop")
    assert code == 0
    assert "cut: of 1 clips, 32 x 32 pixels of the truth's 32 x 64 are scored" in printed
    assert "the side that shows more cut to the middle that the other shows" in printed
    assert "mIoU per video ↑ 1.000" in printed
    assert scored(tmp_path, capsys, "--fit", "middle")[0] == 2
