"""What counts in a folder of videos, what is left out and said, and what is refused rather than guessed."""

from __future__ import annotations

import struct
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from media_files import write_maps
from PIL import Image

from slotbench.data.folders.found_videos import find_videos
from slotbench.data.folders.names import frame_files
from slotbench.data.folders.video_files import open_video
from slotbench.data.folders.video_folder import VideoFolder
from slotbench.errors import DataFilesError


def frames(folder: Path, count: int = 6, pattern: str = "{}.png") -> Path:
    """A folder of grey frames, the i-th with the value 10 i."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        Image.new("L", (12, 8), 10 * number).save(folder / pattern.format(number))
    return folder


def values(path: Path) -> list[int]:
    video = open_video(path)
    assert video is not None
    return [int(frame[0, 0, 0]) for frame in video.frames(range(video.length))]


def test_hidden_files_and_folders_are_passed_over_everywhere(tmp_path: Path) -> None:
    for folder in ("walk", ".ipynb_checkpoints", "__MACOSX", "masks/walk", "masks/.ipynb_checkpoints"):
        frames(tmp_path / folder)
    for name in ("._walk.mp4", "Thumbs.db", "walk/._0.png", "masks/walk/._0.png"):
        (tmp_path / name).write_bytes(b"\0\5\x16\7\0\2")
    found = find_videos(tmp_path, "val")
    assert [video.path.name for video in found.videos] == ["walk"]
    assert found.left_out == []
    clip = VideoFolder(str(tmp_path), resolution=8, eval_frames=6).dataset("val").clips([0])
    assert clip.require("masks")[0, :, 0, 0].tolist() == [0, 10, 20, 30, 40, 50]


@pytest.mark.parametrize(
    "names",
    [
        ["f1", "f2", "f10", "f100"],
        ["-1", "-2", "-10"],
        ["a -1", "a -2", "a -10"],
        ["cam1e-01", "cam1e-02", "cam1e-10"],
        ["t1e5", "t1e6", "t2e1"],
        ["1.2.9", "1.2.10", "1.10.1"],
        ["1.2", "1.9", "1.10", "2.1"],
        ["0.0", "0.1", "0.15", "0.2", "1.05", "1.5"],
        ["t-0.5s", "t-0.75s", "t-1.0s"],
        [unicodedata.normalize(form, "é" + end) for form, end in (("NFC", "1"), ("NFD", "2"), ("NFC", "10"))],
    ],
)
def test_frames_come_in_natural_order(names: list[str], tmp_path: Path) -> None:
    for name in reversed(names):
        Image.new("L", (4, 4)).save(tmp_path / f"{name}.png")
    assert [file.stem for file in frame_files(tmp_path, (".png",))] == names


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["rgba_0", "rgba_1", "depth_0", "depth_1"], r"2 kinds, (rgba|depth)_# \(2\)"),
        (["0", "1", "2", "thumbnail"], r"2 kinds, # \(3\), thumbnail \(1\)"),
        (["0_left", "0_right", "1_left", "1_right"], "2 kinds"),
        (["3", "03"], "two files of one number"),
    ],
)
def test_frames_of_several_videos_in_one_folder_are_refused(names: list[str], said: str, tmp_path: Path) -> None:
    for name in names:
        frames(tmp_path / "walk", 0)
        Image.new("L", (4, 4)).save(tmp_path / "walk" / f"{name}.png")
    with pytest.raises(DataFilesError, match=said):
        find_videos(tmp_path, "val")


@pytest.mark.parametrize("name", ["a.tif", "a.png", "a.webp", "a.gif"])
def test_a_file_of_several_images_is_a_video(name: str, tmp_path: Path) -> None:
    first, *others = (Image.new("RGB", (12, 8), (10 * number,) * 3) for number in range(1, 6))
    first.save(tmp_path / name, save_all=True, append_images=others, **({"lossless": True} if "webp" in name else {}))
    (video,) = find_videos(tmp_path, "val").videos
    assert video.length == 5
    assert [int(frame[0, 0, 0]) for frame in video.frames([1, 3, 4])] == [20, 40, 50]


def test_arrays_for_each_frame_are_one_video(tmp_path: Path) -> None:
    frames(tmp_path / "walk", 0)
    for number in range(11):
        np.save(tmp_path / "walk" / f"{number}.npy", np.full((8, 12), number, np.uint8))
    assert values(tmp_path / "walk") == list(range(11))
    with pytest.raises(DataFilesError, match=r"0.npy holds uint8 values of shape \(8, 12\); expected a video"):
        open_video(tmp_path / "walk" / "0.npy")


def test_frames_that_differ_in_size_are_refused_when_they_are_read(tmp_path: Path) -> None:
    frames(tmp_path / "walk", 3)
    Image.new("L", (8, 12)).save(tmp_path / "walk" / "1.png")
    with pytest.raises(DataFilesError, match=r"frame 1 of .*walk has 12 x 8 pixels; expected 8 x 12"):
        values(tmp_path / "walk")


def test_a_folder_that_is_itself_a_video_says_what_else_lies_in_it(tmp_path: Path) -> None:
    frames(tmp_path)
    (tmp_path / "notes.txt").write_text("in the park")
    found = find_videos(tmp_path, "val")
    assert [(video.path, video.length) for video in found.videos] == [(tmp_path, 6)]
    assert found.left_out == ["notes.txt"]


def test_what_lies_beside_the_videos_is_said(tmp_path: Path) -> None:
    for name, count in {"walk": 6, "run": 3, "Masks/walk": 6, "Masks/run": 3, "Masks/jump": 3, "mask": 6}.items():
        frames(tmp_path / name, count)
    (tmp_path / "empty").mkdir()
    np.save(tmp_path / "none.npy", np.zeros((0, 8, 12, 3), np.uint8))
    np.save(tmp_path / "still.npy", np.zeros((8, 12, 3), np.uint8))
    frames(tmp_path, 1, "preview.png")
    data = VideoFolder(str(tmp_path), resolution=8, num_frames=3, eval_frames=6)
    first, second = (data.reading() or "").splitlines()
    assert "val 2" in first
    assert first.endswith("frames of 8 x 12 pixels, with masks")
    assert "run (val: shorter than a clip of 6 frames)" in second
    left_out = {"empty", "mask (call it masks)", "none.npy (no frames)", "preview.png", "still.npy"}
    assert set(data.found("val").left_out) == left_out
    assert data.dataset("val").clips([0]).masks is not None


def gif(disposal: int) -> bytes:
    """Three frames of 4 x 2 pixels: red, disposed of in this way; a green pixel; a blue one beside it."""
    colours = bytes([0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255])
    out = b"GIF89a" + struct.pack("<HHBBB", 4, 2, 0x81, 0, 0) + colours
    for left, width, height, colour, how in ((0, 4, 2, 1, disposal), (0, 1, 1, 2, 1), (1, 1, 1, 3, 1)):
        out += b"\x21\xf9\x04" + struct.pack("<BHBB", how << 2, 10, 0, 0)
        # codes of 3 bits: a clear code (4) before each pixel, and the end (5)
        codes = [code for _ in range(width * height) for code in (4, colour)] + [5]
        packed = sum(code << 3 * place for place, code in enumerate(codes))
        data = packed.to_bytes(-(-3 * len(codes) // 8), "little")
        out += b"\x2c" + struct.pack("<HHHHB", left, 0, width, height, 0) + b"\x02" + bytes([len(data)]) + data + b"\0"
    return out + b"\x3b"


@pytest.mark.parametrize(("disposal", "rest"), [(1, [255, 0, 0]), (2, [0, 0, 0]), (3, [0, 0, 0])])
def test_the_first_frame_of_a_gif_is_disposed_of_as_viewers_do(disposal: int, rest: list[int], tmp_path: Path) -> None:
    (tmp_path / "a.gif").write_bytes(gif(disposal))
    video = open_video(tmp_path / "a.gif")
    assert video is not None
    first, second, third = video.frames(range(3))
    assert first.tolist() == [[[255, 0, 0]] * 4] * 2
    assert second[0].tolist() == [[0, 255, 0], rest, rest, rest]
    assert third[0].tolist() == [[0, 255, 0], [0, 0, 255], rest, rest]


@pytest.mark.parametrize("ending", ["npy", "npz"])
@pytest.mark.parametrize(
    ("shape", "frames_of"),
    [((6, 8, 12, 3), 6), ((6, 8, 12, 4), 6), ((6, 8, 3, 1), 6), ((6, 8, 12), 6), ((8, 12, 3), 0), ((8, 12, 4), 0)],
)
def test_an_array_whose_last_axis_has_3_or_4_entries_is_in_colour(
    shape: tuple[int, ...], frames_of: int, ending: str, tmp_path: Path
) -> None:
    values, path = np.full(shape, 100, np.uint8), tmp_path / f"a.{ending}"
    np.save(path, values) if ending == "npy" else np.savez(path, video=values)
    if not frames_of:
        with pytest.raises(DataFilesError, match=r"holds uint8 values of shape .*expected a video, .*height, width, 3"):
            open_video(path)
        return
    video = open_video(path)
    assert video is not None
    assert (video.length, video.size) == (frames_of, shape[1:3])
    # what is transparent lies on black
    assert {int(value) for value in np.unique(next(iter(video.frames([0]))))} == {39 if shape[-1] == 4 else 100}


def test_arrays_in_colour_with_transparency_are_frames(tmp_path: Path) -> None:
    (tmp_path / "walk").mkdir()
    for number in range(3):
        np.save(tmp_path / "walk" / f"{number}.npy", np.full((8, 12, 4), [number, 0, 0, 255], np.uint8))
    assert values(tmp_path / "walk") == [0, 1, 2]


@pytest.mark.parametrize("name", ["none.npy", "none.npz", "none.mp4"])
def test_a_video_of_no_frames_is_left_out_and_refused_where_it_is_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLOTBENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "set").mkdir()
    path = tmp_path / "set" / name
    if name == "none.mp4":
        _sound(path)
    else:
        empty = np.zeros((0, 8, 12, 3), np.uint8)
        np.save(path, empty) if name == "none.npy" else np.savez(path, video=empty)
    with pytest.raises(DataFilesError, match=rf"{name} has no frames"):
        VideoFolder(str(path), resolution=8).dataset("val")
    frames(tmp_path / "set" / "walk")
    data = VideoFolder(str(tmp_path / "set"), resolution=8, eval_frames=6)
    assert data.reading().endswith(f"left out: {name} (no frames)")
    assert len(data.dataset("val")) == 1


def _sound(path: Path) -> None:
    """A movie that has sound alone."""
    av = pytest.importorskip("av")
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=8000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 8000
        container.mux([*stream.encode(frame), *stream.encode()])


@pytest.mark.parametrize(
    ("given", "tree", "file", "typed"),
    [
        ("", "JPEGImages/480p/bear", None, "--data DAVIS --data.path {}"),
        ("JPEGImages", "JPEGImages/480p/bear", None, "--data DAVIS --data.path {}"),
        ("", "JPEGImages/4K/bear", None, "--data DAVIS --data.path {} --data.files 4K"),
        ("", "JPEGImages/bear", "ImageSets/2017/val.txt", "--data DAVIS --data.path {}"),
        ("", "train/JPEGImages/bear", "train/instances.json", "--data YouTubeVIS --data.path {}"),
    ],
)
def test_trees_with_readers_of_their_own_are_named_with_what_to_type(
    given: str, tree: str, file: str | None, typed: str, tmp_path: Path
) -> None:
    frames(tmp_path / tree)
    if file is not None:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("{}")
    with pytest.raises(DataFilesError) as said:
        VideoFolder(str(tmp_path / given)).reading()
    assert str(said.value).endswith(f"read it by {typed.format(tmp_path)}")


@pytest.mark.parametrize("tree", ["JPEGImages", "train/JPEGImages"])
def test_a_tree_of_youtube_vos_is_named_with_what_to_type(tree: str, tmp_path: Path) -> None:
    for kind in (tree, tree.replace("JPEGImages", "Annotations")):
        frames(tmp_path / kind / "bear")
    with pytest.raises(DataFilesError, match=rf"VOS.*--data.path {tmp_path / tree};.*ln -s (.*) (\S*/masks)") as said:
        VideoFolder(str(tmp_path)).reading()
    words = str(said.value).partition("ln -s ")[2].partition(",")[0].split()
    Path(words[1]).symlink_to(words[0])
    data = VideoFolder(str(tmp_path / tree), resolution=8, eval_frames=6)
    assert "with masks" in data.reading()
    assert data.dataset("val").clips([0]).require("masks").shape == (1, 6, 8, 8)


def test_the_reading_says_where_masks_belong_and_that_255_is_an_object(tmp_path: Path) -> None:
    frames(tmp_path / "walk")
    data = VideoFolder(str(tmp_path), resolution=8)
    assert data.reading().splitlines()[0].endswith(f"without masks (they would lie in {tmp_path}/masks/)")
    ids = np.zeros((6, 8, 12), np.uint8)
    ids[4, 2, 2] = 255
    for name in ("walk.npz", "walk/png"):
        write_maps(tmp_path / "masks" / name, ids)
        first = VideoFolder(str(tmp_path), resolution=8).reading().splitlines()[0]
        assert first.endswith("with masks, in which id 255 is taken for an object (or type --data.void [255])")
        assert VideoFolder(str(tmp_path), void=[255]).reading().splitlines()[0].endswith("with masks")
