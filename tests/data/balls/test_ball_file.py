"""The reader of R-NEM's files of bouncing balls, on files written in their layout."""

from __future__ import annotations

import pickle
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from ball_files import FRAMES, write_ball_file

from slotbench.data.balls.ball_file import BallFile, StoredBalls
from slotbench.data.balls.bouncing_balls import BouncingBalls
from slotbench.data.base import LoaderOptions
from slotbench.errors import DataFilesError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_ball_file(tmp_path / "balls4mass64.h5")


def test_a_clip_is_the_one_that_was_written(path):
    simulated = BouncingBalls(num_balls=2, resolution=16, eval_frames=FRAMES).dataset("test").clips(range(3))
    batch = BallFile(str(path), eval_frames=30).dataset("test").clips([2, 0])
    assert batch.frames.dtype == torch.uint8
    assert batch.frames.shape == (2, 30, 1, 16, 16)
    for place, clip in enumerate((2, 0)):
        assert torch.equal(batch.frames[place], simulated.frames[clip, :30])
        assert torch.equal(batch.masks[place], simulated.masks[clip, :30])
        for name in ("positions", "velocities"):
            torch.testing.assert_close(batch.objects[name][place], simulated.objects[name][clip, :30])
    assert batch.objects["video"].tolist() == [2, 0]


def test_every_split_is_its_own_group(path):
    data = BallFile(str(path), num_frames=5, eval_frames=30, loader=LoaderOptions(train_size=7))
    assert (data.spec.input.channels, data.spec.input.height, data.spec.target.width) == (1, 16, 16)
    assert [len(data.dataset(split)) for split in ("train", "val", "test")] == [7, 2, 3]
    frames = {split: data.dataset(split).clips([0]).frames[0, :5] for split in ("val", "test")}
    assert not torch.equal(frames["val"], frames["test"])


def test_training_cuts_windows_at_random_and_the_same_ones_again(path):
    data = BallFile(str(path), num_frames=5, loader=LoaderOptions(train_size=40))
    batch = data.dataset("train").clips(range(40))
    assert len(set(batch.objects["first_frame"].tolist())) > 10
    assert batch.objects["first_frame"].max() <= FRAMES - 5
    again = BallFile(str(path), num_frames=5, loader=LoaderOptions(train_size=40)).dataset("train").clips(range(40))
    assert torch.equal(batch.frames, again.frames)


def test_a_stride_takes_every_so_many_frames(path):
    whole = BallFile(str(path), eval_frames=51).dataset("test").clips([1])
    every = BallFile(str(path), eval_frames=10, stride=5).dataset("test")
    assert len(every) == 3  # eleven frames each, of which one clip of ten
    assert torch.equal(every.clips([1]).frames[0], whole.frames[0, :46:5])
    assert torch.equal(every.clips([1]).masks[0], whole.masks[0, :46:5])
    train = BallFile(str(path), num_frames=3, stride=5, loader=LoaderOptions(train_size=30)).dataset("train")
    full = BallFile(str(path), num_frames=51).dataset("train")
    for index in range(30):
        clip = train.clips([index])
        video, start = int(clip.objects["video"][0]), int(clip.objects["first_frame"][0])
        expected = full.source.read([video], [0], 51).frames[0, start : start + 11 : 5]
        assert torch.equal(clip.frames[0], expected)


def test_what_a_file_does_not_log_is_left_out(tmp_path):
    path = write_ball_file(tmp_path / "plain.h5", without=("groups", "positions", "velocities"))
    batch = BallFile(str(path)).dataset("val").clips([0])
    assert batch.masks is None
    assert set(batch.objects) == {"video", "first_frame"}


def test_packed_files_are_read_too(tmp_path, path):
    packed = write_ball_file(tmp_path / "packed.h5", compression="gzip")
    assert torch.equal(
        BallFile(str(packed)).dataset("val").clips([1]).frames, BallFile(str(path)).dataset("val").clips([1]).frames
    )


def test_a_source_travels_to_a_worker(path):
    source = StoredBalls(path, "test")
    source.read([0], [0], 2)
    copied = pickle.loads(pickle.dumps(source))
    assert torch.equal(copied.read([1], [3], 4).frames, source.read([1], [3], 4).frames)


def spoiled(path: Path, change) -> Path:
    with h5py.File(path, "r+") as file:
        change(file)
    return path


def reshape(name: str, shape: tuple[int, ...]):
    def change(file: h5py.File) -> None:
        del file[name]
        file[name] = np.zeros(shape, dtype=np.float32)

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda file: file.__delitem__("test"), "has no group test"),
        (lambda file: file["test"].__delitem__("features"), "has no test/features"),
        (reshape("test/features", (51, 3, 16, 16)), "features of shape"),
        (reshape("test/features", (51, 3, 16, 16, 2)), "features of shape"),
        (reshape("test/features", (51, 0, 16, 16, 1)), "features of shape"),
        (reshape("test/groups", (51, 3, 8, 8, 1)), "groups of shape"),
    ],
)
def test_a_file_of_another_layout_is_refused_with_what_was_expected(path, change, words):
    with pytest.raises(DataFilesError, match=words) as error:
        BallFile(str(spoiled(path, change))).dataset("test")
    assert "balls4mass64.h5 of R-NEM" in str(error.value)


def test_a_group_that_leads_to_another_file_is_refused(tmp_path, path):
    other = write_ball_file(tmp_path / "other.h5")

    def link(file: h5py.File) -> None:
        del file["test"]
        file["test"] = h5py.ExternalLink(str(other), "test")

    with pytest.raises(DataFilesError, match="no group test of its own"):
        BallFile(str(spoiled(path, link))).dataset("test")


def test_a_file_that_is_not_there_is_one_sentence(tmp_path):
    with pytest.raises(DataFilesError, match="there is no file"):
        _ = BallFile(str(tmp_path / "none.h5")).spec


def test_longer_clips_than_the_file_has_are_refused(path):
    with pytest.raises(DataFilesError, match="clips of 52 frames"):
        BallFile(str(path), eval_frames=52).dataset("val")
