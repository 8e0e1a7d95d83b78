"""Sheets and videos of roll-outs, and their legends."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from slotbench.figures.painting import paint_frame, paint_slots
from slotbench.figures.rollouts import rollout_sheet, rollout_video
from slotbench.figures.sheets import Row, contact_sheet, stacked_strips
from slotbench.interfaces import Decoded

BAND, KEY, LOOKING, ALONE = 14, 36, (240, 190, 60), (70, 70, 70)


def panels(strip: np.ndarray, width: int, height: int, count: int = 3) -> list[np.ndarray]:
    lefts = [1 + column * (width + 1) for column in range(count)]
    return [strip[BAND + 1 : BAND + 1 + height, left : left + width] for left in lefts]


def test_truth_prediction_and_both_stand_side_by_side() -> None:
    true, predicted = torch.rand(5, 1, 128, 140), torch.rand(2, 1, 128, 140)
    video = rollout_video(true, predicted)
    assert video.shape == (5, 128 + BAND + 2 + KEY, 3 * 140 + 4, 3)
    assert video.dtype == np.uint8
    bytes_ = (true[:, 0] * 255).round().byte().numpy()
    guessed = (predicted[:, 0] * 255).round().byte().numpy()
    for time in range(5):
        answer = bytes_[time] if time < 3 else guessed[time - 3]
        left, middle, right = panels(video[time], 140, 128)
        assert np.array_equal(left, bytes_[time][..., None].repeat(3, -1))
        assert np.array_equal(middle, answer[..., None].repeat(3, -1))
        assert np.array_equal(right, np.stack([answer, bytes_[time], np.zeros_like(answer)], -1))


def test_a_baseline_and_the_slots_of_small_frames_stand_beside_them_enlarged() -> None:
    true, predicted, simple = torch.rand(5, 3, 32, 32), torch.rand(2, 3, 32, 32), torch.rand(2, 3, 32, 32)
    masks = torch.rand(2, 4, 32, 32).softmax(1)
    video = rollout_video(true, predicted, masks, ("grey, mean of the context", simple))
    for time in range(5):
        *_, baseline, slots = panels(video[time], 128, 128, 5)
        if time < 3:
            expected = [paint_frame(true[time])] * 2
        else:
            bright = (predicted[time - 3].mean(0) > 0.5).long()
            expected = [paint_frame(simple[time - 3]), paint_slots(masks[time - 3].argmax(0), bright)]
        for panel, image in zip((baseline, slots), expected, strict=True):
            assert np.array_equal(panel, image.repeat(4, 0).repeat(4, 1))


def test_videos_below_one_another_take_as_long_as_the_longest_and_are_as_wide_as_the_widest() -> None:
    short, long = (np.random.default_rng(0).integers(0, 255, size, np.uint8) for size in ((2, 8, 90, 3), (4, 9, 60, 3)))
    sheet = stacked_strips({"first": short, "second": long})
    assert (len(sheet), sheet.shape[2]) == (4, 90)
    title = (sheet.shape[1] - 8 - 9 - 2 * 6) // 2
    assert np.array_equal(sheet[:, title : title + 8], short[[0, 0, 1, 1]])
    assert np.array_equal(sheet[:, -9 - 6 : -6, :60], long)
    assert not sheet[:, -9 - 6 :, 60:].any()
    assert sheet[:, :title].any()


def test_more_predicted_than_true_frames_are_refused() -> None:
    with pytest.raises(ValueError, match="3 predicted frames and 2 true ones"):
        rollout_video(torch.zeros(2, 1, 4, 4), torch.zeros(3, 1, 4, 4))


def test_below_a_roll_out_stand_the_frame_and_the_colours() -> None:
    video = rollout_video(torch.zeros(4, 1, 64, 64), torch.zeros(2, 1, 64, 64))
    frame, colours = video[:, -KEY : -KEY // 2], video[:, -KEY // 2 :]
    # context in the colour of its border, then white; every frame has its own number
    assert [set(map(tuple, part.reshape(-1, 3).tolist())) - {(0, 0, 0)} for part in frame] == [
        {LOOKING},
        {LOOKING},
        {(230, 230, 230)},
        {(230, 230, 230)},
    ]
    assert len({part.tobytes() for part in frame}) == 4
    shown = set(map(tuple, colours[0].reshape(-1, 3).tolist()))
    assert {(0, 255, 0), (255, 0, 0), (255, 255, 0), (230, 230, 230)} <= shown
    assert (colours == colours[:1]).all()


def test_a_sheet_of_roll_outs_has_a_legend_below_unchanged_pictures() -> None:
    frames, decoded = torch.rand(2, 7, 1, 16, 16), Decoded(torch.rand(2, 4, 1, 16, 16), torch.rand(2, 4, 3, 16, 16))
    sheet = rollout_sheet(frames, decoded, 3, ("black", torch.zeros(2, 4, 1, 16, 16)))
    bare = contact_sheet([Row("truth", [np.zeros((16, 16, 3), np.uint8)] * 5)] * 10, ["x"] * 5)
    assert sheet.shape[1] == bare.shape[1]
    below = sheet[bare.shape[0] :]
    assert len(below) > 30
    assert {(0, 255, 0), (255, 0, 0), (255, 255, 0)} <= set(map(tuple, below.reshape(-1, 3).tolist()))
    written = (below.astype(int).sum(-1) < 300).any(axis=1)
    assert written.mean() > 0.3
    # nothing runs over the edge
    assert (below[:, -1] == 250).all()
    truth = (frames[0, 3, 0] * 255).round().byte().numpy()
    left, top = 66 + 6 + 96 + 6, 18 + 3
    assert np.array_equal(sheet[top : top + 96, left : left + 96, 0], truth.repeat(6, 0).repeat(6, 1))
