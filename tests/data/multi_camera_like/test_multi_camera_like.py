"""Scenes seen by several cameras: what one camera sees agrees with the others, the rays, the depth and the log."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import torch
from torch import Tensor

from slotbench.data.base import LoaderOptions, Split
from slotbench.data.multi_camera_like.multi_camera_like import MultiCameraLike
from slotbench.data.multi_camera_like.scenes import COLORS, LEVELS, Level, draw_scene
from slotbench.interfaces import VideoBatch

pytest.importorskip("mujoco")

SIDE = 24
MET = 999.0  # distance of what is there


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLOTBENCH_CACHE", str(tmp_path_factory.mktemp("home")))
        yield


def small(**arguments: object) -> MultiCameraLike:
    """A set of a few tiny videos."""
    few = {"resolution": SIDE, "video_frames": 5, "num_frames": 3, "samples_per_side": 1}
    few |= {"train_videos": 4, "val_videos": 3, "test_videos": 2}
    return MultiCameraLike(**(few | arguments))  # type: ignore[arg-type]


def clips(data: MultiCameraLike, split: Split, indices: list[int]) -> VideoBatch:
    return data.dataset(split).clips(indices)


def held(batch: VideoBatch) -> VideoBatch:
    assert batch.held_out is not None
    return batch.held_out


def everything(batch: VideoBatch) -> dict[str, Tensor]:
    own = {k: v for k, v in vars(batch).items() if isinstance(v, Tensor)} | batch.objects
    return own | ({} if batch.held_out is None else {f"held {k}": v for k, v in everything(batch.held_out).items()})


levels = pytest.mark.parametrize("level", get_args(Level))


@levels
def test_batches_have_the_views_that_the_spec_announces(level: Level) -> None:
    data = small(level=level)
    spec, count = data.spec, len(LEVELS[level].cameras)
    assert (spec.input.num_views, spec.target.num_views) == (3, count - 3)
    batch = clips(data, "train", [0, 1])
    assert batch.frames.shape == (2, 3, 3, 3, SIDE, SIDE)
    assert held(batch).frames.shape == (2, 3, count - 3, 3, SIDE, SIDE)
    for part in (batch, held(batch)):
        views = part.frames.shape[2]
        assert part.frames.dtype == torch.uint8
        assert part.require("masks").shape == (2, 3, views, SIDE, SIDE)
        assert part.require("rays").shape == (2, 3, views, 6, SIDE, SIDE)
        assert part.objects["cameras"].shape == (2, 3, views, 4, 4)
        assert part.objects["depth"].shape == (2, 3, views, SIDE, SIDE)
    both = torch.cat([batch.objects["views"], held(batch).objects["views"]], 1)
    assert both.sort(1).values.tolist() == [list(range(count))] * 2
    assert clips(data, "val", [0]).num_steps == 5
    other = small(level=level, eval_shown=1)
    assert clips(other, "val", [0]).num_views == 1
    assert clips(other, "train", [0]).num_views == 3
    assert small(level=level, num_shown=count).spec.target.num_views == count
    assert clips(small(level=level, num_shown=count), "train", [0]).held_out is None


@levels
def test_a_clip_depends_on_seed_split_and_number_alone_and_all_cameras_are_shown_at_times(level: Level) -> None:
    data = small(level=level)
    together, apart = clips(data, "train", [5, 2]), [clips(small(level=level), "train", [i]) for i in (5, 2)]
    alone = everything(VideoBatch.join(apart))
    for name, value in everything(together).items():
        assert torch.equal(value, alone[name]), name
    seeded = small(level=level, scene_seed=1)
    assert not torch.equal(clips(seeded, "val", [0]).frames, clips(data, "val", [0]).frames)
    shown = {tuple(row.tolist()) for row in clips(data, "train", list(range(20))).objects["views"]}
    assert len(shown) > 5
    # pieces of a video are all of the same cameras
    pieces = data.video_pieces("test", 2)
    assert len({tuple(pieces.clips([i]).objects["views"][0].tolist()) for i in range(3)}) == 1


@levels
def test_points_at_the_end_of_rays_lie_in_the_object_that_every_camera_says_is_there(level: Level) -> None:
    batch = clips(small(level=level), "val", [0, 1, 2])
    positions, reach = batch.objects["positions"], batch.objects["scale"] * np.sqrt(3) / 2
    inside = 0
    for part in (batch, held(batch)):
        rays, masks = part.require("rays"), part.require("masks").long()
        points = rays[:, :, :, :3] + part.objects["depth"][:, :, :, None] * rays[:, :, :, 3:]
        for clip, step, view, row, column in (masks > 0).nonzero().tolist():
            which = int(masks[clip, step, view, row, column]) - 1
            away = points[clip, step, view, :, row, column] - positions[clip, step, which]
            assert away.norm() <= reach[clip, which] + 1e-3
            inside += 1
        empty = (masks == 0) & (part.objects["depth"] < MET)
        assert points[:, :, :, 2][empty].min() > -1e-3
    assert inside > 300
    assert batch.require("masks").amax() <= batch.objects["num_objects"].max()
    seen = sum((part.require("masks") == 1).sum((2, 3, 4)) for part in (batch, held(batch)))
    assert torch.equal(batch.objects["visibility"][..., 0].sum(2), seen)


@levels
def test_in_the_frame_of_the_first_camera_everything_else_stays(level: Level) -> None:
    world, own = clips(small(level=level), "val", [0, 1]), clips(small(level=level, frame="first"), "val", [0, 1])
    torch.testing.assert_close(own.objects["cameras"][:, 0, 0], torch.eye(4).expand(2, 4, 4), atol=1e-5, rtol=0)
    for one, other in ((world, own), (held(world), held(own))):
        assert torch.equal(one.frames, other.frames)
        lead = other.objects["to_world"]
        rotated = torch.einsum("bij,btvjhw->btvihw", lead[:, :3, :3], other.require("rays")[:, :, :, 3:])
        torch.testing.assert_close(rotated, one.require("rays")[:, :, :, 3:], atol=1e-5, rtol=0)
        back = lead[:, None, None] @ other.objects["cameras"]
        torch.testing.assert_close(back, one.objects["cameras"], atol=1e-5, rtol=0)


@levels
def test_the_empty_scene_is_what_cameras_see_beside_objects_and_their_shadows(level: Level) -> None:
    data = small(level=level, frame="first")
    batch = clips(data, "val", [0, 1])
    for part in (batch, held(batch)):
        empty = data.empty_scene(part)
        same = (empty - part.frames / 255).abs().amax(3) < 0.02
        background = part.require("masks") == 0
        assert same[background].float().mean() > 0.8
        assert same[~background].float().mean() < 0.5


@levels
def test_baselines_of_held_out_views(level: Level) -> None:
    data = small(level=level)
    batch = clips(data, "val", [0, 1])
    found = data.held_out_baselines(batch)
    assert set(found) == {"nearest_view", "mean_image", "empty_scene"}
    for frames in found.values():
        assert frames.shape == held(batch).frames.shape
        assert 0 <= frames.min() < frames.max() <= 1
    copied = (found["nearest_view"][0, 0, 0] * 255).round().byte()
    assert any(torch.equal(copied, view) for view in batch.frames[0, 0])
    assert data.held_out_baselines(clips(small(level=level, num_shown=len(LEVELS[level].cameras)), "val", [0])) == {}


def test_the_nearest_view_is_that_of_the_nearest_camera() -> None:
    data = small()
    batch = clips(data, "val", [0])
    shown, away = batch.objects["cameras"], held(batch).objects["cameras"]
    found = data.held_out_baselines(batch)["nearest_view"]
    for view in range(2):
        distance = [float((shown[0, 0, i, :3, 3] - away[0, 0, view, :3, 3]).norm()) for i in range(3)]
        assert torch.equal((found[0, 0, view] * 255).round().byte(), batch.frames[0, 0, int(np.argmin(distance))])


@levels
def test_cameras_that_nobody_recorded_get_rays_and_the_empty_scene(level: Level) -> None:
    for frame in ("world", "first"):
        data = small(level=level, frame=frame)
        batch = clips(data, "val", [0, 1])
        turning = data.turntable(batch, 7)
        assert turning.frames.shape == (2, 7, 1, 3, SIDE, SIDE)
        assert turning.require("rays").shape == (2, 7, 1, 6, SIDE, SIDE)
        assert data.turntable(batch).num_steps == batch.num_steps
        # a camera that was recorded sees what it saw
        world = batch.objects["to_world"][0] @ batch.objects["cameras"][0]
        again = data.seen_from(batch, world)
        torch.testing.assert_close(again.require("rays")[0], batch.require("rays")[0], atol=1e-5, rtol=0)


@levels
def test_scenes_have_the_objects_and_the_32_colours_of_their_level(level: Level) -> None:
    fewest, most = LEVELS[level].num_objects
    scenes = [draw_scene(level, np.random.default_rng(seed)) for seed in range(200)]
    assert {len(scene.shapes) for scene in scenes} == set(range(fewest, most + 1))
    assert set(np.concatenate([scene.sizes for scene in scenes])) == {0, 1, 2}
    assert set(np.concatenate([scene.materials for scene in scenes])) == {0, 1}
    assert set(np.concatenate([scene.color_labels for scene in scenes])) == set(range(32))
    assert any(len(set(scene.color_labels)) < len(scene.color_labels) for scene in scenes)
    assert len(np.unique(COLORS.round(3), axis=0)) == 32
    assert 0 <= COLORS.min() <= COLORS.max() <= 1


def test_simple_cameras_stand_still_on_the_hemisphere_and_look_at_the_centre() -> None:
    batch = clips(small(loader=LoaderOptions(val_size=3)), "val", [0, 1, 2]).all_views()
    cameras = batch.objects["cameras"]
    assert torch.equal(cameras, cameras[:, :1].expand_as(cameras))
    centres = cameras[:, 0, :, :3, 3]
    torch.testing.assert_close(centres.norm(dim=-1), torch.full((3, 3), 8.0))
    assert centres[..., 2].min() >= 8 * np.sin(np.radians(25)) - 1e-4
    torch.testing.assert_close(cameras[:, 0, :, :3, 2], centres / 8)
    assert len(torch.unique(centres.reshape(-1, 3), dim=0)) == 9


def ego_batch() -> VideoBatch:
    data = small(level="ego", num_shown=6, video_frames=24, val_videos=8, resolution=8)
    return clips(data, "val", list(range(8)))


def test_ego_cameras_move_as_one_and_look_all_around() -> None:
    batch = ego_batch()
    order = batch.objects["views"].argsort(1)
    cameras = batch.objects["cameras"][torch.arange(8)[:, None], :, order].transpose(1, 2)
    centres, ways = cameras[..., :3, 3], -cameras[..., :3, 2]
    ego = centres.mean(2)
    torch.testing.assert_close(centres - ego[:, :, None], (centres - ego[:, :, None])[:, :1].expand_as(centres))
    assert torch.equal(ways, ways[:, :1].expand_as(ways))
    assert ((ego[:, -1] - ego[:, 0]).norm(dim=-1) > 0.1).all()
    names = LEVELS["ego"].cameras
    ahead, left = ways[:, 0, names.index("Front"), :2], ways[:, 0, names.index("Front_Left"), :2]
    back = ways[:, 0, names.index("Back"), :2]
    torch.testing.assert_close(ahead, -back)
    assert (ahead[:, 0] * left[:, 1] - ahead[:, 1] * left[:, 0] > 0).all()  # counter-clockwise from above
    # it starts in the direction in which Front looks
    way = ego[:, 1, :2] - ego[:, 0, :2]
    torch.testing.assert_close(way / way.norm(dim=-1, keepdim=True), ahead / ahead.norm(dim=-1, keepdim=True))


def test_objects_and_ego_start_in_one_room_and_nothing_leaves_the_world() -> None:
    batch = ego_batch()
    present = batch.objects["present"]
    ego = batch.objects["cameras"][..., :2, 3].mean(2)
    assert ego.abs().max() < 5
    for clip in range(8):
        places = batch.objects["positions"][clip][:, present[clip]]
        assert places[..., :2].abs().max() < 5
        assert places[..., 2].min() > 0.1
        started = torch.cat([places[0, :, :2], ego[clip, :1]])
        assert len({tuple(row) for row in (started > 0).tolist()}) == 1
    shapes = set(batch.objects["shape_label"][present].tolist())
    assert 3 in shapes
