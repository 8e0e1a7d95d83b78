"""Readers of posed cameras: images, masks and rays are those of the files, and what is wrong is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from posed_scene_files import ids, opencv, shade, write_clevr3d, write_posed_videos, write_uorf

from slotbench.data.cameras import look_at, pixel_rays, turntable
from slotbench.data.posed_data import PosedData
from slotbench.data.posed_files import clevr3d
from slotbench.data.posed_files.clevr3d import CLEVR3D
from slotbench.data.posed_files.posed_video_folder import PosedVideoFolder
from slotbench.data.posed_files.uorf import UORFScenes
from slotbench.errors import DataFilesError
from slotbench.interfaces import VideoBatch


def clip(data: PosedData, split: Any, index: int) -> VideoBatch:
    return data.dataset(split).clips([index])


def in_order(batch: VideoBatch) -> tuple[np.ndarray, dict[str, Any]]:
    """Greys "time cameras" and everything else of all cameras, in the order of the files."""
    held = batch.held_out
    assert held is not None
    views = torch.cat([batch.objects["views"], held.objects["views"]], 1)[0].argsort()
    both = batch.all_views()
    cameras = torch.cat([batch.objects["cameras"], held.objects["cameras"]], 2)[0, :, views]
    about = {"masks": both.require("masks")[0, :, views], "rays": both.require("rays")[0, :, views], "cameras": cameras}
    greys = both.pixels[0, :, views, 0, 0, 0] * 255
    return greys.round().int().numpy(), about


@pytest.fixture
def few_scenes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clevr3d, "_SCENES", {"train": (0, 2), "val": (2, 3), "test": (3, 4)})


def test_clevr3d_gives_images_masks_and_cameras_that_look_at_the_origin(tmp_path: Path, few_scenes: None) -> None:
    folder = str(write_clevr3d(tmp_path / "set", (0, 1, 2, 3)))
    data = CLEVR3D(folder, height=24, width=32)
    assert (data.spec.input.height, data.spec.input.width, data.spec.input.num_views) == (24, 32, 2)
    batch = clip(data, "val", 0)
    assert batch.frames.shape == (1, 1, 2, 3, 24, 32)
    greys, about = in_order(batch)
    assert greys.tolist() == [[shade(2, view) for view in range(3)]]
    assert (about["masks"][0].numpy() == ids(2, 0, 24, 32)).all()
    assert batch.objects["present"][0].tolist() == [True] * 3 + [False] * 7
    assert batch.objects["shape_label"][0, :4].tolist() == [0, 1, 2, -1]
    centres = torch.from_numpy(np.load(f"{folder}/metadata.npz")["camera_pos"][2]).float()
    torch.testing.assert_close(about["cameras"][0], look_at(centres))
    torch.testing.assert_close(about["rays"][0], pixel_rays(look_at(centres), 35.0, 24, 32))
    assert {int(clip(data, "train", i).frames[0, 0].amin()) // 40 for i in range(4)} == {0, 1}


def test_clevr3d_leaves_out_scenes_of_many_objects_and_takes_the_square_in_the_middle(
    tmp_path: Path, few_scenes: None
) -> None:
    folder = str(write_clevr3d(tmp_path / "set", (0, 1, 2, 3)))
    small = CLEVR3D(folder, height=12, width=12, max_objects=3)
    with pytest.raises(DataFilesError, match="none of the 4 videos of the test split"):
        small.dataset("test")
    batch = clip(small, "val", 0)
    assert batch.frames.shape == (1, 1, 2, 3, 12, 12)
    assert float(batch.objects["focal"]) == pytest.approx(17.5)
    with pytest.raises(DataFilesError, match="which do not become 20 x 10 without being stretched"):
        clip(CLEVR3D(folder, height=10, width=20), "val", 0)


def test_uorf_gives_views_by_their_numbers_and_one_id_for_a_colour_in_all(tmp_path: Path) -> None:
    folder = write_uorf(tmp_path / "set")
    data = UORFScenes(str(folder), resolution=16, val_scenes=1)
    greys, about = in_order(clip(data, "val", 0))
    assert greys.tolist() == [[shade(2, view) for view in range(4)]]
    # red comes after blue
    expected = np.array([0, 2, 1])[ids(2, 0, 16, 16)]
    assert (about["masks"][0].numpy() == expected).all()
    cameras = turntable(4, 8.0)
    torch.testing.assert_close(about["cameras"][0], cameras, atol=1e-5, rtol=0)
    torch.testing.assert_close(about["rays"][0], pixel_rays(cameras, 17.5, 16, 16), atol=1e-5, rtol=0)
    assert len(data.dataset("val")) == len(data.dataset("test")) == 1
    apart = UORFScenes(str(folder), str(write_uorf(tmp_path / "other", 2)), resolution=8, val_scenes=1)
    assert len(apart.dataset("test")) == 2


def test_own_videos_give_the_frames_of_all_cameras_at_one_instant(tmp_path: Path) -> None:
    folder = write_posed_videos(tmp_path / "set")
    data = PosedVideoFolder(str(folder), num_cameras=3, resolution=10, eval_frames=2)
    assert [len(data.dataset(split)) for split in ("val", "test")] == [4, 4]
    greys, about = in_order(clip(data, "test", 3))
    assert greys.tolist() == [[shade(1, camera, step) for camera in range(3)] for step in (2, 3)]
    cameras = turntable(12, 4.0).reshape(4, 3, 4, 4)[2:]
    torch.testing.assert_close(about["cameras"], cameras)
    torch.testing.assert_close(about["rays"], pixel_rays(cameras, 15.0, 10, 10))
    assert (about["masks"][0, 0].numpy() == ids(1, 0, 10, 12)[:, 1:11]).all()
    still = in_order(clip(data, "test", 0))[1]["cameras"]
    torch.testing.assert_close(still, turntable(12, 4.0)[:3].expand(2, 3, 4, 4))
    assert data.dataset("test").clip_name(3) == "clip1_frame00002"
    assert data.dataset("test").video_origin(1) == str(folder / "test" / "clip1")
    larger = clip(PosedVideoFolder(str(folder), num_cameras=3, resolution=20, eval_frames=2), "val", 0)
    assert float(larger.objects["focal"]) == 30.0


def test_columns_of_opencv_are_turned_to_those_of_opengl(tmp_path: Path) -> None:
    folder = write_posed_videos(tmp_path / "set", ("test",), clips=1)
    path = folder / "test" / "clip0" / "cameras.npz"
    one = clip(PosedVideoFolder(str(folder), num_cameras=3), "test", 0)
    np.savez(path, camera_to_world=opencv(np.load(path)["camera_to_world"]), focal=15)
    other = clip(PosedVideoFolder(str(folder), num_cameras=3, axes="opencv"), "test", 0)
    torch.testing.assert_close(one.require("rays"), other.require("rays"))


@pytest.mark.parametrize(
    ("dropped", "matrices", "said"),
    [
        ({}, 4, ""),
        ({}, 6, ""),
        ({0: 2, 1: 2, 2: 2}, 3, ""),
        ({0: 2, 1: 1, 2: 2}, 3, r"cam_1 has frames of number 2 where .*cam_0 has frame 1"),
        ({1: 2}, 4, r"cam_1 has frames of number 3 where .*cam_0 has frame 2"),
        ({0: 2, 1: 2, 2: 2}, 4, r"cameras.npz has matrices of number 2 where .*cam_0 has frame 3"),
    ],
)
def test_cameras_and_their_poses_are_of_the_frames_of_one_number(
    dropped: dict[int, int], matrices: int, said: str, tmp_path: Path
) -> None:
    folder = write_posed_videos(tmp_path / "set", ("test",), clips=1)
    place = folder / "test" / "clip0"
    for camera, step in dropped.items():
        for side in (place, place / "masks"):
            (side / f"cam_{camera}" / f"{step:03d}.png").unlink()
    np.savez(place / "cameras.npz", camera_to_world=turntable(3 * matrices, 4.0).reshape(matrices, 3, 4, 4), focal=15.0)
    data = PosedVideoFolder(str(folder), num_cameras=3, resolution=10, eval_frames=2, void=[1])
    if said:
        with pytest.raises(DataFilesError, match=said):
            clip(data, "test", 0)
        return
    masks = in_order(clip(data, "test", 0))[1]["masks"]
    expected = ids(0, 0, 10, 12)[:, 1:11].astype(int)
    assert (masks[0, 0].numpy() == np.where(expected == 1, -1, expected)).all()
