"""Any clip of a movie shows the frames that were asked for, whatever the codec and the container, or is refused."""

from __future__ import annotations

import multiprocessing
import re
import struct
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from movie_files import (
    LENGTH,
    number_of,
    numbered_frame,
    packed,
    packets_of,
    replaced,
    with_matrix,
    write_avi,
    write_movie,
)

from slotbench.data.folders.movie_file import MovieFile
from slotbench.data.folders.video_folder import VideoFolder
from slotbench.errors import DataFilesError

av = pytest.importorskip("av")

B_FRAMES = {"bf": "3", "b_adapt": "0"}
OPEN = {"x264-params": "open-gop=1:keyint=10:min-keyint=10:scenecut=0:bframes=3:b-adapt=0"}
PYRAMID = {"x264-params": "open-gop=1:keyint=20:bframes=8:b-adapt=0:b-pyramid=normal:ref=5"}
REFRESH = {"x264-params": "intra-refresh=1:keyint=12:bframes=0"}
HEVC = {"x265-params": "keyint=15:log-level=none"}
REFERENCES = {"auto-alt-ref": "1", "lag-in-frames": "16"}


def irregular(number: int) -> int:
    return 40 * number + 17 * (number % 3) + 300 * (number // 7)


def from_other(kind: str, maker: Callable[[Path, Path], Path]) -> Callable[[Path], Path]:
    return lambda path: maker(path, MAKERS[kind](path.with_suffix(f".other{Path(kind).suffix}")))


def all_are_key_frames(path: Path, source: Path) -> Path:
    return write_avi(path, [(packet, True) for packet, _ in packets_of(source)], b"XVID")


def made(codec: str = "libx264", **how: object) -> Callable[[Path], Path]:
    return lambda path: write_movie(path, codec, **how)  # type: ignore[arg-type]


MAKERS: dict[str, Callable[[Path], Path]] = {
    "h264.mp4": made(options=B_FRAMES),
    "h264.mov": made(options=B_FRAMES),
    "h264.mkv": made(options=B_FRAMES),
    "h264.avi": made(options=B_FRAMES),
    "h264_transport.mpg": made(options=B_FRAMES, container="mpegts"),
    "h264_open.mp4": made(options=OPEN),
    "h264_open.avi": made(options=OPEN),
    "h264_pyramid.avi": made(options=PYRAMID),
    "h264_pyramid.mkv": made(options=PYRAMID),
    "h264_refresh.mp4": made(options=REFRESH),
    "h264_refresh.avi": made(options=REFRESH),
    "h264_irregular.mp4": made(options=B_FRAMES, times=irregular),
    "h264_irregular.mkv": made(options=B_FRAMES, times=irregular),
    "h264_without_key_frames.mp4": lambda path: replaced(write_movie(path, options=B_FRAMES), b"stss", 0, b"free"),
    "h264_10_bits.mkv": made(options=B_FRAMES, pixels="yuv420p10le"),
    "h264_444.mp4": made(options=B_FRAMES, pixels="yuv444p"),
    "hevc.mp4": made("libx265", options=HEVC),
    "hevc.mkv": made("libx265", options=HEVC, pixels="yuv420p10le"),
    "mpeg4.mp4": made("mpeg4", b_frames=2),
    "mpeg4.mkv": made("mpeg4", b_frames=2),
    "mpeg4.avi": made("mpeg4", b_frames=2),
    "mpeg4_plain.avi": made("mpeg4"),
    "mpeg4_one.avi": made("mpeg4", b_frames=1),
    "mpeg4_packed.avi": from_other("mpeg4_one.avi", packed),
    "mpeg4_all_key.avi": from_other("mpeg4.avi", all_are_key_frames),
    "mpeg1.mpg": made("mpeg1video", b_frames=2),
    "mpeg2.mpg": made("mpeg2video", b_frames=2),
    "mpeg2_transport.mpg": made("mpeg2video", b_frames=2, container="mpegts"),
    "mpeg2_bare.mpg": made("mpeg2video", b_frames=2, container="mpeg2video"),
    "vp8.webm": made("libvpx", options=REFERENCES),
    "vp9.webm": made("libvpx-vp9", options=REFERENCES),
    "vp9_odd.mkv": made("libvpx-vp9", options=REFERENCES, size=(47, 187)),
    "mjpeg.avi": made("mjpeg", pixels="yuvj420p"),
    "mjpeg.mov": made("mjpeg", pixels="yuvj420p"),
}


@pytest.fixture(scope="module")
def movies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, MovieFile]:
    folder = tmp_path_factory.mktemp("movies")
    return {name: MovieFile(make(folder / name)) for name, make in MAKERS.items()}


