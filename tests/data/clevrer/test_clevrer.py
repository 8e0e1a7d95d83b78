"""The reader of CLEVRER, on files written in the layout of the released archives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from clevrer_files import FRAMES, LOOKS, annotation_of, masks_of, pack, proposals_of, write_clevrer, write_movie

from slotbench.data.base import Split
from slotbench.data.clevrer.clevrer import CLEVRER
from slotbench.data.clevrer.videos import pseudo_masks, read_annotation
from slotbench.errors import DataFilesError
from slotbench.interfaces import VideoBatch
from slotbench.metrics.mask_metrics import mask_headlines
from slotbench.metrics.scores import Score

NAMES = ("color", "material", "shape")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_clevrer(tmp_path_factory.mktemp("clevrer"))


@pytest.fixture(scope="module")
def cache(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cache")
    CLEVRER(str(folder), resolution=16, stride=2).prepare(out, lambda what, done, total: None, jobs=1)
    return out


def data_of(folder: Path, **arguments: Any) -> CLEVRER:
    return CLEVRER(str(folder), **({"resolution": 16, "num_frames": 4, "eval_frames": 8} | arguments))


def clips(data: CLEVRER, split: Split, indices: list[int]) -> VideoBatch:
    return data.dataset(split).clips(indices)


def test_splits_are_the_folders_of_the_release(folder: Path, tmp_path: Path) -> None:
    data = data_of(folder)
    names = {s: [data.stored_videos(s)[0].video_name(i) for i in range(n)] for s, n in [("train", 2), ("val", 2)]}  # type: ignore[arg-type]
    assert names == {"train": ["video_00003", "video_01200"], "val": ["video_10000", "video_10801"]}
    assert len(data.dataset("test")) == FRAMES // 8
    assert data.dataset("val").clip_name(1) == "video_10000_frame00008"
    archives = write_clevrer(tmp_path, {"train": [3], "validation": [10000]}, archives=True)
    other = data_of(archives)
    assert torch.equal(clips(other, "val", [0]).frames, clips(data, "val", [0]).frames)
    assert torch.equal(
        data_of(folder, test_split="validation").dataset("test").clips([0]).frames, clips(data, "val", [0]).frames
    )


def test_the_video_whose_annotation_is_broken_is_left_out_and_one_of_another_length_refused(tmp_path: Path) -> None:
    folder = write_clevrer(tmp_path, {"validation": [10799, 10800, 10801]})
    source, _ = data_of(folder).stored_videos("val")
    assert [source.video_name(i) for i in range(2)] == ["video_10799", "video_10801"]
    assert len(source.lengths) == 2
    write_movie(folder / "videos/val/video_10000-11000/video_10801.mp4", frames=20)
    with pytest.raises(DataFilesError, match=r"video_10801.mp4 does not have 128 frames"):
        data_of(folder).dataset("val").source.clip(1, range(2))


def test_masks_are_the_detections_under_the_ids_of_the_annotation(folder: Path) -> None:
    batch = clips(data_of(folder, resolution=32, fit="crop"), "val", [0])
    # the square in the middle is 8 pixels in from the left, and what looks like no annotated object is background
    for step in range(8):
        one, other = (mask[:, 8:40] for mask in masks_of(step))
        expected = 1 * one + 2 * other
        np.testing.assert_array_equal(batch.require("masks")[0, step].numpy(), expected)
    # without annotations it is an object, numbered as the file names it
    test = clips(data_of(folder, resolution=32, fit="crop"), "test", [0]).require("masks")[0]
    assert [test[step].unique().tolist() for step in (0, 7)] == [[0, 1], [0, 1, 2]]
    assert test[0, 21, 30] == 1
    assert test[3].unique().tolist() == [3]
    stretched = clips(data_of(folder, resolution=16), "val", [0]).require("masks")[0]
    assert [int((stretched[0] == i).sum()) for i in (1, 2)] == [12, 12]


def test_annotations_are_true_positions_velocities_and_collisions(folder: Path) -> None:
    log = clips(data_of(folder, eval_frames=32, masks=False, stride=4), "val", [1]).objects
    frames = torch.arange(0, 128, 4)
    torch.testing.assert_close(log["positions"][0, :, 1, 0], 0.01 * frames + 1)
    assert (log["positions"][0, :, 0, 1] == 10801).all()
    assert log["velocities"][0, 5, :2].tolist() == [[0.25, 0.0, 0.0], [0.25, 0.0, -1.0]]
    assert torch.equal(log["inside_view"][0, :, 1], frames >= 10)
    # frame 21 is not shown: its collision belongs to frame 24, and that of frame 100 to frame 100
    assert log["collisions"][0, :, 0, 1].nonzero().flatten().tolist() == [6, 25]
    assert torch.equal(log["collisions"], log["collisions"].transpose(2, 3))
    assert log["num_objects"].tolist() == [2]
    assert log["present"][0].tolist() == [True] * 2 + [False] * 10
    assert [log[f"{name}_label"][0, :3].tolist() for name in ("shape", "material", "color")] == [
        [0, 2, -1],
        [0, 1, -1],
        [6, 0, -1],
    ]
    assert "positions" not in clips(data_of(folder, masks=False), "test", [0]).objects


def test_a_cache_of_every_second_frame_names_clips_as_the_files_do(folder: Path, cache: Path) -> None:
    released, prepared = (clips(data_of(at, stride=2), "val", [9]) for at in (folder, cache))
    assert torch.equal(released.frames, prepared.frames)
    assert released.objects["first_frame"].tolist() == prepared.objects["first_frame"].tolist() == [16]
    one, other = (data_of(at, stride=2).dataset("val").clip_name(9) for at in (folder, cache))
    assert one == other == "video_10801_frame00016"
    assert clips(data_of(cache, stride=2, masks=False), "val", [0]).masks is None


def test_scores_against_detections_say_so(folder: Path) -> None:
    assert data_of(folder).pseudo_masks
    found = mask_headlines()
    assert found
    for score in found:
        assert score.headline("val", {}, pseudo_masks=True).label == f"{score.label} (against pseudo masks)"
        assert score.headline("val", {}).label == score.label
    assert Score("psnr/frame", "PSNR").headline("val", {}, pseudo_masks=True).label == "PSNR"


def test_of_two_detections_of_an_object_the_surer_counts_and_lies_on_top(tmp_path: Path) -> None:
    content = proposals_of(0)
    found = content["frames"][0]["objects"]
    everywhere = {"size": [32, 48], "counts": pack(np.ones((32, 48), bool))}
    found.append(dict(zip(NAMES, LOOKS[0], strict=True)) | {"score": 0.5, "mask": everywhere})
    found[0]["score"], found[0]["mask"] = 0.3, everywhere
    (tmp_path / "a.json").write_text(json.dumps(content))
    masks = pseudo_masks(tmp_path / "a.json", [0], (32, 48), LOOKS)
    np.testing.assert_array_equal(masks[0], np.where(masks_of(0)[0], 1, 2))


def test_an_object_that_a_frame_does_not_list_is_outside(tmp_path: Path) -> None:
    content = annotation_of(1)
    del content["motion_trajectory"][50]["objects"][0]
    (tmp_path / "a.json").write_text(json.dumps(content))
    found = read_annotation(tmp_path / "a.json")
    assert not found.inside[50, 0]
    assert found.inside[50, 1]
    assert found.inside[49, 0]
