"""What ids and shares say of a pixel: no slot has it, it counts nowhere, or the file holds something else."""

from __future__ import annotations

import numpy as np
import pytest
from scored_arrays import means, scored
from written_masks import clip

TRUE, SLOTS, SOFT = clip(1)


def layers(ids, slots=5):
    return (np.arange(slots)[None, :, None, None] == ids[:, None]).astype(np.float32)


def test_pixels_that_no_mask_covers_are_a_segment_of_their_own_and_never_slot_0(tmp_path, capsys):
    # the slots from 1 on alone: what was slot 0 is covered by none
    code, printed, found = scored(tmp_path, capsys, masks=layers(SLOTS)[:, 1:], truth=TRUE)
    assert code == 0
    _, _, whole = scored(tmp_path, capsys, masks=layers(SLOTS), truth=TRUE)
    assert means(found) == pytest.approx(means(whole))
    uncovered = int((SLOTS == 0).sum())
    assert (
        f"uncovered: {uncovered:,} pixels ({uncovered / SLOTS.size:.2%}) are no slot's; they are one segment" in printed
    )
    assert "pixels that no slot has are a segment of their own" in printed
    assert found["frames"]["uncovered_pixels"] == uncovered
    assert whole["frames"]["uncovered_pixels"] == 0


def test_pixels_that_no_mask_covers_may_count_nowhere(tmp_path, capsys):
    masks = layers(SLOTS)
    masks[:, :, :, :6] = 0
    code, printed, found = scored(tmp_path, capsys, "--uncovered", "void", masks=masks, truth=TRUE)
    assert code == 0
    assert "they count nowhere (--uncovered void)" in printed
    _, _, part = scored(tmp_path, capsys, masks=SLOTS[:, :, 6:], truth=TRUE[:, :, 6:])
    assert means(found) == pytest.approx(means(part))
    _, _, absent = scored(tmp_path, capsys, "--uncovered", "void", "--absent", "zero", masks=masks, truth=TRUE)
    assert absent["rules"]["uncovered"] == "void"


def test_ids_below_0_are_no_slots(tmp_path, capsys):
    ids = np.where(SLOTS == 0, -1, SLOTS.astype(np.int16))
    ids[0, SLOTS[0] == 0] = -7
    code, printed, found = scored(tmp_path, capsys, masks=ids, truth=TRUE)
    assert code == 0
    assert "are no slot's" in printed
    assert means(found) == pytest.approx(means(scored(tmp_path, capsys, masks=SLOTS, truth=TRUE)[2]))


def test_a_true_id_below_0_has_to_be_named(tmp_path, capsys):
    truth = TRUE.astype(np.int32)
    truth[:, :3] = -1
    code, printed, _ = scored(tmp_path, capsys, masks=SLOTS, truth=truth)
    assert code == 2
    assert (
        "has pixels of id -1, which is no object's; give --void -1 if they count nowhere, or --background -1" in printed
    )
    assert means(scored(tmp_path, capsys, "--void", "-1", masks=SLOTS, truth=truth)[2]) == pytest.approx(
        means(scored(tmp_path, capsys, masks=SLOTS[:, 3:], truth=TRUE[:, 3:])[2])
    )


def test_an_id_of_255_is_said(tmp_path, capsys):
    truth = TRUE.copy()
    truth[:, :3] = 255
    assert (
        "id 255 is an object in the truth of 1 clips; give --void 255"
        in scored(tmp_path, capsys, masks=SLOTS, truth=truth)[1]
    )
    assert "id 255" not in scored(tmp_path, capsys, "--void", "255", masks=SLOTS, truth=truth)[1]
    # black and white masks of one object
    assert "id 255" not in scored(tmp_path, capsys, masks=SLOTS, truth=(TRUE > 0).astype(np.uint8) * 255)[1]


def test_ids_that_are_new_in_every_frame_are_said(tmp_path, capsys):
    new = 10 * np.arange(1, len(TRUE) + 1)[:, None, None] + TRUE
    assert (
        "truth: no id is in two frames running in 1 clips"
        in scored(tmp_path, capsys, masks=SLOTS, truth=np.where(TRUE > 0, new, 0).astype(np.uint8))[1]
    )
    assert "masks: no id is in two frames running in 1 clips" in scored(tmp_path, capsys, masks=new, truth=TRUE)[1]
    assert "two frames running" not in scored(tmp_path, capsys, masks=SLOTS, truth=TRUE)[1]


def test_shares_that_do_not_sum_to_1_are_said_and_the_largest_counts(tmp_path, capsys):
    code, printed, found = scored(tmp_path, capsys, masks=3 * SOFT, truth=TRUE)
    assert code == 0
    assert f"shares of {SLOTS.size:,} pixels (100.00%) do not sum to 1" in printed
    assert means(found) == pytest.approx(means(scored(tmp_path, capsys, masks=SLOTS, truth=TRUE)[2]))
    assert "do not sum to 1" not in scored(tmp_path, capsys, masks=SOFT / SOFT.sum(1, keepdims=True), truth=TRUE)[1]


SUMMED = SOFT / SOFT.sum(1, keepdims=True)


@pytest.mark.parametrize(
    ("masks", "said"),
    [
        (np.moveaxis(SUMMED, 1, -1), "slots last; expected (time, slots, height, width): numpy.moveaxis(masks, -1, 1)"),
        (np.moveaxis(SUMMED, 1, 0), "slots first; expected (time, slots, height, width): numpy.moveaxis(masks, 0, 1)"),
        (np.moveaxis(SUMMED[..., ::2, ::2], 1, -1), "sum to 1 over axis 3, and not over axis 1"),
        (np.moveaxis(SUMMED, 1, 2), "sum to 1 over axis 2, and not over axis 1"),
        (np.moveaxis(SUMMED, 1, 0)[:, :5], "sum to 1 over axis 0, and not over axis 1"),
        ((layers(SLOTS)).astype(np.uint8), "saved as true and false (masks.astype(bool))"),
        (SLOTS / np.float32(255), "they are no whole numbers: were they divided by 255?"),
        (SLOTS.astype(np.float32), "save them as integers (masks.astype(numpy.int32))"),
    ],
)
def test_masks_in_another_form_are_refused_with_what_to_type(tmp_path, capsys, masks, said):
    truth = TRUE[:5] if len(masks) == 5 and masks.shape[1] == 5 else TRUE
    code, printed, _ = scored(tmp_path, capsys, masks=masks, truth=truth)
    assert code == 2
    assert said in printed, printed


@pytest.mark.parametrize(
    ("truth", "said"),
    [
        (TRUE / np.float32(255), "they are no whole numbers: were they divided by 255?"),
        (layers(TRUE).astype(bool), "the truth has ids, one a pixel, as integers (time, height, width)"),
        (layers(TRUE).astype(np.int32), "the truth as one id a pixel (numpy.argmax(masks, 1))"),
        (layers(TRUE), "the truth has ids, one a pixel"),
    ],
)
def test_a_truth_in_another_form_is_refused_with_what_to_type(tmp_path, capsys, truth, said):
    code, printed, _ = scored(tmp_path, capsys, masks=SLOTS, truth=truth)
    assert code == 2
    assert said in printed, printed
