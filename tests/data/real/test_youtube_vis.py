"""YouTube-VIS: masks of both encodings, its splits by name, overlaps, categories, and damage by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from real_files import SIZE, runs_of, write_json, write_youtube_vis

from slotbench.data.real.youtube_vis import YouTubeVIS, covered
from slotbench.errors import DataFilesError


def vis(folder: Path, **arguments: Any) -> YouTubeVIS:
    return YouTubeVIS(str(folder), **{"resolution": SIZE, "num_frames": 2, "split_rule": "release", **arguments})


def changed(folder: Path, change: Any, stored: str = "valid") -> None:
    file = folder / stored / "instances.json"
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def test_masks_of_both_encodings_and_categories_come_with_the_frames(tmp_path: Path) -> None:
    ids = write_youtube_vis(tmp_path, "valid", (5, 3, 8))
    changed(tmp_path, lambda file: file["annotations"].pop(1))  # object 2 of the first video
    ids[0] = np.array([0, 1, 0, 2])[ids[0]]
    data = vis(tmp_path)
    dataset = data.dataset("val")
    categories = [[11, 13, -1], [11, 12, 13], [11, 12, 13]]
    for index, own in enumerate(ids):
        clip = dataset.clips([index])
        np.testing.assert_array_equal(clip.require("masks")[0], own)
        assert (clip.frames[0, :, 0].numpy() > 20).mean() == pytest.approx((own > 0).mean(), abs=0.35)
        assert clip.objects["category"].tolist() == [categories[index]]
        assert clip.objects["num_objects"].tolist() == [2 if index == 0 else 3]
        assert dataset.clip_name(index) == f"video{index + 1}_frame00000"
    assert data.category_names("val") == {11: "kind 1", 12: "kind 2", 13: "kind 3"}


def test_frames_without_an_object_and_crowds_are_background(tmp_path: Path) -> None:
    (ids,) = write_youtube_vis(tmp_path, "valid", (4,))

    def change(file: dict[str, Any]) -> None:
        file["annotations"][0]["segmentations"][1] = None
        file["annotations"][2]["iscrowd"] = 1

    changed(tmp_path, change)
    ids[1][ids[1] == 1] = ids[ids == 3] = 0
    np.testing.assert_array_equal(vis(tmp_path).dataset("val").clips([0]).require("masks")[0], ids)


@pytest.mark.parametrize(("overlaps", "expected"), [("smaller", 2), ("ignored", -1)])
def test_where_masks_overlap_the_smaller_one_lies_on_top(overlaps: str, expected: int, tmp_path: Path) -> None:
    write_youtube_vis(tmp_path, "valid", (1,))
    large, small = np.zeros(SIZE, bool), np.zeros(SIZE, bool)
    large[:6], small[4:8, :3] = True, True

    def change(file: dict[str, Any]) -> None:
        for track, mask in zip(file["annotations"], (large, small, small), strict=True):
            track["segmentations"] = [runs_of(mask, compressed=True)]

    changed(tmp_path, change)
    found = vis(tmp_path, overlaps=overlaps).dataset("val").clips([0]).require("masks")[0, 0].numpy()
    assert (found[:4] == 1).all()
    assert (found[4:8, :3] == expected).all()  # of two equal ones the first of the file
    assert (found[8:] == 0).all()


@pytest.mark.parametrize(
    ("year", "rule", "count", "expected"),
    [
        (2021, None, 2985, {"train": (1, 2685), "val": (2686, 2985), "test": (2686, 2985)}),
        (2019, None, 2238, {"train": (1, 1838), "val": (1839, 2038), "test": (2039, 2238)}),
        (2019, "last_300", 2238, {"train": (1, 1938), "val": (1939, 2238)}),
        (2021, "release", 7, {"train": (1, 7)}),
    ],
)
def test_the_splits_of_the_field_are_taken_in_the_order_of_the_file(
    year: int, rule: Any, count: int, expected: dict[Any, tuple[int, int]], tmp_path: Path
) -> None:
    videos = [{"id": i + 1, "file_names": [f"v{i + 1}/00000.jpg"], "height": 4, "width": 6} for i in range(count)]
    write_json(tmp_path / "train.json", videos=videos, annotations=[])
    (tmp_path / "train_all_frames" / "JPEGImages").mkdir(parents=True)
    data = YouTubeVIS(str(tmp_path), year, rule, num_frames=1)  # type: ignore[arg-type]
    for split, (first, last) in expected.items():
        names = [source.video_name(i) for source in [data.dataset(split).source] for i in range(len(source.lengths))]
        assert (names[0], names[-1], len(names)) == (f"v{first}", f"v{last}", last - first + 1)


def test_too_few_videos_for_a_split_and_none_with_masks(tmp_path: Path) -> None:
    write_youtube_vis(tmp_path, "train", (3,))
    with pytest.raises(DataFilesError, match=r"lists 1 videos; expected 301 at least.*--data.split_rule release"):
        YouTubeVIS(str(tmp_path)).dataset("val")
    changed(tmp_path, lambda file: file.update(annotations=None), "train")  # as in the released validation set
    clip = vis(tmp_path).dataset("train").clips([0])
    assert clip.masks is None
    assert "category" not in clip.objects


@pytest.mark.parametrize(
    ("place", "value", "video", "sentence"),
    [
        ("videos", None, 0, r"is no JSON of YouTube-VIS: Expected `array`, got `null`"),
        ("annotations/0/segmentations/0/counts", 3.5, 0, r"is no JSON of .*segmentations\[0\].counts`"),
        ("annotations/0/segmentations/0/counts", [3, 4], 0, r"damaged mask \(video 1, frame 0\) .* 7 pixels"),
        ("annotations/3/segmentations/0/counts", "PPPP", 1, r"damaged mask \(video 2, frame 0\)"),
        ("annotations/0/segmentations/0/size", [20, 12], 0, r"mask of 20 x 12 pixels for frames of 12 x 20"),
        ("annotations/0/segmentations", [None], 0, r"lists 4 frames of video 1, and other numbers of masks; expected"),
        ("annotations/0/video_id", 9, 0, r"has masks of a video 9 that it does not list"),
        ("videos/0/file_names/2", "video1/9.jpg", 0, r"no file .*video1/9.jpg; expected every frame.*youtube-vos"),
    ],
)
def test_damage_ends_in_a_sentence(place: str, value: Any, video: int, sentence: str, tmp_path: Path) -> None:
    write_youtube_vis(tmp_path, "valid", (4, 4))

    def change(file: Any) -> None:
        *way, last = [int(one) if one.isdigit() else one for one in place.split("/")]
        for one in way:
            file = file[one]
        file[last] = value

    changed(tmp_path, change)
    with pytest.raises(ValueError, match=sentence) as said:
        vis(tmp_path).dataset("val").clips([video])
    assert str(tmp_path / "valid") in str(said.value)


def test_compressed_runs_that_are_cut_off_are_refused() -> None:
    """pycocotools would give what lies in memory there."""
    rng = np.random.default_rng(0)
    for share in (0.01, 0.1, 0.5, 0.99):
        text = str(runs_of(rng.random((40, 60)) < share, compressed=True)["counts"])
        assert covered(text) == 2400
        assert covered(text[:-1]) != 2400 != covered(text + text[-4:])


def test_what_is_missing_is_named_with_the_layout(tmp_path: Path) -> None:
    expected = r"nothing at .*valid/instances.json; expected it, valid.json or .*youtube-vos.org.*nothing is downloaded"
    with pytest.raises(DataFilesError, match=expected):
        vis(tmp_path).dataset("val")
    write_youtube_vis(tmp_path, "valid", (2,))
    (tmp_path / "valid" / "instances.json").write_text('{"videos": [')
    with pytest.raises(DataFilesError, match=r"no JSON of YouTube-VIS: .*truncated; copy it anew"):
        vis(tmp_path).dataset("val")
    (tmp_path / "valid" / "instances.json").write_text('{"videos": []}')
    (tmp_path / "valid" / "JPEGImages").rename(tmp_path / "gone")
    with pytest.raises(DataFilesError, match=r"nothing at .*valid/JPEGImages; expected a folder of JPEGs for every"):
        vis(tmp_path).dataset("val")
