"""Simulated videos: a function of seed, split and number alone, with annotations that agree with what is seen."""

from __future__ import annotations

import hashlib
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation
from tfrecord_files import movi_video, write_movi
from torch import Tensor

from slotbench.data.base import LoaderOptions, Split
from slotbench.data.clip_cache import ClipCache
from slotbench.data.movi.movi import MOVi
from slotbench.data.movi_like.movi_like import MOViLike
from slotbench.data.movi_like.physics import FRAME_RATE, simulate
from slotbench.data.movi_like.scenes import COLORS, SceneLaw
from slotbench.data.movi_like.videos import SimulatedVideos
from slotbench.errors import DataFilesError
from slotbench.interfaces import VideoBatch

pytest.importorskip("mujoco")

SIDE, SPHERE = 16, 2


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("SLOTBENCH_CACHE", str(folder))
    return folder


def small(**arguments: object) -> MOViLike:
    """A set of a few tiny videos."""
    few = {"resolution": SIDE, "video_frames": 4, "num_frames": 2, "num_objects": (2, 4), "samples_per_side": 1}
    few |= {"train_videos": 5, "val_videos": 2, "test_videos": 2}
    return MOViLike(**(few | arguments))  # type: ignore[arg-type]


def everything(batch: VideoBatch) -> dict[str, Tensor]:
    return {k: v for k, v in vars(batch).items() if isinstance(v, Tensor)} | batch.objects


def clips(data: MOViLike | MOVi, split: Split, indices: list[int]) -> VideoBatch:
    return data.dataset(split).clips(indices)  # type: ignore[attr-defined]


def whole(source: SimulatedVideos, videos: list[int]) -> VideoBatch:
    return source.read(videos, [0] * len(videos), source.num_frames)


def digest(batch: VideoBatch) -> str:
    content = b"".join(value.numpy().tobytes() for _, value in sorted(everything(batch).items()))
    return hashlib.sha256(content).hexdigest()


@pytest.fixture(scope="module")
def videos() -> dict[str, np.ndarray]:
    """Annotations of a dozen videos, 12 frames each, of up to six objects."""
    source = SimulatedVideos(SceneLaw("cam", (3, 6), (0.9, 1.4), 3.0), "train", 12, 12, resolution=48, depth=True)
    return {name: value.numpy() for name, value in everything(whole(source, list(range(12)))).items()}


@pytest.mark.parametrize("level", ["a", "tex", "cam", "hard"])
def test_a_video_depends_on_seed_split_and_number_and_not_on_the_batch(level: str) -> None:
    source = small(level=level).simulated("train")
    together, alone = whole(source, [0, 1, 2]), whole(source, [1])
    for name, value in everything(together).items():
        assert torch.equal(value[1:2], everything(alone)[name]), name
    assert digest(alone) == digest(whole(small(level=level).simulated("train", threads=2), [1]))
    others = [small(level=level, scene_seed=1).simulated("train"), small(level=level).simulated("val")]
    assert len({digest(alone), digest(whole(source, [0])), *(digest(whole(other, [1])) for other in others)}) == 4
    assert digest(whole(small(level=level, samples_per_side=2).simulated("train"), [1])) != digest(alone)
    # the order of training is another matter than the videos
    assert digest(whole(small(level=level, loader=LoaderOptions(seed=9)).simulated("train"), [1])) == digest(alone)


def test_fields_are_those_of_movi_and_have_their_shapes_and_types(tmp_path: Path) -> None:
    per_variant = {}
    for variant in "abcde":
        video = movi_video(0, SIDE, num_objects=3, variant=variant)
        write_movi(tmp_path / variant, {"validation": [video]}, f"movi_{variant}", shards=1)
        data = MOVi(str(tmp_path / variant), resolution=SIDE, num_objects=4, depth=True)
        per_variant[variant] = everything(clips(data, "val", [0]))
    ours = everything(whole(small(video_frames=24, depth=True).simulated("val"), [0]))
    assert per_variant["a"].keys() <= ours.keys()
    assert ours.keys() == set().union(*per_variant.values())
    for theirs in per_variant.values():
        for name, value in theirs.items():
            assert (ours[name].shape, ours[name].dtype) == (value.shape, value.dtype), name
    assert "depth" not in whole(small().simulated("val"), [0]).objects


