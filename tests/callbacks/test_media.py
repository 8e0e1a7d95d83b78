"""GIFs and MP4s hold what was written, when they are read again."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from slotbench.callbacks import media
from slotbench.callbacks.media import can_encode_mp4, encode_gif, write_mp4

needs_encoder = pytest.mark.skipif(not can_encode_mp4(), reason="needs PyAV with an encoder for H.264")


def decode(content: bytes) -> tuple[np.ndarray, list[int]]:
    """Frames "time height width 3" and how long each is shown, in milliseconds."""
    frames, durations = [], []
    with Image.open(io.BytesIO(content)) as picture:
        assert picture.format == "GIF"
        assert picture.info["loop"] == 0
        for index in range(picture.n_frames):
            picture.seek(index)
            frames.append(np.asarray(picture.convert("RGB")))
            durations.append(picture.info["duration"])
    return np.stack(frames), durations


def moving_square(length: int, height: int, width: int) -> np.ndarray:
    video = np.zeros((length, height, width, 3), np.uint8)
    for time in range(length):
        video[time, time % height, :, :] = (10 * time % 256, 255, 3)
    return video


@given(
    seed=st.integers(0, 1000),
    length=st.integers(1, 6),
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    colours=st.integers(1, 256),
)
@settings(max_examples=25)
def test_up_to_256_colours_come_back_as_they_were(
    seed: int, length: int, height: int, width: int, colours: int
) -> None:
    generator = np.random.default_rng(seed)
    palette = generator.integers(0, 256, (colours, 3), dtype=np.uint8)
    video = palette[generator.integers(colours, size=(length, height, width))]
    frames, durations = decode(encode_gif(video))
    factor = -(-256 // min(height, width))
    expected = video.repeat(factor, 1).repeat(factor, 2)
    shown = frames.repeat(np.array(durations) // 100, axis=0)
    assert np.array_equal(shown, expected)


def test_frames_are_counted_timed_and_enlarged_by_whole_pixels() -> None:
    frames, durations = decode(encode_gif(moving_square(12, 80, 196)))
    assert frames.shape == (12, 320, 784, 3)
    assert durations == [100] * 12
    faster = decode(encode_gif(moving_square(3, 300, 260), frames_per_second=25.0))
    assert faster[0].shape == (3, 300, 260, 3)
    assert faster[1] == [40] * 3


def test_a_frame_like_the_one_before_is_shown_for_longer() -> None:
    video = moving_square(5, 256, 256)[[0, 1, 1, 1, 2]]
    frames, durations = decode(encode_gif(video))
    assert len(frames) == 3
    assert durations == [100, 300, 100]


def test_every_grey_is_kept_among_colours_that_fit() -> None:
    ramp = np.arange(256, dtype=np.uint8)
    video = np.broadcast_to(ramp[None, None, :, None], (1, 256, 256, 3))
    frames, _ = decode(encode_gif(video))
    assert np.array_equal(frames, video)


def test_of_too_many_colours_greys_stay_grey_and_areas_stay_plain() -> None:
    video = np.zeros((2, 256, 512, 3), np.uint8)
    video[:, :, :256] = np.arange(256, dtype=np.uint8)[None, None, :, None]
    video[:, :, 256:, 0], video[:, :, 256:, 1] = np.mgrid[:256, :256].astype(np.uint8)
    video[1] = video[1, ::-1]
    frames, _ = decode(encode_gif(video))
    greys = frames[:, :, :256].astype(int)
    assert np.abs(greys - video[:, :, :256]).max() <= 2
    assert (greys == greys[..., :1]).all()
    assert {0, 255} <= set(np.unique(greys))
    # no dithering: one column is one value
    assert (greys == greys[:, :1]).all()
    assert np.abs(frames[:, :, 256:].astype(int) - video[:, :, 256:]).mean() < 8


@pytest.mark.parametrize("shades", [257, 5000])
def test_a_video_of_many_greys_and_no_colour_is_no_special_case(shades: int) -> None:
    generator = np.random.default_rng(0)
    video = generator.integers(0, 256, (2, 256, 256, 1), dtype=np.uint8).repeat(3, -1)
    video[0, 0, : shades // 100] += np.array([1, 0, 0], np.uint8)
    frames, _ = decode(encode_gif(video))
    assert np.abs(frames.astype(int) - video).max() < 30


def decode_mp4(path: Path) -> tuple[np.ndarray, float]:
    """Frames "time height width 3", and frames per second."""
    import av

    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert stream.codec_context.name == "h264"
        assert stream.codec_context.pix_fmt == "yuv420p"
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
        return np.stack(frames), float(stream.average_rate)


def written_mp4(folder: Path, video: np.ndarray, frames_per_second: int = 10) -> tuple[np.ndarray, float]:
    write_mp4(folder / "video.mp4", video, frames_per_second)
    assert [path.name for path in folder.iterdir()] == ["video.mp4"]
    return decode_mp4(folder / "video.mp4")


@needs_encoder
def test_frames_and_colours_come_back_enlarged(tmp_path: Path) -> None:
    video = np.zeros((5, 8, 10, 3), np.uint8)
    for time in range(5):
        video[time, :, :5] = (40 * time, 100, 200)
        video[time, :, 5:] = (250, 20, 60)
    frames, rate = written_mp4(tmp_path, video)
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
@needs_encoder
def test_sides_are_even_and_large_enough(tmp_path: Path, height: int, width: int, stored: tuple[int, int]) -> None:
    video = np.full((2, height, width, 3), 120, np.uint8)
    frames, _ = written_mp4(tmp_path, video)
    assert frames.shape[:3] == (2, *stored)
    assert np.abs(frames.astype(int) - 120).max() <= 3  # to the last row and column


@pytest.mark.parametrize("length", [1, 2, 40])
@needs_encoder
def test_no_frame_is_lost_and_their_order_is_kept(tmp_path: Path, length: int) -> None:
    video = (np.arange(length, dtype=np.uint8) * 6)[:, None, None, None] * np.ones((1, 16, 16, 3), np.uint8)
    frames, rate = written_mp4(tmp_path, video, frames_per_second=25)
    assert len(frames) == length
    assert np.abs(frames.mean((1, 2, 3)) - video[:, 0, 0, 0]).max() <= 2
    assert rate == 25


def test_without_pyav_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media, "find_spec", lambda name: None)
    assert not can_encode_mp4.__wrapped__()
