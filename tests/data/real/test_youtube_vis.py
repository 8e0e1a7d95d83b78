"""YouTube-VIS: masks of both encodings, its splits by name, overlaps, categories, and damage by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from real_files import SIZE, runs_of, write_json, write_youtube_vis

from slotbench.data.real.youtube_vis import YouTubeVIS
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


def test_the_first_videos_are_scored_and_counted(tmp_path: Path) -> None:
    videos = [{"id": i, "file_names": [f"v{i}/0.jpg"] * (1 + i % 2), "height": 4, "width": 6} for i in range(302)]
    write_json(tmp_path / "train" / "instances.json", videos=videos)
    (tmp_path / "train" / "JPEGImages").mkdir()
    data = YouTubeVIS(str(tmp_path), first_videos=210, num_frames=1)
    assert data.reading(("val",)) == (
        f"{tmp_path}: val: 210 whole videos, from 210 of 300 videos\n"
        "left out: val 90 videos after the first 210 (first_videos)"
    )
    dataset = data.dataset("val")
    assert [dataset.clip_name(i) for i in (0, 209)] == ["v2_frame00000", "v211_frame00000"]
    changed(tmp_path, lambda file: file["videos"].pop(), "train")
    changed(tmp_path, lambda file: file["videos"].pop(), "train")
    with pytest.raises(DataFilesError, match=r"lists 300 videos; expected 301 at least.*--data.split_rule release"):
        YouTubeVIS(str(tmp_path)).dataset("val")


def test_released_validation_videos_have_no_masks(tmp_path: Path) -> None:
    write_youtube_vis(tmp_path, "valid", (3,))
    changed(tmp_path, lambda file: file.update(annotations=None))
    clip = vis(tmp_path).dataset("val").clips([0])
    assert clip.masks is None
    assert "category" not in clip.objects


DAMAGE = {
    "no JSON": (lambda file: file.clear(), r"instances.json is no JSON of YouTube-VIS: .*missing required.*videos"),
    "counts": (
        lambda file: file["annotations"][0]["segmentations"][0].update(counts=[3, 4]),
        r"instances.json holds a damaged mask \(video 1, frame 0\)",
    ),
    "text": (
        lambda file: file["annotations"][3]["segmentations"][0].update(counts="PPPP"),
        r"instances.json holds a damaged mask \(video 2, frame 0\)",
    ),
    "cut": (
        lambda file: file["annotations"][3]["segmentations"][0].update(
            counts=file["annotations"][3]["segmentations"][0]["counts"][:-1]
        ),
        r"instances.json holds a damaged mask \(video 2, frame 0\) \(its runs cover \d+ pixels\)",
    ),
    "type": (
        lambda file: file["annotations"][0]["segmentations"][0].update(counts=3.5),
        r"no JSON of YouTube-VIS: .*annotations\[0\]\.segmentations\[0\]\.counts",
    ),
    "size": (
        lambda file: file["annotations"][0]["segmentations"][0].update(size=[20, 12]),
        r"has a mask of 20 x 12 pixels for frames of 12 x 20 \(video 1, frame 0\)",
    ),
    "frames": (
        lambda file: file["annotations"][0]["segmentations"].pop(),
        r"lists 4 frames of video 1, and other numbers of masks; expected",
    ),
    "video": (
        lambda file: file["annotations"][0].update(video_id=9),
        r"has masks of a video 9 that it does not list",
    ),
    "frame": (
        lambda file: file["videos"][0]["file_names"].__setitem__(2, "video1/9.jpg"),
        r"there is no file .*valid/JPEGImages/video1/9.jpg",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_ends_in_a_sentence_with_the_path(damage: str, tmp_path: Path) -> None:
    write_youtube_vis(tmp_path, "valid", (4, 4))
    change, sentence = DAMAGE[damage]
    changed(tmp_path, change)
    with pytest.raises(ValueError, match=sentence):
        vis(tmp_path).dataset("val").clips([int(damage in ("text", "cut"))])


def test_what_is_missing_is_named_with_the_layout(tmp_path: Path) -> None:
    expected = r"nothing at .*valid/instances.json; expected it, valid.json or .*youtube-vos.org.*nothing is downloaded"
    with pytest.raises(DataFilesError, match=expected):
        vis(tmp_path).dataset("val")
    write_youtube_vis(tmp_path, "valid", (2,))
    (tmp_path / "valid" / "instances.json").write_text('{"videos": [')
    with pytest.raises(DataFilesError, match=r"instances.json is no JSON of YouTube-VIS: .*truncated"):
        vis(tmp_path).dataset("val")
    (tmp_path / "valid" / "instances.json").write_text('{"videos": []}')
    (tmp_path / "valid" / "JPEGImages").rename(tmp_path / "gone")
    with pytest.raises(DataFilesError, match=r"nothing at .*valid/JPEGImages; expected a folder of JPEGs for every"):
        vis(tmp_path).dataset("val")