def test_objects_that_are_not_there_are_padded_as_in_movi(videos: dict[str, np.ndarray]) -> None:
    present = videos["present"]
    assert present.shape == (12, 6)
    np.testing.assert_array_equal(present.sum(1), videos["num_objects"])
    assert videos["num_objects"].min() >= 3
    assert (~present).any()
    for name in ("shape_label", "size_label", "color_label", "material_label", "category", "is_dynamic"):
        assert (videos[name][~present] == -1).all()
        assert (videos[name][present] >= 0).all()
    for name in ("positions", "quaternions", "visibility", "bboxes", "image_positions", "velocities"):
        assert (videos[name].swapaxes(1, 2)[~present] == 0).all(), name
    np.testing.assert_allclose(videos["color"][present], COLORS[videos["color_label"][present]], rtol=1e-6)
    np.testing.assert_allclose(videos["scale"][present], np.array([0.9, 1.4])[videos["size_label"][present]], rtol=1e-6)
    density = np.array([2.7, 1.1])[videos["material_label"][present]]
    np.testing.assert_allclose(videos["mass"][present], density * videos["scale"][present] ** 3, rtol=1e-5)


def test_visibility_and_boxes_are_those_of_the_masks(videos: dict[str, np.ndarray]) -> None:
    masks = videos["masks"]
    for i in range(6):
        seen = masks == i + 1
        np.testing.assert_array_equal(seen.sum((2, 3)), videos["visibility"][:, :, i])
        for video, frame in np.ndindex(*masks.shape[:2]):
            rows, columns = np.nonzero(seen[video, frame])
            box = [0.0] * 4
            if len(rows):
                box = [rows.min() / 48, columns.min() / 48, (rows.max() + 1) / 48, (columns.max() + 1) / 48]
            np.testing.assert_allclose(videos["bboxes"][video, frame, i], box, rtol=1e-6)
    assert masks.max() <= 6


def test_depth_and_masks_are_those_of_the_annotated_objects_and_camera(videos: dict[str, np.ndarray]) -> None:
    """Back from each pixel into the world, by an independent route."""
    at = (np.arange(48) + 0.5) / 48 - 0.5
    across, down = np.meshgrid(at, at)
    checked = 0
    for video, frame in np.ndindex(12, 12):
        focal = videos["camera_focal_length"][video] / videos["camera_sensor_width"][video]
        local = np.stack([across, -down, np.full_like(across, -focal)], axis=-1)
        local /= np.linalg.norm(local, axis=-1, keepdims=True)
        turn = Rotation.from_quat(np.roll(videos["camera_quaternions"][video, frame], -1))
        camera = videos["camera_positions"][video, frame]
        world = camera + turn.apply(local.reshape(-1, 3)).reshape(48, 48, 3) * videos["depth"][video, frame, ..., None]
        masks = videos["masks"][video, frame]
        np.testing.assert_allclose(world[masks == 0][:, 2], 0.0, atol=1e-4)
        for i in range(videos["num_objects"][video]):
            there = Rotation.from_quat(np.roll(videos["quaternions"][video, frame, i], -1)).inv()
            inside = there.apply(world[masks == i + 1] - videos["positions"][video, frame, i])
            inside = inside / (videos["scale"][video, i] / 2)
            if not len(inside):
                continue
            cube, round_part = abs(inside).max(-1), np.linalg.norm(inside[:, :2], axis=-1)
            cylinder, sphere = np.maximum(round_part, abs(inside[:, 2])), np.linalg.norm(inside, axis=-1)
            surface = (cube, cylinder, sphere)[videos["shape_label"][video, i]]
            np.testing.assert_allclose(surface, 1.0, atol=1e-4)
            checked += len(inside)
    assert checked > 10_000


def test_image_positions_are_where_spheres_are_seen(videos: dict[str, np.ndarray]) -> None:
    offsets = []
    for video, frame, i in np.ndindex(12, 12, 6):
        top, left, bottom, right = videos["bboxes"][video, frame, i]
        alone = min(top, left) > 0.03 and max(bottom, right) < 0.97
        full = 0.7 * (bottom - top) * (right - left) * 48**2 < videos["visibility"][video, frame, i]
        if videos["shape_label"][video, i] == SPHERE and alone and full:
            x, y = videos["image_positions"][video, frame, i]
            offsets.append((x - (left + right) / 2, y - (top + bottom) / 2))
    assert len(offsets) > 50
    assert abs(np.array(offsets)).mean() < 0.01
    np.testing.assert_allclose(videos["camera_field_of_view"], 2 * np.arctan(32.0 / 70.0), rtol=1e-6)


