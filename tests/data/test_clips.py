"""Whole videos in pieces: every frame once, in order, with the time counting on, and no video in two processes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from slotbench.data.clips import VideoPieces
from slotbench.data.folders.video_folder import VideoFolder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, length in (("a", 7), ("b", 3), ("c", 12)):
        frames = np.zeros((length, 8, 8, 3), np.uint8)
        frames[..., 0] = np.arange(length)[:, None, None]
        np.save(tmp_path / f"{name}.npy", frames)
    return tmp_path


def read(pieces: VideoPieces) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, piece in enumerate(pieces.pieces):
        (batch,) = pieces.__getitems__([number])
        assert batch.time[0].tolist() == list(range(piece.start, piece.stop))
        assert batch.index is not None
        assert batch.index.tolist() == [piece.number]
        found.setdefault(pieces.title(piece), []).extend(batch.frames[0, :, 0, 0, 0].tolist())
    return found


def test_every_frame_of_every_video_comes_once_and_in_order(folder: Path) -> None:
    data = VideoFolder(str(folder), resolution=8, eval_frames=6)
    found = read(data.video_pieces("test", 5))
    assert found == {"video0000_a": [*range(7)], "video0001_b": [*range(3)], "video0002_c": [*range(12)]}


def test_a_stride_leaves_frames_out_and_the_numbers_say_so(folder: Path) -> None:
    pieces = VideoFolder(str(folder), resolution=8, stride=3).video_pieces("test", 2)
    assert read(pieces)["video0002_c"] == [0, 3, 6, 9]
    last = pieces.pieces[-1]
    assert last.is_last
    assert pieces.frame_numbers(last).tolist() == [0, 3, 6, 9]
    assert pieces.origin(last) == str(folder / "c.npy")
