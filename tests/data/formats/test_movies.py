"""A movie is decoded once, in order, upright, and its kept frames are those of the file, whatever the codec."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from movie_files import LENGTH, number_of, numbered_frame, packed, replaced, with_matrix, write_movie

from slotbench.data.formats import movies
from slotbench.data.formats.images import Fit
from slotbench.data.formats.movies import MovieFile, keep_movies
from slotbench.errors import DataFilesError

pytest.importorskip("av")

B_FRAMES = {"bf": "3", "b_adapt": "0"}
WHOLE = Fit(48, 192, mode="stretch")


def made(codec: str = "libx264", **how: object) -> Callable[[Path], Path]:
    return lambda path: write_movie(path, codec, **how)  # type: ignore[arg-type]


MAKERS: dict[str, Callable[[Path], Path]] = {
    "h264.avi": made(options=B_FRAMES),
    "irregular.mp4": made(options=B_FRAMES, times=lambda number: 40 * number + 17 * (number % 3) + 300 * (number // 7)),
    "open.mp4": made(options={"x264-params": "open-gop=1:keyint=10:min-keyint=10:scenecut=0:bframes=3:b-adapt=0"}),
    "hevc.mkv": made("libx265", options={"x265-params": "keyint=15:log-level=none"}),
    "packed.avi": lambda path: packed(path, write_movie(path.with_name("other.avi"), "mpeg4", b_frames=1)),
    "mpeg2.mpg": made("mpeg2video", b_frames=2),
    "vp9.webm": made("libvpx-vp9"),
    "mjpeg.avi": made("mjpeg", pixels="yuvj420p"),
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLOTBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "movies"


@pytest.mark.parametrize("name", MAKERS)
def test_every_frame_is_kept_once_in_order(name: str, tmp_path: Path, cache: Path) -> None:
    movie = MovieFile(MAKERS[name](tmp_path / name), WHOLE)
    assert movie.length == LENGTH
    kept = movie.fitted(range(3, LENGTH, 4), WHOLE)
    assert [number_of(frame.transpose(1, 2, 0)) for frame in kept] == list(range(3, LENGTH, 4))
    assert [number_of(frame) for frame in movie.frames([0, 7, 39])] == [0, 7, 39]
    assert len(list(cache.glob("*.npy"))) == 1


def test_a_kept_movie_is_not_decoded_again_until_it_or_the_size_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, calls = write_movie(tmp_path / "a.mp4"), []
    decoded = movies.decoded
    monkeypatch.setattr(movies, "decoded", lambda path: calls.append(path) or decoded(path))
    for fit in (WHOLE, WHOLE, Fit(8, 8)):
        keep_movies([MovieFile(path, fit)])
    assert MovieFile(path, Fit(8, 8)).fitted([1], Fit(8, 8)).shape == (1, 3, 8, 8)
    assert len(calls) == 2
    os.utime(path, (1, 1))
    keep_movies([MovieFile(path, WHOLE)])
    assert len(calls) == 3


def test_a_killed_or_failed_decoding_leaves_nothing(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    movie = MovieFile(write_movie(tmp_path / "a.mp4"), WHOLE)

    def cut_off(path: Path):
        yield numbered_frame(0)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(movies, "decoded", cut_off)
        with pytest.raises(KeyboardInterrupt):
            keep_movies([movie])
    assert not [path for path in cache.iterdir() if path.name != ".lock"]
    assert movie.length == LENGTH


def test_frames_are_turned_as_the_display_matrix_says(tmp_path: Path) -> None:
    for matrix, turn in {(0, 1, -1, 0): -1, (-1, 0, 0, -1): 2, (0, -1, 1, 0): 1}.items():
        path = with_matrix(write_movie(tmp_path / "a.mp4"), *(65536 * value for value in matrix))
        (shown,) = MovieFile(path).frames([20])
        difference = np.abs(shown.astype(int) - np.rot90(numbered_frame(20), turn).astype(int))
        assert np.median(difference) == 0
        assert difference.mean() < 5
    path = with_matrix(write_movie(tmp_path / "b.mp4"), 46341, 46341, -46341, 46341)
    with pytest.raises(DataFilesError, match=r"b.mp4 cannot be read as a video .*no multiple of 90 degrees"):
        next(MovieFile(path).frames([0]))


def test_what_an_edit_list_leaves_out_is_not_there(tmp_path: Path) -> None:
    path = write_movie(tmp_path / "a.mp4", options=B_FRAMES)
    content = path.read_bytes()
    place = content.find(b"elst") + 12
    _, begin, rate = struct.unpack(">IiI", content[place : place + 12])
    # the duration in ms, the beginning in ticks of which a frame has 512
    movie = MovieFile(replaced(path, b"elst", 12, struct.pack(">IiI", 40 * 10, begin + 512 * 3, rate)))
    assert [number_of(frame) for frame in movie.frames(range(10))] == list(range(3, 13))


def test_what_is_no_movie_names_other_files_or_needs_pyav_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = write_movie(tmp_path / "private.mp4")
    for content in (b"no movie at all", f"ffconcat version 1.0\nfile '{other}'\n".encode(), b""):
        (tmp_path / "a.mp4").write_bytes(content)
        with pytest.raises(DataFilesError, match=r"a.mp4 cannot be read as a video"):
            _ = MovieFile(tmp_path / "a.mp4", WHOLE).length
    monkeypatch.setattr(movies, "find_spec", lambda name: None)
    with pytest.raises(DataFilesError, match=r"needs PyAV: pip install 'slotbench\[video\]'"):
        _ = MovieFile(other, WHOLE).length
