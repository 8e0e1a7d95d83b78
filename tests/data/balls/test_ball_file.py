"""The reader of R-NEM's files of bouncing balls, on files written in their layout."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from ball_files import FRAMES, write_ball_file

from slotbench.data.balls.ball_file import BallFile
from slotbench.data.balls.bouncing_balls import BouncingBalls
from slotbench.data.base import LoaderOptions


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
