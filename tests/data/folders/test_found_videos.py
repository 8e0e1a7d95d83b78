"""What counts in a folder of videos, what is left out and said, and what is refused rather than guessed."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from slotbench.callbacks.data_reading import DataReading
from slotbench.data.folders.found_videos import find_videos
from slotbench.data.folders.names import frame_files, natural_order
from slotbench.data.folders.video_files import open_video
from slotbench.data.folders.video_folder import VideoFolder
from slotbench.errors import DataFilesError

logging.getLogger("PIL").setLevel(logging.WARNING)


def frames(folder: Path, count: int = 6, pattern: str = "{}.png", size: tuple[int, int] = (12, 8)) -> Path:
    """A folder of grey frames, the i-th with the value 10 i."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        Image.new("L", size, 10 * number).save(folder / pattern.format(number))
    return folder


def values(path: Path) -> list[int]:
    video = open_video(path)
    assert video is not None
    return [int(frame[0, 0, 0]) for frame in video.frames(range(video.length))]


def test_hidden_files_and_folders_are_passed_over_everywhere(tmp_path: Path) -> None:
    for folder in ("walk", ".ipynb_checkpoints", "__MACOSX", "masks/walk", "masks/.ipynb_checkpoints"):
        frames(tmp_path / folder)
    for name in ("._walk.mp4", ".DS_Store", "Thumbs.db", "walk/._0.png", "walk/Thumbs.db", "masks/walk/._0.png"):
        (tmp_path / name).write_bytes(b"\0\5\x16\7\0\2")
    found = find_videos(tmp_path, "val")
    assert [video.path.name for video in found.videos] == ["walk"]
    assert found.left_out == []
    clip = VideoFolder(str(tmp_path), resolution=8, eval_frames=6).dataset("val").clips([0])
    assert clip.masks is not None
    assert clip.masks[0, :, 0, 0].tolist() == [0, 10, 20, 30, 40, 50]


@pytest.mark.parametrize(
    "names",
    [
        ["0.1", "0.15", "0.2", "0.25", "0.5", "1.05", "1.5"],
        ["frame1", "frame2", "frame10", "frame100"],
        ["-2", "-1.5", "-1", "0", "1e-05", "0.5"],
        ["t=-0.5", "t=0.25", "t=0.5"],
        ["frame-1", "frame-2", "frame-10"],
        ["shot.1", "shot.9", "shot.10"],
        ["shot1.1", "shot1.9", "shot1.10"],
        ["1.2.9", "1.2.10", "1.10.1"],
        ["0,25", "0,5", "1,0"],
        ["1305031102.175304", "1305031102.2", "1305031103.0"],
    ],
)
def test_frames_come_in_the_order_of_their_numbers(names: list[str], tmp_path: Path) -> None:
    for name in reversed(names):
        Image.new("L", (4, 4)).save(tmp_path / f"{name}.png")
    assert [file.stem for file in frame_files(tmp_path, (".png",))] == names


@given(st.lists(st.integers(-(10**6), 10**6), min_size=2, unique=True))
def test_any_decimals_are_ordered_by_value(thousandths: list[int]) -> None:
    named = [Path(f"{number / 1000}.png") for number in thousandths]
    assert [float(path.stem) for path in sorted(named, key=natural_order)] == sorted(n / 1000 for n in thousandths)


@pytest.mark.parametrize(
    ("names", "kinds"),
    [
        (["rgba_0", "rgba_1", "depth_0", "depth_1"], r"rgba_#.png \(2\)"),
        (["0", "1", "2", "thumbnail"], r"#.png \(3\), thumbnail.png \(1\)"),
        (["0_left", "0_right", "1_left", "1_right"], r"#_left.png \(2\), #_right.png \(2\)"),
        (["rgba", "segmentation"], "rgba.png"),
    ],
)
def test_frames_of_several_kinds_in_one_folder_are_refused(names: list[str], kinds: str, tmp_path: Path) -> None:
    for place in ("walk", "masks/walk"):
        frames(tmp_path / place, 0)
        for name in names:
            Image.new("L", (4, 4)).save(tmp_path / place / f"{name}.png")
    with pytest.raises(DataFilesError, match=rf"walk holds files of . kinds, .*{kinds}.*move the others"):
        find_videos(tmp_path, "val")
    with pytest.raises(DataFilesError, match=r"files of . kinds"):
        frame_files(tmp_path / "masks" / "walk", (".png",))


def test_two_files_of_one_number_and_frames_of_two_sizes_are_refused(tmp_path: Path) -> None:
    frames(tmp_path / "a")
    Image.new("L", (12, 8)).save(tmp_path / "a" / "3.jpg")
    with pytest.raises(DataFilesError, match=r"3.jpg and 3.png, which have the same number"):
        find_videos(tmp_path, "val")
    frames(frames(tmp_path / "b"), 1, "9.png", (8, 12))
    with pytest.raises(DataFilesError, match=r"9.png has 12 x 8 pixels, and 0.png beside it 8 x 12"):
        values(tmp_path / "b")