def test_cameras_look_at_the_centre_from_above_and_move_in_a_line_on_level_cam_only(
    videos: dict[str, np.ndarray],
) -> None:
    cameras = videos["camera_positions"].astype(np.float64)
    distance = np.linalg.norm(cameras, axis=-1)
    assert (cameras[..., 2] / distance >= 0.5 - 1e-6).all()
    np.testing.assert_allclose(
        cameras[:, 1:] - cameras[:, :-1], (cameras[:, 1:2] - cameras[:, :1]).repeat(11, 1), atol=1e-5
    )
    assert (np.linalg.norm(cameras[:, -1] - cameras[:, 0], axis=-1) > 0.05).any()
    turns = Rotation.from_quat(np.roll(videos["camera_quaternions"].reshape(-1, 4), -1, axis=-1))
    np.testing.assert_allclose(turns.apply([0, 0, -1]), -(cameras / distance[..., None]).reshape(-1, 3), atol=1e-5)
    assert (turns.apply([0, 1, 0])[:, 2] > 0).all()
    np.testing.assert_allclose(turns.apply([1, 0, 0])[:, 2], 0.0, atol=1e-6)
    still = whole(small().simulated("train"), [0]).objects["camera_positions"][0]
    assert torch.equal(still, still[:1].expand_as(still))


def test_motion_agrees_with_velocities_and_quaternions_with_angular_velocities() -> None:
    # in free flight
    law = SceneLaw(num_objects=(1, 1), spread=5.0)
    for seed in range(5):
        scene = law.draw(np.random.default_rng(seed))
        scene.positions[0, 2] = 40.0
        motion = simulate(scene, 3)
        np.testing.assert_allclose(
            np.diff(motion.positions[:, 0, :2], axis=0) * FRAME_RATE, scene.velocities[[0, 0], :2]
        )
        np.testing.assert_allclose(motion.velocities[:, 0, 2], -10.0 * np.arange(3) / FRAME_RATE, atol=1e-9)
    scene = SceneLaw(num_objects=(6, 6), spread=2.5).draw(np.random.default_rng(0))
    motion = simulate(scene, 24)
    turning = np.linalg.norm(motion.angular_velocities, axis=-1)
    before, after = (
        Rotation.from_quat(np.roll(part.reshape(-1, 4), -1, axis=-1))
        for part in (motion.quaternions[:-1], motion.quaternions[1:])
    )
    between = (after * before.inv()).as_rotvec().reshape(23, 6, 3) * FRAME_RATE
    steady = np.linalg.norm(motion.angular_velocities[1:] - motion.angular_velocities[:-1], axis=-1) < 0.1
    steady &= (turning[1:] > 0.5) & (turning[1:] < 10)
    assert steady.sum() > 5
    np.testing.assert_allclose(between[steady], motion.angular_velocities[1:][steady], atol=0.15)


def test_objects_start_apart_lose_energy_and_hardly_sink_into_floor_or_each_other() -> None:
    law = SceneLaw(num_objects=(3, 8), spread=3.5)
    for seed in range(12):
        scene = law.draw(np.random.default_rng(seed))
        motion = simulate(scene, 24)
        assert all(np.isfinite(value).all() for value in vars(motion).values())
        halves = scene.scales / 2
        axes = Rotation.from_quat(np.roll(motion.quaternions.reshape(-1, 4), -1, axis=-1)).as_matrix()
        upright = abs(axes.reshape(24, -1, 3, 3)[:, :, 2])
        reach = np.where(
            scene.shapes == 0,
            upright.sum(-1),
            np.where(scene.shapes == 1, upright[..., 2] + np.sqrt(np.maximum(0, 1 - upright[..., 2] ** 2)), 1.0),
        )
        lowest = motion.positions[..., 2] - reach * halves
        assert lowest[0].min() > 0
        assert lowest.min() > -0.15
        assert np.median(lowest[-1]) < 0.1  # down by then
        balls = np.flatnonzero(scene.shapes == SPHERE)
        gaps = np.linalg.norm(motion.positions[:, balls, None] - motion.positions[:, None, balls], axis=-1)
        gaps = gaps - halves[balls, None] - halves[balls] + 9.0 * np.eye(len(balls))
        assert gaps.min(initial=9.0) > -0.15
        energy = scene.masses * (0.5 * (motion.velocities**2).sum(-1) + 10.0 * motion.positions[..., 2])
        assert energy.sum(1).max() < 1.05 * energy[0].sum()
        assert energy[-1].sum() < energy[0].sum()


def kept_files(own_cache: Path) -> list[str]:
    return sorted(path.name for path in (own_cache / "MOViLike").rglob("*") if path.is_file())


