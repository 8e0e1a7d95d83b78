"""What an MP4 holds when it is read again."""

from __future__ import annotations

import io

import numpy as np
import pytest

from slotbench.callbacks import mp4
from slotbench.callbacks.mp4 import can_encode_mp4, encode_mp4

av = pytest.importorskip("av")
pytestmark = pytest.mark.skipif(not can_encode_mp4(), reason="PyAV without an encoder for H.264")


def decode(content: bytes) -> tuple[np.ndarray, float]:
    """Frames "time height width 3", and frames per second."""
    with av.open(io.BytesIO(content)) as container:
        stream = container.streams.video[0]
        assert stream.codec_context.name == "h264"
        assert stream.codec_context.pix_fmt == "yuv420p"
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
        return np.stack(frames), float(stream.average_rate)


def test_frames_and_colours_come_back_enlarged() -> None:
    video = np.zeros((5, 8, 10, 3), np.uint8)
    for time in range(5):
        video[time, :, :5] = (40 * time, 100, 200)
        video[time, :, 5:] = (250, 20, 60)
    frames, rate = decode(encode_mp4(video))
    assert frames.shape == (5, 256, 320, 3)
    assert rate == 10
    middles = frames[:, 16::32, 16::32].astype(int)
    assert np.abs(middles - video).max() <= 12
    assert np.abs(middles - video).mean() <= 3


@pytest.mark.parametrize(
    ("height", "width", "stored"),
    [
        (257, 301, (258, 302)),
        (300, 256, (300, 256)),
        (85, 129, (340, 516)),
        (1, 1, (256, 256)),
        (255, 700, (510, 1400)),
    ],
)
def test_sides_are_even_and_large_enough(height: int, width: int, stored: tuple[int, int]) -> None:
    video = np.full((2, height, width, 3), 120, np.uint8)
    frames, _ = decode(encode_mp4(video))
    assert frames.shape[:3] == (2, *stored)
    assert np.abs(frames.astype(int) - 120).max() <= 3  # to the last row and column


@pytest.mark.parametrize("length", [1, 2, 40])
def test_no_frame_is_lost_and_their_order_is_kept(length: int) -> None:
    video = (np.arange(length, dtype=np.uint8) * 6)[:, None, None, None] * np.ones((1, 16, 16, 3), np.uint8)
    frames, rate = decode(encode_mp4(video, frames_per_second=25))
    assert len(frames) == length
    assert np.abs(frames.mean((1, 2, 3)) - video[:, 0, 0, 0]).max() <= 2
    assert rate == 25


def test_without_pyav_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mp4, "find_spec", lambda name: None)
    assert not can_encode_mp4.__wrapped__()