@pytest.mark.parametrize("name", ["a.tif", "a.png", "a.apng", "a.webp", "a.gif"])
def test_a_file_of_several_pictures_is_a_video(name: str, tmp_path: Path) -> None:
    first, *others = (Image.new("RGB", (12, 8), (10 * number,) * 3) for number in range(1, 6))
    options = {"format": "PNG"} if name == "a.apng" else {"lossless": True} if name == "a.webp" else {}
    first.save(tmp_path / name, save_all=True, append_images=others, **options)
    (video,) = find_videos(tmp_path, "val").videos
    assert video.length == 5
    assert [int(frame[0, 0, 0]) for frame in video.frames([1, 3, 4])] == [20, 40, 50]
    assert find_videos(tmp_path / name, "val").videos[0].length == 5
    if name not in ("a.apng", "a.gif"):
        (tmp_path / "folder" / "walk").mkdir(parents=True)
        (tmp_path / name).rename(tmp_path / "folder" / "walk" / name)
        with pytest.raises(DataFilesError, match="of 5 pictures; expected one in each file"):
            values(tmp_path / "folder" / "walk")


def test_a_preview_in_a_tiff_is_no_frame(tmp_path: Path) -> None:
    from PIL.TiffImagePlugin import AppendingTiffWriter, ImageFileDirectory_v2

    with AppendingTiffWriter(str(tmp_path / "0.tif"), True) as out:
        for kind, size in ((0, (12, 8)), (1, (6, 4))):
            info = ImageFileDirectory_v2()
            info[254] = kind
            Image.new("L", size, 70).save(out, format="TIFF", tiffinfo=info)
            out.newFrame()
    assert values(tmp_path) == [70]


def test_arrays_for_each_frame_are_one_video(tmp_path: Path) -> None:
    for shape in ((8, 12, 3), (8, 12)):
        folder = tmp_path / str(len(shape)) / "walk"
        folder.mkdir(parents=True)
        for number in range(11):
            np.save(folder / f"{number}.npy", np.full(shape, number, np.uint8))
        assert values(folder) == list(range(11))
        assert [video.length for video in find_videos(folder.parent, "val").videos] == [11]
    with pytest.raises(DataFilesError, match=r"0.npy holds one frame, of shape \(8, 12\); expected a video"):
        open_video(folder / "0.npy")


def test_what_lies_beside_the_videos_is_said(tmp_path: Path) -> None:
    frames(tmp_path / "walk")
    frames(tmp_path / "run", 3)
    frames(tmp_path / "Masks" / "walk")
    frames(tmp_path / "Masks" / "run", 3)
    frames(tmp_path / "Masks" / "jump", 3)
    frames(tmp_path / "mask")
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes\x1b[2J.txt").write_text("")
    (tmp_path / "walk" / "camera.json").write_text("{}")
    frames(tmp_path, 1, "preview.png")
    data = VideoFolder(str(tmp_path), resolution=8, num_frames=3, eval_frames=6)
    words = data.reading()
    assert words is not None
    first, second = words.splitlines()
    assert first.endswith(": 2 videos of 3 to 6 frames, 8 pixels high and 12 wide, with masks")
    for said in ("1 video of 2 for val (run: shorter than a clip of 6 frames)", "empty (a folder without frames)"):
        assert said in second
    found = data.found("val").left_out
    assert "Masks/jump (no video of this name)" in found
    assert "walk/camera.json (among the frames)" in found
    assert "mask (call it masks if it has the masks)" in found
    assert "preview.png (a single picture)" in found
    assert "notes\\x1b[2J.txt (no video)" in found
    assert data.dataset("val").clips([0]).masks is not None


def test_pictures_that_may_be_frames_beside_videos_are_refused(tmp_path: Path) -> None:
    frames(tmp_path)
    frames(tmp_path / "thumbs")
    with pytest.raises(DataFilesError, match=r"6 pictures \(0.png, ...\) .*videos beside them \(thumbs\)"):
        find_videos(tmp_path, "val")


def test_movies_and_empty_folders_are_no_masks(tmp_path: Path) -> None:
    frames(tmp_path / "walk")
    (tmp_path / "masks").mkdir()
    (tmp_path / "masks" / "walk.mp4").write_bytes(b"")
    data = VideoFolder(str(tmp_path), resolution=8, eval_frames=6)
    with pytest.raises(DataFilesError, match=r"walk.mp4 is none of these: movies"):
        data.dataset("val")
    (tmp_path / "masks" / "walk").mkdir()
    with pytest.raises(DataFilesError, match=r"masks/walk holds none; expected masks as images"):
        data.dataset("val")


def test_the_reading_is_printed_once_by_the_first_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for split in ("train", "Val"):
        frames(tmp_path / split / "walk")
    (tmp_path / "notes.txt").write_text("")
    data = VideoFolder(str(tmp_path), resolution=8, num_frames=3, eval_frames=6)
    assert capsys.readouterr().out == ""
    said = DataReading()
    for rank in (1, 0, 0):
        trainer = SimpleNamespace(datamodule=data, is_global_zero=rank == 0)
        said.setup(trainer, None, "fit")  # type: ignore[arg-type]
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path}: train 1 video, val 1 video of 6 frames, 8 pixels high and 12 wide, without masks",
        "left out: notes.txt (beside the splits)",
    ]