def test_videos_are_made_at_their_first_reading_and_kept_as_they_were_simulated(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    data = small(depth=True)
    dataset = data.dataset("train")
    assert "simulating a-16-train while it is read (0 of 5 videos are there)" in capfd.readouterr().err
    assert kept_files(own_cache) == ["0.safetensors"]  # which compiles, before there are workers
    batch = dataset.clips([0, 1])  # type: ignore[attr-defined]
    read = {0, *batch.objects["video"].tolist()}
    assert kept_files(own_cache) == [f"{video}.safetensors" for video in sorted(read)]
    batch = clips(data, "train", list(range(5)))
    assert f"({len(read)} of 5 videos are there)" in capfd.readouterr().err
    videos, starts = batch.objects["video"].tolist(), batch.objects["first_frame"].tolist()
    for name, value in everything(data.simulated("train").read(videos, starts, 2)).items():
        assert torch.equal(value, everything(batch)[name]), name
        assert value.dtype == everything(batch)[name].dtype
    monkeypatch.setattr(SimulatedVideos, "video", lambda *_: pytest.fail("they are there"))
    again = clips(small(depth=True, num_frames=4), "train", list(range(5)))
    order = [again.objects["video"].tolist().index(video) for video in videos]
    assert torch.equal(again.frames[order, starts], batch.frames[:, 0])
    assert capfd.readouterr().err == ""
    made = [path.name for path in (own_cache / "MOViLike").iterdir()]
    assert len(made) == 1
    assert made[0].startswith("a-16-train-")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_workers_and_processes_share_what_they_make_and_a_kill_leaves_no_torn_video(own_cache: Path) -> None:
    alone = clips(small(scene_seed=7), "train", list(range(5)))
    expected, kept = digest(alone), kept_files(own_cache)
    for path in list((own_cache / "MOViLike").rglob("[1-4].safetensors")):
        path.rename(path.with_name(f".{path.name}.0123abcd.partial"))  # as a kill while it was written leaves it
    data = small(scene_seed=7, loader=LoaderOptions(batch_size=5, num_workers=2, train_size=10))
    with ThreadPoolExecutor(2) as pool:
        others = pool.map(lambda _: clips(small(scene_seed=7), "train", list(range(5))), range(2))
        first, second = data.train_dataloader()
    assert [digest(batch) for batch in others] == [expected] * 2
    assert digest(replace(first, index=None)) == expected
    assert sorted(second.objects["video"].tolist()) == list(range(5))
    assert [name for name in kept_files(own_cache) if not name.startswith(".")] == kept


def test_a_whole_cache_of_an_earlier_version_is_read_and_a_damaged_video_is_named(own_cache: Path) -> None:
    data = small(scene_seed=8)
    data.dataset("val")
    (folder,) = (own_cache / "MOViLike").iterdir()
    (folder / "1.safetensors").write_bytes((folder / "0.safetensors").read_bytes()[:-9])
    with pytest.raises(DataFilesError, match=r"1.safetensors cannot be read or written .*: delete it"):
        clips(data, "val", [1])
    shutil.rmtree(folder)
    data.prepare(folder.parent, lambda *_: None)
    (folder.parent / "validation").rename(folder)
    assert isinstance(data.cache("val"), ClipCache)
    assert digest(clips(data, "val", [0, 1])) == digest(whole(data.simulated("val"), [0, 1]))


def test_prepared_folders_are_read_and_say_what_they_cannot_give(tmp_path: Path, own_cache: Path) -> None:
    reported: list[tuple[str, int, int]] = []
    small().prepare(tmp_path, lambda *report: reported.append(report))
    assert {report for report in reported if report[1] == report[2]} == {
        ("train", 5, 5),
        ("validation", 2, 2),
        ("test", 2, 2),
    }
    path = str(tmp_path)
    assert torch.equal(clips(small(path=path), "val", [0]).frames, clips(small(), "val", [0]).frames)
    assert len(small(path=path, val_videos=1).dataset("val")) == 1  # type: ignore[arg-type]
    with pytest.raises(DataFilesError, match=r"prepared with level a, and level is cam: set data.level to a"):
        small(path=path, level="cam").dataset("val")
    with pytest.raises(DataFilesError, match=r"prepared with lowest_camera 30.0, and lowest_camera is 60.0: set"):
        small(path=path, lowest_camera=60).dataset("val")
    with pytest.raises(DataFilesError, match=r"prepared with orbit 0.0, and orbit is 2.0: set"):
        small(path=path, orbit=2).dataset("val")
    with pytest.raises(DataFilesError, match="prepared without depth"):
        small(path=path, depth=True).dataset("val")
    with pytest.raises(DataFilesError, match=r"has 5 videos and 6 are asked for: set train_videos to that or less"):
        small(path=path, train_videos=6).dataset("train")
    with pytest.raises(DataFilesError, match=r"there is no cache at"):
        small(path=path + "x").dataset("train")
    with pytest.raises(DataFilesError, match=r"holds a cache of something else: scene_seed is 0 and 3 is asked for"):
        small(scene_seed=3).prepare(tmp_path, lambda *_: None)
    assert ClipCache(tmp_path / "train").description["set"] == "MOViLike"


def test_videos_of_the_usual_camera_keep_the_name_that_they_had() -> None:
    assert small().version == small(lowest_camera=30, orbit=0).version
    assert len({small().version, small(lowest_camera=60).version, small(orbit=2).version}) == 3
    assert MOViLike().version == "9457152f714e783a"