def read(movie: MovieFile, numbers: range) -> list[int]:
    return [number_of(frame) for frame in movie.frames(numbers)]


def decoded_in_order(path: Path) -> list[np.ndarray]:
    with av.open(str(path)) as movie:
        return [frame.to_ndarray(format="rgb24") for frame in movie.decode(video=0)]


@pytest.mark.parametrize("name", MAKERS)
def test_every_clip_shows_the_frames_that_were_asked_for(name: str, movies: dict[str, MovieFile]) -> None:
    movie = movies[name]
    frames = decoded_in_order(movie.path)
    assert [number_of(frame) for frame in frames] == list(range(LENGTH))
    assert movie.length == LENGTH
    for first in range(LENGTH - 2):
        assert np.array_equal(list(movie.frames(range(first, first + 3))), frames[first : first + 3]), first


@given(name=st.sampled_from(list(MAKERS)), first=st.integers(0, LENGTH - 1), data=st.data())
def test_clips_of_any_length_and_stride_are_right(
    name: str, first: int, data: st.DataObject, movies: dict[str, MovieFile]
) -> None:
    numbers = range(first, data.draw(st.integers(first + 1, LENGTH)), data.draw(st.integers(1, 7)))
    # as a worker has it that has read nothing before
    assert read(MovieFile(movies[name].path), numbers) == list(numbers)


