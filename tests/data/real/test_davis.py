"""DAVIS is read by its official lists, with the ids of its masks, whole videos of any lengths, and damage by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from real_files import SIZE, drawn, write_davis, write_palettes

from slotbench.data.base import LoaderOptions
from slotbench.data.folders.video_folder import VideoFolder
from slotbench.data.real.davis import DAVIS
from slotbench.errors import DataFilesError

LENGTHS = {"bear": 5, "ant": 3, "cow": 9, "dog": 7, "cat": 4}


def davis(folder: Path, **arguments: Any) -> DAVIS:
    return DAVIS(str(folder), **{"resolution": SIZE, "num_frames": 3, **arguments})


def test_the_lists_decide_the_videos_and_masks_are_those_of_the_files(tmp_path: Path) -> None:
    ids = write_davis(tmp_path, LENGTHS)
    data = davis(tmp_path)
    assert [data.dataset("train").source.video_name(i) for i in range(3)] == ["bear", "ant", "cow"]
    for split in ("val", "test"):
        dataset = data.dataset(split)
        assert len(dataset) == 2
        for index, name in enumerate(("dog", "cat")):
            clip = dataset.clips([index])
            assert dataset.clip_name(index) == f"{name}_frame00000"
            np.testing.assert_array_equal(clip.require("masks")[0], ids[name])
            assert (clip.frames[0, :, 0].numpy() - 60.0 * ids[name]).mean() == pytest.approx(0, abs=3)
            assert {"video", "first_frame"} == set(clip.objects)


@pytest.mark.parametrize(
    ("year", "void", "expected"), [(2017, "ignored", -1), (2017, "background", 0), (2016, None, 1)]
)
def test_what_255_is_depends_on_year_and_void(year: int, void: Any, expected: int, tmp_path: Path) -> None:
    ids = write_davis(tmp_path, LENGTHS, year=year)["dog"]
    ids[:, 11] = 255
    write_palettes(tmp_path / "Annotations" / "480p" / "dog", ids)
    data = davis(tmp_path, year=year, **({"void": void} if void else {}))
    found = data.dataset("val").clips([0]).require("masks")[0].numpy()
    assert (found[:, 11] == expected).all()
    objects = ids[:, :11]
    np.testing.assert_array_equal(found[:, :11], objects > 0 if year == 2016 else objects)


def test_lists_of_2016_name_each_frame_in_their_own_release(tmp_path: Path) -> None:
    write_davis(tmp_path, LENGTHS, year=2016)
    lists = (tmp_path / "ImageSets" / "2016").rename(tmp_path / "ImageSets" / "480p")
    frame = "/JPEGImages/480p/{0}/0000{1}.jpg /Annotations/480p/{0}/0000{1}.png 1\n"
    (lists / "val.txt").write_text("".join(frame.format(name, i) for name in ("dog", "cat") for i in range(4)))
    dataset = davis(tmp_path, year=2016).dataset("val")
    assert [dataset.clip_name(index) for index in range(len(dataset))] == ["dog_frame00000", "cat_frame00000"]


def test_whole_videos_of_any_lengths_come_one_by_one(tmp_path: Path) -> None:
    write_davis(tmp_path, LENGTHS)
    data = davis(tmp_path)
    assert [len(batch.frames[0]) for batch in data.val_dataloader()] == [7, 4]
    assert [batch.index.tolist() for batch in data.test_dataloader()] == [[0], [1]]
    many = davis(tmp_path, loader=LoaderOptions(val_batch_size=2))
    with pytest.raises(DataFilesError, match=r"4 to 7 frames.*set eval_frames.*or loader.val_batch_size to 1"):
        many.dataset("val")


def test_the_reading_counts_what_is_scored_and_what_is_not(tmp_path: Path) -> None:
    write_davis(tmp_path, LENGTHS)
    assert davis(tmp_path).reading() == (
        f"{tmp_path}: train: 3 of 3 videos; val: 2 whole videos, from 2 of 2 videos; "
        "test: 2 whole videos, from 2 of 2 videos\nleft out: nothing"
    )
    data = davis(tmp_path, num_frames=4, eval_frames=2, loader=LoaderOptions(val_size=2))
    first, second = data.reading(("train", "val")).splitlines()
    assert first == f"{tmp_path}: train: 2 of 3 videos; val: 2 clips of 2 frames, from 2 of 2 videos"
    assert second == (
        "left out: train ant (shorter than a clip of 4 frames); val 3 clips (loader.val_size); "
        "val 1 frames at the ends of videos"
    )
    first, second = davis(tmp_path, eval_frames=3, first_videos=1).reading(("train", "val")).splitlines()
    assert first.endswith("train: 3 of 3 videos; val: 2 clips of 3 frames, from 1 of 2 videos")
    assert second == "left out: val 1 videos after the first 1 (first_videos); val 1 frames at the ends of videos"
    assert "val cat (shorter than a clip of 5 frames)" in davis(tmp_path, eval_frames=5).reading(("val",))


@pytest.mark.parametrize(
    ("file", "left", "sentence"),
    [
        (
            "ImageSets/2017/val.txt",
            None,
            r"nothing at .*2017/val.txt; expected the official lists .*davischallenge.org",
        ),
        ("ImageSets/2017/val.txt", 0, r"val.txt names no video; expected a name in each line"),
        ("Annotations/480p", None, r"nothing at .*/480p; expected JPEGImages/480p/NAME/00000.jpg and Annotations/"),
        ("JPEGImages/480p/dog", None, r"nothing at .*480p/dog; expected .* for every video of its list"),
        ("Annotations/480p/cat/00003.png", None, r"cat has masks of 3 frames, and .*cat has 4 frames: expected a map"),
        ("Annotations/480p/dog/00002.png", 40, r"dog/00002.png cannot be read as an image .*: copy or make it anew"),
        ("JPEGImages/480p/dog/00001.jpg", 40, r"dog/00001.jpg cannot be read as an image"),
    ],
)
def test_missing_and_damaged_files_end_in_a_sentence(
    file: str, left: int | None, sentence: str, tmp_path: Path
) -> None:
    write_davis(tmp_path, LENGTHS)
    if left is None:
        (tmp_path / file).rename(tmp_path / "gone")
    else:
        (tmp_path / file).write_bytes((tmp_path / file).read_bytes()[:left])
    with pytest.raises(DataFilesError, match=sentence):
        davis(tmp_path).dataset("val").clips([0])


@pytest.mark.parametrize("target", [(8, 12), (12, 8), (12, 20), (9, 5), 10])
@pytest.mark.parametrize("fit", ["crop", "stretch", "letterbox"])
def test_frames_and_masks_take_any_proportions(target: Any, fit: Any, tmp_path: Path) -> None:
    ids = drawn(1, 2)
    np.save(tmp_path / "a.npy", (60 * ids[..., None]).repeat(3, -1))
    (tmp_path / "masks").mkdir()
    np.save(tmp_path / "masks" / "a.npy", ids)
    data = VideoFolder(str(tmp_path), eval_frames=2, resolution=target, fit=fit)
    height, width = (target, target) if isinstance(target, int) else target
    clip, view = data.dataset("val").clips([0]), data.dataset("val").view(0)  # type: ignore[attr-defined]
    assert clip.frames.shape == (1, 2, 3, height, width)
    assert (data.spec.input.height, data.spec.input.width) == (height, width)
    top, left, rows, columns = view.box
    # of all boxes of these proportions the largest inside, or the smallest around, in the middle
    scale = {"crop": min, "letterbox": max}.get(fit, lambda one: 1)([12 / height, 20 / width])
    expected = (12, 20) if fit == "stretch" else (height * scale, width * scale)
    assert (rows, columns) == pytest.approx(expected, abs=0.5)
    assert (2 * top + rows, 2 * left + columns) == pytest.approx((12, 20), abs=1)
    for y in range(height):
        for x in range(width):
            at = top + (2 * y + 1) * rows // (2 * height), left + (2 * x + 1) * columns // (2 * width)
            inside = 0 <= at[0] < 12 and 0 <= at[1] < 20
            assert clip.require("masks")[0, 1, y, x] == (ids[1][at] if inside else 0)


def test_a_resolution_without_pixels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"resolution is \(0, 8\); expected pixels per side, or \[height, width\]"):
        VideoFolder(str(tmp_path), resolution=(0, 8))
