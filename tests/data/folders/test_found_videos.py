"""What counts in a folder of videos, what is left out and said, and what is refused rather than guessed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
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


@pytest.mark.parametrize("names", [["f1", "f2", "f10", "f100"], ["-1", "-2", "-10"], ["1.2.9", "1.2.10", "1.10.1"]])
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
    with pytest.raises(DataFilesError, match=r"frame 1 of .*walk has 12 x 8 pixels, and the first one 8 x 12"):
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
    left_out = {"empty", "mask (call it masks)", "none.npy", "preview.png", "still.npy"}
    assert set(data.found("val").left_out) == left_out
    assert data.dataset("val").clips([0]).masks is not None
