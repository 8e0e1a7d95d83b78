"""Depth beside videos, in every form that it may have, and what is no depth is refused with its path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import media_files
import numpy as np
import pytest
import torch
from media_files import write_maps

from slotbench.data.folders.depth_video import DepthVideo
from slotbench.data.folders.frame_maps import resize_depth
from slotbench.errors import DataFilesError
from slotbench.interfaces import VideoBatch

FRAMES, ROWS, COLUMNS = 5, 8, 12
"""Frames that are wider than high: 2 columns at each side are cropped."""


def depth_map() -> np.ndarray:
    """Millimetres; no two are alike, and 0, which is no depth, is at one place."""
    values = 1000 + np.arange(FRAMES * ROWS * COLUMNS).reshape(FRAMES, ROWS, COLUMNS)
    values[:, 3, 4] = 0
    return values


def write_video(folder: Path, name: str = "a") -> Path:
    frames = np.random.default_rng(0).integers(0, 256, (FRAMES, ROWS, COLUMNS, 3), np.uint8)
    return media_files.write_video(folder / f"{name}.npy", frames).parent


def write_depth(folder: Path, kind: str, values: np.ndarray) -> None:
    """Depth of the video `a` in the form `kind`, in a folder beside the videos."""
    dtype, name = {
        "npy": (np.int32, "a.npy"),
        "npz": (np.float64, "a.npz"),
        "png": (np.uint16, "a/png"),
        "maps": (np.float32, "a/npy"),
    }[kind]
    write_maps(folder / name, values.astype(dtype))


def clips(path: Path, split: str = "test", **arguments: Any) -> VideoBatch:
    data = DepthVideo(str(path), **{"unit": "millimetres", "resolution": ROWS, "eval_frames": 2} | arguments)
    return data.dataset(split).clips([0, 1] if split == "test" else [0])  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["npy", "npz", "png", "maps"])
def test_depth_comes_in_metres_cropped_as_the_frames(kind: str, tmp_path: Path) -> None:
    write_depth(write_video(tmp_path) / "depth", kind, depth_map())
    batch = clips(tmp_path)
    wanted = depth_map()[:4, :, 2:10].reshape(2, 2, ROWS, ROWS)
    assert batch.frames.shape == (2, 2, 3, ROWS, ROWS)
    np.testing.assert_allclose(batch.objects["depth"].numpy(), wanted / 1000, rtol=1e-6)
    np.testing.assert_array_equal(batch.objects["depth_valid"].numpy(), wanted > 0)
    assert batch.objects["first_frame"].tolist() == [0, 2]
    piece = DepthVideo(str(tmp_path), "millimetres", resolution=ROWS).video_pieces("test", 3)[1]
    np.testing.assert_allclose(piece.objects["depth"][0].numpy(), depth_map()[3:, :, 2:10] / 1000, rtol=1e-6)


def test_bars_of_a_letterbox_have_no_depth(tmp_path: Path) -> None:
    write_depth(write_video(tmp_path) / "depth", "npy", depth_map())
    objects = clips(tmp_path, resolution=COLUMNS, fit="letterbox").objects
    np.testing.assert_allclose(objects["depth"][0, :, 2:10].numpy(), depth_map()[:2] / 1000, rtol=1e-6)
    assert not objects["depth_valid"][:, :, [0, 1, 10, 11]].any()


def test_crops_of_training_clips_keep_depth_that_was_there(tmp_path: Path) -> None:
    write_depth(write_video(tmp_path) / "depth", "npy", depth_map())
    whole, cut = (clips(tmp_path, "train", num_frames=FRAMES, crop=crop).objects for crop in (1.0, 0.4))
    assert not torch.equal(whole["depth"], cut["depth"])
    assert set(cut["depth"].unique().tolist()) <= set(whole["depth"].unique().tolist())
    assert torch.equal(cut["depth_valid"], cut["depth"] > 0)


@pytest.mark.parametrize("kind", ["npy", "png"])
def test_sparse_depth_has_a_mask_a_number_for_none_and_nothing_that_is_no_distance(kind: str, tmp_path: Path) -> None:
    values = depth_map().astype(np.float32)
    values[0, 0, 2], values[0, 0, 3], values[0, 0, 4] = np.nan, -1, 65535
    write_depth(write_video(tmp_path) / "depth", "maps", values)
    marked = np.ones((FRAMES, ROWS, COLUMNS), np.uint8)
    marked[:, -1] = 0
    write_maps(tmp_path / "depth_valid" / ("a.npy" if kind == "npy" else "a/png"), 255 * marked)
    objects = clips(tmp_path, invalid=65535.0).objects
    valid = objects["depth_valid"][0, 0]
    assert valid[0].tolist() == [False, False, False, True, True, True, True, True]
    assert not valid[-1].any()
    assert (objects["depth"][~objects["depth_valid"]] == 0).all()
    assert bool(valid[3, 1])
    assert not valid[3, 2]


def test_sparse_depth_is_not_lost_in_a_smaller_image_and_nothing_arises_between_two_objects() -> None:
    depth = np.full((1, 6, 6), 9.0, np.float32)
    depth[0, :2, :2], depth[0, 4, 5] = [[3, 2], [7, 7]], 5
    valid = np.zeros((1, 6, 6), bool)
    valid[0, :2, :2] = valid[0, 4, 5] = True
    valid[0, 0, 1] = False
    small, kept = resize_depth(depth, valid, 3, 3)
    np.testing.assert_array_equal(small[0], [[3, 0, 0], [0, 0, 0], [0, 0, 5]])
    np.testing.assert_array_equal(kept[0], small[0] > 0)
    large, _ = resize_depth(small, kept, 6, 6)
    np.testing.assert_array_equal(large[0], small[0].repeat(2, 0).repeat(2, 1))


def test_masks_of_objects_come_too_and_splits_are_folders(tmp_path: Path) -> None:
    for split in ("train", "test"):
        folder = write_video(tmp_path / split)
        write_depth(folder / "depth", "npy", depth_map())
        write_maps(folder / "masks" / "a.npy", np.ones((FRAMES, ROWS, COLUMNS), np.uint8))
    batch = clips(tmp_path, "train", num_frames=3)
    assert batch.masks is not None
    assert (batch.masks == 1).all()
    assert batch.objects["depth"].dtype == torch.float32


def test_depth_of_other_frames_is_refused_and_void_ids_count_nowhere(tmp_path: Path) -> None:
    folder = media_files.write_video(tmp_path / "a", np.zeros((FRAMES, ROWS, COLUMNS, 3), np.uint8))
    for name in ("depth", "masks", "depth_valid"):
        write_maps(tmp_path / name / "a" / "png", np.full((FRAMES, ROWS, COLUMNS), 255, np.uint16))
    assert clips(tmp_path, void=[255]).require("masks").unique().tolist() == [-1]
    for name in ("depth_valid", "masks", "depth"):
        (tmp_path / name / "a" / "4.png").rename(tmp_path / name / "a" / "5.png")
        with pytest.raises(DataFilesError, match=rf"{name}.a has {name} of number 5 where {folder} has frame 4"):
            clips(tmp_path)
