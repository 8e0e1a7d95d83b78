"""The public tracking sets as they lie on the disk: order of the axes, run lengths, ids, background, and refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis.extra.numpy import array_shapes, arrays
from tracking_files import FRAMES, HEIGHT, VIDEOS, WIDTH, runs_of, true_masks, write_tracking_files

from slotbench.data.tracking.multi_object_tracking import MultiObjectTracking
from slotbench.data.tracking.run_lengths import decode_runs, encode_runs
from slotbench.errors import DataFilesError


def data(folder, **arguments):
    return MultiObjectTracking(str(folder), **({"num_frames": 2, "eval_frames": FRAMES} | arguments))


@given(arrays(bool, array_shapes(min_dims=2, max_dims=2, max_side=6)))
def test_run_lengths_are_in_reading_order_from_one(mask) -> None:
    assert encode_runs(mask) == runs_of(mask)
    np.testing.assert_array_equal(decode_runs(runs_of(mask), *mask.shape), mask)


def test_runs_that_overlap_are_one_mask() -> None:
    assert decode_runs("1 3 2 1", 1, 5).tolist() == [[True, True, True, False, False]]


@pytest.mark.parametrize(
    "text", ["1", "1 2 3", "0 2", "1 0", "7 1", "5 3", "1 -1", "a b", "1 99999999999999999999", "²  1"]
)
def test_what_is_no_mask_of_the_frame_is_refused(text) -> None:
    with pytest.raises(DataFilesError, match="a mask is"):
        decode_runs(text, 2, 3)


def test_a_clip_has_the_frames_and_the_objects_of_its_file(tmp_path) -> None:
    write_tracking_files(tmp_path)
    batch = data(tmp_path).dataset("test").clips([2, 0])
    stored = np.load(tmp_path / "vmds_test.npy")
    np.testing.assert_array_equal(batch.frames, stored[[2, 0]])
    np.testing.assert_array_equal(batch.masks, true_masks()[[2, 0]])
    assert batch.objects["num_objects"].tolist() == [2, 2]
    assert batch.objects["video"].tolist() == [2, 0]
    spec = data(tmp_path).spec.input
    assert (spec.channels, spec.height, spec.width) == (3, HEIGHT, WIDTH)


def test_an_object_has_its_number_in_every_clip_of_its_video(tmp_path) -> None:
    write_tracking_files(tmp_path)
    clips = data(tmp_path, eval_frames=2).dataset("test")
    assert len(clips) == VIDEOS * FRAMES // 2
    np.testing.assert_array_equal(clips.clips([3]).masks[0], true_masks()[1, 2:])
    together = torch.cat([clips.clips([2]).masks, clips.clips([3]).masks], dim=1)
    np.testing.assert_array_equal(together[0], true_masks()[1])


@pytest.mark.parametrize("num_bg", [0, 3])
def test_as_many_masks_as_it_says_are_background(tmp_path, num_bg) -> None:
    write_tracking_files(tmp_path, num_bg=num_bg)
    np.testing.assert_array_equal(data(tmp_path).dataset("test").clips(range(VIDEOS)).masks, true_masks())


def test_predictions_have_no_background_and_are_read_too(tmp_path) -> None:
    path = write_tracking_files(tmp_path)
    told = json.loads(path.read_text())
    for frame in (frame for video in told for frame in video):
        del frame["num_bg"]
    path.write_text(json.dumps(told))
    masks = data(tmp_path).dataset("test").clips([0]).masks
    # the mask of the background is an object like others, the one of the largest id
    np.testing.assert_array_equal(masks[0] % 3, true_masks()[0])


def test_splits_without_annotations_have_no_masks_and_train_on_cuts(tmp_path) -> None:
    write_tracking_files(tmp_path)
    (tmp_path / "vmds_train.npy").write_bytes((tmp_path / "vmds_test.npy").read_bytes())
    batch = data(tmp_path).dataset("train").clips(range(20))
    assert batch.masks is None
    assert batch.frames.shape == (20, 2, 3, HEIGHT, WIDTH)


def test_annotations_and_further_test_sets_are_where_one_says(tmp_path) -> None:
    write_tracking_files(tmp_path / "vmds", split="same_color").rename(tmp_path / "vmds_same_color.json")
    there = data(tmp_path / "vmds", test_set="same_color", annotations=str(tmp_path))
    np.testing.assert_array_equal(there.dataset("test").clips([1]).masks[0], true_masks()[1])
    with pytest.raises(DataFilesError, match=r"there is no file .*vmds_same_color.json; expected a list of videos"):
        data(tmp_path / "vmds", test_set="same_color", annotations=str(tmp_path / "vmds")).dataset("test")


def test_only_annotated_frames_are_read(tmp_path) -> None:
    path = write_tracking_files(tmp_path)
    path.write_text(json.dumps([video[:3] for video in json.loads(path.read_text())]))
    with pytest.raises(DataFilesError, match=r"clips of 4 frames are asked for, and the longest video .* has 3"):
        data(tmp_path).dataset("test")
    assert data(tmp_path, eval_frames=None).dataset("test").clips([0]).num_steps == 3


def test_an_empty_folder_is_refused_with_the_names_of_the_files(tmp_path) -> None:
    with pytest.raises(DataFilesError, match=r"has none of them; expected vor_train.npy, vor_val.npy or vor_test.npy"):
        _ = data(tmp_path, name="vor").spec
    with pytest.raises(ValueError, match="expected a part of a file's name"):
        data(tmp_path, name="../vmds")
