"""Sheets and videos of slots: the right colour in the right place, whatever the size, and whatever is absent."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slotbench.figures.painting import SLOT_COLOURS, match_slots, paint_objects, paint_slots_over, slots_of_clusters
from slotbench.figures.slot_panels import slot_panel, slot_video
from slotbench.metrics.contingency import contingency
from slotbench.metrics.segmentation import matched_iou, pairwise_iou

LABEL, GAP, GROUND = 18, 6, 250
CLOSE = {"rtol": 0, "atol": 1.01}


def one_hot(labels, slots):
    return torch.nn.functional.one_hot(labels, slots).movedim(-1, 1).float()


def quadrants(time=3, side=32, slots=4, first=0):
    """Four quarters, each a slot's from `first` on, in clockwise order shifted by one every frame."""
    quarter = torch.tensor([[0, 1], [3, 2]])
    labels = torch.stack([(quarter + t) % 4 for t in range(time)])
    return one_hot(first + labels.repeat_interleave(side // 2, 1).repeat_interleave(side // 2, 2), slots)


def cells(sheet, rows, columns, cell):
    """The pictures of a sheet, by counting from its lower right corner."""
    high, wide = cell
    left = sheet.shape[1] - columns * (wide + GAP)
    top = LABEL + GAP // 2
    return [
        [sheet[top + r * (high + GAP) :, left + c * (wide + GAP) :][:high, :wide].astype(int) for c in range(columns)]
        for r in range(rows)
    ]


def bar_colours(sheet, rows, columns, cell):
    """The colour between label and pictures in each row."""
    left = sheet.shape[1] - columns * (cell[1] + GAP)
    return [sheet[LABEL + GAP // 2 + r * (cell[0] + GAP) + cell[0] // 2, left - GAP - 3].tolist() for r in range(rows)]


def tinted(slot, grey):
    return 0.6 * SLOT_COLOURS[slot].astype(float) + 0.4 * grey


def test_a_panel_has_the_rows_that_it_says():
    frames, masks = torch.full((3, 3, 32, 32), 0.5), quadrants()
    components = torch.stack([torch.full((3, 3, 32, 32), value) for value in (0.0, 0.2, 0.4, 0.6)], 1)
    true = masks.argmax(1) + 10
    attention = masks.roll(1, 1)
    sheet = slot_panel(frames, frames * 0.4, masks, components, true, attention)
    rows = cells(sheet, 9, 3, (96, 96))
    assert sheet.shape[0] == LABEL + 9 * (96 + GAP) + GAP
    for t in range(3):
        assert (rows[0][t] == 128).all()
        assert (rows[1][t] == 51).all()
        for quarter, (y, x) in enumerate([(20, 20), (20, 70), (70, 70), (70, 20)]):
            slot = (quarter + t) % 4
            np.testing.assert_allclose(rows[2][t][y, x], tinted(slot, 128), **CLOSE)
            np.testing.assert_allclose(rows[3][t][y, x], tinted((slot + 1) % 4, 128), **CLOSE)
            assert rows[4][t][y, x].tolist() == SLOT_COLOURS[slot].tolist()
            for other in range(4):
                shown = round(255 * 0.2 * slot) if other == slot else 217
                np.testing.assert_allclose(rows[5 + other][t][y, x], shown, **CLOSE)
    bars = bar_colours(sheet, 9, 3, (96, 96))
    assert bars[:5] == [[GROUND] * 3] * 5
    assert bars[5:] == SLOT_COLOURS[:4].tolist()


def test_clusters_of_features_stand_behind_the_slots_in_the_colours_of_those_that_they_are_like():
    frames, masks = torch.full((3, 3, 32, 32), 0.5), quadrants()
    labels = masks.argmax(1)
    clusters = (labels + 1) % 4
    clusters[:, :2] = 0
    assert slots_of_clusters(clusters, labels, 4).tolist() == [3, 0, 1, 2]
    shown = slots_of_clusters(clusters, labels, 4)[clusters]
    rows = cells(slot_panel(frames, None, masks, clusters=shown, true_masks=labels), 4, 3, (96, 96))
    video = slot_video(frames, None, masks, labels, clusters=shown)
    assert video.shape[2] == 4 * 129 + 1
    for image, scale in ((rows[2][0], 1), (video[0, 15:143, 259:387], 128 / 96)):
        y, x = (int(scale * place) for place in (20, 70))
        np.testing.assert_allclose(image[y, x], tinted(1, 128), **CLOSE)
        np.testing.assert_allclose(image[2, x], tinted(3, 128), **CLOSE)


def test_soft_masks_fade_a_slots_picture_into_the_ground():
    frames = torch.zeros(1, 3, 32, 32)
    masks = torch.stack([torch.full((1, 32, 32), 0.75), torch.full((1, 32, 32), 0.25)], 1)
    rows = cells(slot_panel(frames, frames, masks, torch.zeros(1, 2, 3, 32, 32)), 5, 1, (96, 96))
    np.testing.assert_allclose(rows[3][0], 0.25 * 217, **CLOSE)
    np.testing.assert_allclose(rows[4][0], 0.75 * 217, **CLOSE)


def test_slots_without_a_pixel_are_shown_through_their_attention_or_named_below():
    frames, masks = torch.full((1, 3, 32, 32), 0.5), torch.zeros(1, 4, 32, 32)
    masks[:, 0], masks[:, 1] = 0.95, 0.05
    attention = one_hot((torch.arange(32) < 16).long()[None, None].expand(1, 32, 32), 4)
    sheet = slot_panel(frames, None, masks, masks[:, :, None].expand(1, 4, 3, 32, 32), attention_masks=attention)
    rows = cells(sheet, 5, 1, (96, 96))
    assert bar_colours(sheet, 5, 1, (96, 96))[3:] == SLOT_COLOURS[:2].tolist()
    assert (rows[4][0][:, :48] == 128).all()
    assert (rows[4][0][:, 48:] == 217).all()
    assert sheet.shape[0] > LABEL + 5 * (96 + GAP) + GAP  # slots 2 and 3


def test_what_is_absent_has_no_row_and_without_components_the_frame_is_seen_through_the_mask():
    frames, masks = torch.rand(3, 3, 32, 32), quadrants()
    sheet = slot_panel(frames, None, masks)
    assert sheet.shape[0] == LABEL + (2 + 4) * (96 + GAP) + GAP
    rows = cells(sheet, 6, 3, (96, 96))
    assert np.array_equal(rows[2][0][:48, :48], rows[0][0][:48, :48])
    assert (rows[2][0][48:] == 217).all()


@pytest.mark.parametrize(("time", "shown"), [(1, 1), (8, 8), (9, 8), (24, 8)])
def test_long_clips_are_thinned_out_evenly_from_first_to_last(time, shown):
    frames = torch.linspace(0, 1, time)[:, None, None, None].expand(time, 3, 32, 32)
    sheet = slot_panel(frames, None, quadrants(time))
    values = [cell[0, 0, 0] for cell in cells(sheet, 1, shown, (96, 96))[0]]
    assert values[0] == 0
    assert values[-1] == (255 if time > 1 else 0)
    assert shown < 3 or max(np.diff(values)) - min(np.diff(values)) <= 1.1 * 255 / (time - 1)


def test_slots_are_outlined_and_lose_the_frames_own_colour():
    labels = torch.zeros(4, 4, dtype=torch.long)
    labels[:, 2:] = 1
    red = torch.zeros(3, 4, 4)
    red[0] = 0.9
    painted = paint_slots_over(red, labels, (16, 16)).astype(float)
    np.testing.assert_allclose(painted[8, :7], np.tile(tinted(0, 0.3 * 255), (7, 1)), **CLOSE)
    np.testing.assert_allclose(painted[8, 8:], np.tile(tinted(1, 0.3 * 255), (8, 1)), **CLOSE)
    np.testing.assert_allclose(painted[8, 7], 0.3 * tinted(0, 0.3 * 255), **CLOSE)


def test_objects_without_a_slot_are_grey_on_a_dark_background():
    true = torch.zeros(4, 12, dtype=torch.long)
    true[:, 4:8], true[:, 8:] = 3, 900
    painted = paint_objects(true, {900: 2}, (4, 12))
    assert painted[1, [1, 5, 10]].tolist() == [[45, 45, 45], [225, 225, 225], SLOT_COLOURS[2].tolist()]


def test_match_is_over_the_whole_clip_and_one_to_one():
    true = torch.zeros(2, 1, 12, dtype=torch.long)
    true[:, :, 4:8], true[:, :, 8:] = 70, 5
    labels = torch.zeros(2, 1, 12, dtype=torch.long)
    labels[:, :, 4:8] = 3
    labels[0, :, 8:] = 3  # in the first frame the slot of 70 has both; over the clip it is more of 70's
    labels[1, :, 8:] = 1
    assert match_slots(labels, true, 4) == {70: 3, 5: 1}
    # what counts nowhere has no slot, and looks as the background does
    true[true == 70] = -1
    assert match_slots(labels, true, 4) == {5: 1}
    assert paint_objects(true[0], {}, (8, 12))[0, [1, 6]].tolist() == [[45, 45, 45]] * 2


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), slots=st.integers(1, 5), objects=st.integers(1, 4))
def test_match_is_the_best_of_all_and_that_of_the_metric(seed, slots, objects):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(slots, (2, 5, 6), generator=generator)
    true = torch.randint(objects + 1, (2, 5, 6), generator=generator)
    partners = match_slots(labels, true, slots)
    table = contingency(labels.flatten(), true.flatten(), slots, objects + 1)
    iou = pairwise_iou(table)
    total = sum(iou[i, slot].item() for i, slot in partners.items())
    value, _ = matched_iou(table)
    assert total / len([i for i in range(1, objects + 1) if (true == i).any()]) == pytest.approx(value.item())
    side = max(slots, objects)
    square = np.pad(iou[1:].numpy(), ((0, side - objects), (0, side - slots)))
    assert total == pytest.approx(max(square[range(side), list(order)].sum() for order in permutations(range(side))))


def test_a_video_has_its_panels_side_by_side():
    frames, masks = torch.full((3, 3, 32, 32), 0.5), quadrants()
    video = slot_video(frames, frames * 0.4, masks, masks.argmax(1))
    assert video.shape == (3, 128 + 16, 4 * 129 + 1, 3)
    panels = [video[:, 15:143, 1 + 129 * i : 129 * (i + 1)] for i in range(4)]
    assert (panels[0] == 128).all()
    assert (panels[1] == 51).all()
    for t in range(3):
        for quarter, (y, x) in enumerate([(30, 30), (30, 90), (90, 90), (90, 30)]):
            slot = (quarter + t) % 4
            np.testing.assert_allclose(panels[2][t, y, x], tinted(slot, 128), **CLOSE)
            expected = SLOT_COLOURS[slot].tolist() if slot else [45, 45, 45]
            assert panels[3][t, y, x].tolist() == expected
    names = video[0, :14]
    assert all((names[:, 129 * i : 129 * (i + 1)] == 230).any() for i in range(4))
