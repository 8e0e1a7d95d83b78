"""Levels of MOViLike: what scenes are drawn from."""

from __future__ import annotations

import math

import numpy as np

from slotbench.data.movi_like.scenes import COLORS, SceneLaw


def test_the_hard_level_has_one_palette_a_camera_that_moves_and_a_low_lamp() -> None:
    scenes = [SceneLaw("hard").draw(np.random.default_rng(seed)) for seed in range(20)]
    moving = [SceneLaw("cam").draw(np.random.default_rng(seed)) for seed in range(20)]
    for scene, other in zip(scenes, moving, strict=True):
        assert (scene.textures[:, 0] > 0).all()
        np.testing.assert_array_equal(scene.colors[1:, 0], COLORS[scene.color_labels])
        assert (np.abs(scene.colors[:, :, None] - COLORS).sum(-1).min(-1) == 0).all()
        np.testing.assert_array_equal(scene.cameras, other.cameras)
        np.testing.assert_array_equal(scene.positions, other.positions)
        assert scene.lamp[2] < np.linalg.norm(scene.lamp[:2]) / 2  # about 20 degrees above the floor
    turns = np.array([math.atan2(scene.lamp[1], scene.lamp[0]) for scene in scenes])
    assert len(np.unique(np.floor(turns / (math.pi / 2)))) == 4  # from every side


def test_a_camera_that_stands_high_sees_the_same_scenes_from_above() -> None:
    for seed in range(30):
        usual, high = (SceneLaw("cam", lowest_camera=least).draw(np.random.default_rng(seed)) for least in (30, 65))
        np.testing.assert_array_equal(usual.positions, high.positions)
        heights = high.cameras[:, 2] / np.linalg.norm(high.cameras, axis=1)
        assert (heights >= math.sin(math.radians(65)) - 1e-9).all()
    lowest = min(SceneLaw().draw(np.random.default_rng(seed)).cameras[0, 2] for seed in range(30))
    assert lowest < 9 * math.sin(math.radians(45))


def test_a_camera_that_circles_keeps_its_height_and_distance_and_the_scene() -> None:
    still, circling = SceneLaw(), SceneLaw(orbit=-30)
    scene = circling.draw(np.random.default_rng(0))
    np.testing.assert_array_equal(scene.cameras, still.draw(np.random.default_rng(0)).cameras)
    path = circling.camera_path(scene, 13)
    np.testing.assert_allclose(path[:, 2], scene.cameras[0, 2])
    np.testing.assert_allclose(np.linalg.norm(path, axis=1), np.linalg.norm(scene.cameras[0]))
    np.testing.assert_allclose(path[12], path[0], atol=1e-12)
    turns = np.diff(np.unwrap(np.arctan2(path[:, 1], path[:, 0])))
    np.testing.assert_allclose(turns, np.radians(-30))
    np.testing.assert_array_equal(still.camera_path(scene, 3), scene.cameras[[0, 0, 0]])
