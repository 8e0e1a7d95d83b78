"""The colour tracker: patches of one colour keep their ids as long as they move little and are not gone for long."""

import torch

from slotbench.metrics.colour_tracker import colour_tracker_labels


def drawn(*places, time=1, side=24, colour=1.0):
    """Frames in which each place (frame, row, column) has a square of 4 x 4 pixels."""
    frames = torch.zeros(1, time, 3, side, side)
    for frame, row, column in places:
        frames[0, frame, 0, row : row + 4, column : column + 4] = colour
    return frames


def ids(labels):
    return [sorted(set(frame.flatten().tolist()) - {0}) for frame in labels[0]]


def test_a_patch_that_moves_a_little_keeps_its_id():
    labels = colour_tracker_labels(drawn((0, 2, 2), (1, 3, 3), (2, 4, 4), time=3), 2)
    assert ids(labels) == [[1], [1], [1]]
    assert (labels[0, 1] == 1).nonzero()[0].tolist() == [3, 3]


def test_two_patches_of_one_colour_are_two_objects():
    labels = colour_tracker_labels(drawn((0, 2, 2), (0, 14, 14), (1, 3, 2), (1, 13, 14), time=2), 2)
    assert ids(labels) == [[1, 2], [1, 2]]
    assert labels[0, 0, 2, 2] == labels[0, 1, 3, 2]


def test_patches_of_two_colours_are_not_confused_where_they_cross():
    frames = drawn((0, 2, 2), (1, 6, 6), time=2)
    frames[0, 0, 1, 6:10, 6:10] = frames[0, 1, 1, 2:6, 2:6] = 1
    labels = colour_tracker_labels(frames, 3)
    assert labels[0, 0, 3, 3] == labels[0, 1, 7, 7] != labels[0, 0, 7, 7] == labels[0, 1, 3, 3]


def test_one_that_jumps_or_is_gone_for_long_is_another():
    assert ids(colour_tracker_labels(drawn((0, 2, 2), (1, 2, 14), time=2), 2)) == [[1], [2]]
    assert ids(colour_tracker_labels(drawn((0, 2, 2), (5, 2, 2), time=6), 2))[5] == [1]
    assert ids(colour_tracker_labels(drawn((0, 2, 2), (6, 2, 2), time=7), 2))[6] == [2]


def test_a_frame_has_no_more_objects_than_slots():
    frames = (torch.rand(1, 3, 3, 32, 32, generator=torch.Generator().manual_seed(0)) > 0.5).float()
    assert all(len(found) <= 4 for found in ids(colour_tracker_labels(frames, 4)))