def test_a_process_that_is_forked_after_a_read_can_read_too(movies: dict[str, MovieFile]) -> None:
    """As the workers of a loader are."""
    for movie in movies.values():
        read(movie, range(2))
    for movie in list(movies.values())[:4]:
        worker = multiprocessing.get_context("fork").Process(target=read, args=(movie, range(3)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forking where there are threads
            worker.start()
        worker.join(30)
        ended = worker.exitcode
        worker.kill()
        assert ended == 0, movie.path.name


@pytest.mark.parametrize("name", ["h264_open.avi", "mpeg4_packed.avi", "h264_refresh.avi"])
def test_a_clip_is_not_decoded_from_the_beginning_where_key_frames_serve(
    name: str, movies: dict[str, MovieFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    movie = movies[name]
    starts: list[int] = []
    decoded = MovieFile._decoded
    monkeypatch.setattr(MovieFile, "_decoded", lambda self, start: (starts.append(start), decoded(self, start))[1])
    for _ in range(2):
        starts.clear()
        read(movie, range(28, 31))
    assert len(starts) == 1
    assert (starts[0] == 0) == (name == "h264_refresh.avi")


@pytest.mark.parametrize("name", ["h264.mp4", "hevc.mp4", "mpeg4.mp4"])
@pytest.mark.parametrize("skipped", [3, 13])
@pytest.mark.parametrize("kept", [10, 27])
def test_what_an_edit_list_leaves_out_is_not_counted(name: str, skipped: int, kept: int, tmp_path: Path) -> None:
    path = MAKERS[name](tmp_path / name)
    content = path.read_bytes()
    place = content.find(b"elst") + 12
    duration, begin, rate = struct.unpack(">IiI", content[place : place + 12])
    assert duration == 40 * LENGTH
    # the duration in ms, the beginning in ticks of which a frame has 512
    replaced(path, b"elst", 12, struct.pack(">IiI", 40 * kept, begin + 512 * skipped, rate))
    movie = MovieFile(path)
    assert movie.length == min(kept, LENGTH - skipped)
    for first in range(movie.length - 2):
        assert read(movie, range(first, first + 3)) == list(range(skipped + first, skipped + first + 3))


@pytest.mark.parametrize("name", ["h264.mkv", "h264.avi", "h264_transport.mpg", "mpeg2.mpg", "mpeg4.avi"])
@pytest.mark.parametrize("part", [0.5, 0.8, 0.97])
def test_of_a_movie_that_is_cut_off_frames_are_right_or_refused(name: str, part: float, tmp_path: Path) -> None:
    path = MAKERS[name](tmp_path / name)
    content = path.read_bytes()
    begin = content.find(b"movi") if name.endswith("avi") else 0
    path.write_bytes(content[: begin + int(part * (len(content) - begin))])
    movie = MovieFile(path)
    there = [number_of(frame) for frame in decoded_in_order(path)]
    assert there[:-3] == list(range(len(there) - 3))  # the last are those before which others are missing
    # a piece of a program stream that is cut off takes all its frames with it
    assert len(there) - 15 * (name == "mpeg2.mpg") - 1 <= movie.length <= len(there) + 1
    refused = 0
    for first in range(movie.length):
        try:
            assert read(movie, range(first, first + 1)) == there[first : first + 1]
        except DataFilesError as error:
            assert re.search(f"frame {first} of {path} cannot be decoded: .* is damaged or incomplete", str(error))  # noqa: PT017
            refused += 1
    assert refused <= 4


def test_a_movie_that_begins_within_a_group_of_pictures_has_the_frames_that_can_be_decoded(tmp_path: Path) -> None:
    with (
        av.open(str(MAKERS["hevc.mkv"](tmp_path / "whole.mkv"))) as whole,
        av.open(str(tmp_path / "cut.mkv"), "w") as cut,
    ):
        source = whole.streams.video[0]
        stream = cut.add_stream_from_template(source)
        for packet in [packet for packet in whole.demux(source) if packet.size][8:]:
            packet.stream = stream
            cut.mux(packet)
    movie = MovieFile(tmp_path / "cut.mkv")
    shown = read(movie, range(movie.length))
    assert len(shown) > LENGTH // 2
    assert shown == list(range(shown[0], LENGTH))


def test_a_lost_frame_is_refused_and_shifts_no_other(tmp_path: Path) -> None:
    packets = packets_of(MAKERS["mpeg4_plain.avi"](tmp_path / "whole.avi"))
    packets[17] = (b"\0\0\1\xb6" + b"\xff" * 12, False)
    movie = MovieFile(write_avi(tmp_path / "lost.avi", packets, b"XVID"))
    for first in range(movie.length):
        if 16 <= first < 24:  # before the lost one there might be others that are shown later
            with pytest.raises(DataFilesError, match=rf"frame {first} of .*lost.avi cannot be decoded.*ffmpeg -i"):
                read(movie, range(first, first + 1))
        else:
            assert read(movie, range(first, first + 1)) == [first]


TURNS = {
    (1, 0, 0, 1): lambda image: image,
    (0, 1, -1, 0): lambda image: np.rot90(image, -1),
    (-1, 0, 0, -1): lambda image: np.rot90(image, 2),
    (0, -1, 1, 0): lambda image: np.rot90(image),
    (-1, 0, 0, 1): lambda image: image[:, ::-1],
    (1, 0, 0, -1): lambda image: image[::-1],
    (0, 1, 1, 0): lambda image: image.transpose(1, 0, 2),
    (0, -1, -1, 0): lambda image: np.rot90(image, 2).transpose(1, 0, 2),
}


@pytest.mark.parametrize("ending", ["mp4", "mov"])
@pytest.mark.parametrize("matrix", TURNS)
def test_frames_are_upright(matrix: tuple[int, int, int, int], ending: str, tmp_path: Path) -> None:
    image = numbered_frame(9)
    image[:16] = 0  # differs under every turn and mirror
    path = tmp_path / f"a.{ending}"
    with av.open(str(path), "w") as movie:
        stream = movie.add_stream("libx264", rate=25)
        stream.height, stream.width = image.shape[:2]
        movie.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        movie.mux(stream.encode(None))
    (shown,) = MovieFile(with_matrix(path, *(65536 * value for value in matrix))).frames([0])
    upright = TURNS[matrix](image)
    assert shown.shape == upright.shape
    assert np.abs(shown.astype(int) - upright).mean() < 4


def test_masks_of_a_turned_movie_are_upright_too(tmp_path: Path) -> None:
    with_matrix(MAKERS["h264.mp4"](tmp_path / "phone.mp4"), 0, 65536, -65536, 0)
    (tmp_path / "masks").mkdir()
    masks = np.zeros((LENGTH, 192, 48), np.uint8)
    masks[:, :96] = 1
    np.savez(tmp_path / "masks" / "phone.npz", masks=masks)
    batch = VideoFolder(str(tmp_path), resolution=16, eval_frames=2).dataset("test").clips([10])  # type: ignore[attr-defined]
    assert batch.masks[0, 0, :, 0].tolist() == [1] * 8 + [0] * 8
    # frame 20 is white up to row 100 of 192; the square shows rows 72 to 120
    assert (batch.frames[0, 0, 0, :, 8] > 128).tolist() == [True] * 9 + [False] * 7
    np.savez(tmp_path / "masks" / "phone.npz", masks=masks.transpose(0, 2, 1))
    with pytest.raises(DataFilesError, match="has masks of 48 x 192 pixels, and the video has frames of 192 x 48"):
        VideoFolder(str(tmp_path), resolution=16, eval_frames=2).dataset("test").clips([0])  # type: ignore[attr-defined]


def test_a_movie_that_is_to_be_turned_by_some_other_angle_is_refused(tmp_path: Path) -> None:
    path = with_matrix(MAKERS["h264.mp4"](tmp_path / "a.mp4"), 46341, 46341, -46341, 46341)
    with pytest.raises(DataFilesError, match="an angle that is no multiple of 90 degrees"):
        read(MovieFile(path), range(1))


def test_a_movie_whose_size_changes_is_refused_where_it_does(tmp_path: Path) -> None:
    path = tmp_path / "a.mpg"
    with av.open(str(path), "w", format="mpegts") as movie:
        stream = movie.add_stream("libx264", rate=25)
        stream.height, stream.width, stream.time_base = 48, 192, Fraction(1, 25)
        other = av.CodecContext.create("libx264", "w")
        other.height, other.width, other.pix_fmt, other.time_base = 64, 96, "yuv420p", Fraction(1, 25)
        for number, (encoder, size) in enumerate([(stream, (48, 192))] * 20 + [(other, (64, 96))] * 20):
            frame = av.VideoFrame.from_ndarray(numbered_frame(number, LENGTH, *size), format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, 25)
            packets = encoder.encode(frame) + (encoder.encode(None) if number in (19, 39) else [])
            for packet in packets:
                packet.stream = stream
                movie.mux(packet)
    movie = MovieFile(path)
    assert read(movie, range(17, 20)) == [17, 18, 19]
    with pytest.raises(DataFilesError, match=r"frame 20 of .*a.mpg has 96 x 64 pixels, and others 192 x 48"):
        read(movie, range(18, 22))


def test_a_picture_of_the_cover_is_not_the_movie(tmp_path: Path) -> None:
    path = tmp_path / "a.mkv"
    with av.open(str(path), "w") as movie:
        cover = movie.add_stream("mjpeg", rate=1)
        cover.height, cover.width, cover.pix_fmt = 32, 32, "yuvj420p"
        stream = movie.add_stream("libx264", rate=25)
        stream.height, stream.width = 48, 192
        movie.mux(cover.encode(av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8), format="rgb24")))
        for number in range(LENGTH):
            movie.mux(stream.encode(av.VideoFrame.from_ndarray(numbered_frame(number), format="rgb24")))
        movie.mux(stream.encode(None))
    assert read(MovieFile(path), range(LENGTH)) == list(range(LENGTH))


def test_colours_are_those_that_the_file_says(tmp_path: Path) -> None:
    colours = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255], [128, 128, 128], [200, 60, 30]], np.uint8)
    image = np.repeat(np.repeat(colours[None], 32, 0), 32, 1)
    for matrix, full in ((6, 1), (1, 1), (6, 2), (1, 2)):
        path = tmp_path / f"{matrix}{full}.mkv"
        frame = av.VideoFrame.from_ndarray(image, format="rgb24")
        spaces = {6: "SMPTE170M", 1: "ITU709"}
        frame = frame.reformat(
            format="yuv444p", dst_colorspace=spaces[matrix], dst_color_range={1: "MPEG", 2: "JPEG"}[full]
        )
        with av.open(str(path), "w") as movie:
            stream = movie.add_stream("libx264", rate=25, options={"crf": "1"})
            stream.height, stream.width, stream.pix_fmt = *image.shape[:2], "yuv444p"
            for holder in (stream.codec_context, frame):
                holder.colorspace, holder.color_range = matrix, full
            movie.mux(stream.encode(frame))
            movie.mux(stream.encode(None))
        (shown,) = MovieFile(path).frames([0])
        assert np.abs(shown[16, 16::32].astype(int) - colours).max() <= 6, path.name


def test_more_packets_than_can_be_meant_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = MAKERS["mjpeg.avi"](tmp_path / "a.avi")
    monkeypatch.setattr("slotbench.data.formats.movie_packets._MOST", LENGTH - 1)
    with pytest.raises(DataFilesError, match=r"a.avi cannot be read as a video \(it has more than 39 packets"):
        MovieFile(path)
