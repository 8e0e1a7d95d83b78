"""Images of the compiled ray-caster are those of the readable one, and both are those of geometry done otherwise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ray_reference import render_reference
from scipy.spatial.transform import Rotation

from slotbench.data.movi_like.ray_caster import Film, Stage, render
from slotbench.data.movi_like.ray_kernel import BOX, CONE, CUBE, CYLINDER, SPHERE
from slotbench.data.movi_like.videos import camera_quaternions

PLAIN_GLOSS = (1.0, 0.0, 0.0, 1.0)


def matrices(quaternions: np.ndarray) -> np.ndarray:
    """From w x y z, by another library."""
    return Rotation.from_quat(np.roll(quaternions, -1, axis=-1).reshape(-1, 4)).as_matrix()


def stage(
    shapes: list[int],
    positions: list[list[float]],
    halves: list[float],
    camera: tuple[float, float, float] = (5.0, -4.0, 5.0),
    turns: np.ndarray | None = None,
) -> Stage:
    """One frame of plain white objects on a grey floor, the lamp high above the origin."""
    count = len(shapes)
    colors = np.ones((count + 1, 2, 3))
    colors[0] = 0.5
    cameras = np.array([camera])
    return Stage(
        cameras=cameras,
        camera_rotations=matrices(camera_quaternions(cameras)),
        width=0.9,
        shapes=np.array(shapes, np.int64),
        halves=np.array(halves, np.float64),
        positions=np.array(positions, np.float64).reshape(1, count, 3),
        rotations=np.eye(3)[None, None].repeat(count, 1) if turns is None else turns[None],
        colors=colors,
        textures=np.zeros((count + 1, 6)),
        gloss=np.array([PLAIN_GLOSS] * (count + 1)),
        light=np.array([0.0, 0.0, 50.0]),
    )


def random_stage(seed: int) -> Stage:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(0, 6))
    turns = Rotation.random(count, random_state=seed).as_matrix() if count else np.zeros((0, 3, 3))
    made = stage(
        rng.integers(0, 4, count).tolist(),
        rng.uniform([-2, -2, 0], [2, 2, 3], (count, 3)).tolist(),
        rng.uniform(0.2, 0.9, count).tolist(),
        tuple(rng.uniform([-6, -6, 0.3], [6, 6, 7], 3).tolist()),
        turns,
    )
    textures = np.zeros((count + 1, 6))
    textures[:, 0], textures[:, 1:3] = rng.integers(0, 4, count + 1), rng.uniform(0.3, 1.0, (count + 1, 2))
    textures[:, 3:] = rng.normal(size=(count + 1, 3))
    return replace(
        made,
        colors=rng.random((count + 1, 2, 3)),
        textures=textures,
        gloss=np.concatenate([rng.random((count + 1, 3)), rng.integers(1, 7, (count + 1, 1))], axis=1),
        light=rng.uniform([-5, -5, 1], [5, 5, 9], 3),
    )


def rays(made: Stage, side: int) -> np.ndarray:
    """Directions "rows columns 3" through the centres of pixels."""
    at = (np.arange(side) + 0.5) / side - 0.5
    across, down = np.meshgrid(at, at)
    local = np.stack([across * made.width, -down * made.width, -np.ones_like(across)], axis=-1)
    local /= np.linalg.norm(local, axis=-1, keepdims=True)
    return np.einsum("ij,rcj->rci", made.camera_rotations[0], local)


def points(made: Stage, film: Film) -> np.ndarray:
    """Where the rays through the centres of pixels end."""
    return made.cameras[0] + film.depth[0, ..., None].astype(np.float64) * rays(made, film.masks.shape[-1])


def with_boxes(made: Stage, seed: int) -> Stage:
    """The stage with boxes, some of them long, in the place of cubes."""
    shapes = np.where(made.shapes == CUBE, BOX, made.shapes)
    half_sides = np.random.default_rng(seed).uniform(0.1, 4.0, (len(shapes), 3))
    return replace(made, shapes=shapes, halves=np.where(shapes == BOX, 1.0, made.halves), half_sides=half_sides)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    samples=st.sampled_from([1, 2, 3]),
    side=st.sampled_from([1, 7, 16]),
    boxes=st.booleans(),
)
def test_compiled_and_readable_images_are_the_same(seed: int, samples: int, side: int, boxes: bool) -> None:
    made = with_boxes(random_stage(seed), seed) if boxes else random_stage(seed)
    fast, readable = render(made, side, samples), render_reference(made, side, samples)
    np.testing.assert_array_equal(fast.masks, readable.masks)
    np.testing.assert_allclose(fast.depth, readable.depth, rtol=1e-6)
    # a sample on the very edge of a check or a shadow may fall to the other side
    difference = abs(fast.frames.astype(int) - readable.frames.astype(int))
    assert (difference > 1).mean() <= 0.005


@pytest.mark.parametrize("shape", [CUBE, CYLINDER, CONE])
def test_rays_end_on_the_surface_of_turned_solids_and_not_before_it(shape: int) -> None:
    turns = Rotation.random(1, random_state=3).as_matrix()
    made = stage([shape], [[0.2, -0.1, 1.5]], [0.9], turns=turns)
    film = render(made, 40)

    def inside(places: np.ndarray, half: float) -> np.ndarray:
        local = (places - made.positions[0, 0]) @ turns[0]
        if shape == CUBE:
            return (abs(local) <= half).all(-1)
        radius = half if shape == CYLINDER else (half - local[..., 2]) / 2
        return (np.linalg.norm(local[..., :2], axis=-1) <= radius) & (abs(local[..., 2]) <= half)

    ends = points(made, film)[film.masks[0] == 1]
    assert len(ends) > 80
    assert inside(ends, 0.9 + 1e-5).all()
    assert not inside(ends, 0.9 - 1e-5).any()
    # walking along every ray finds the solid where the mask says so
    ways = rays(made, 40)
    steps = np.arange(4.0, 12.0, 0.01)[:, None, None, None]
    met = inside(made.cameras[0] + steps * ways, 0.9).any(0)
    assert (met != (film.masks[0] == 1)).mean() < 0.005


def test_averaging_samples_softens_edges_of_colours_and_not_of_masks() -> None:
    made = stage([SPHERE], [[0.0, 0.0, 1.0]], [1.0])
    made.colors[1] = [0.9, 0.1, 0.1]
    one, many = render(made, 32, 1), render(made, 32, 4)
    np.testing.assert_array_equal(one.masks, many.masks)
    np.testing.assert_array_equal(one.depth, many.depth)
    assert len(np.unique(many.frames[0, 1])) > len(np.unique(one.frames[0, 1]))
    # the mean of sixteen images taken between the pixels is the same light
    fine = render(made, 128, 1).frames.astype(float) / 255
    light = (fine**2).reshape(1, 3, 32, 4, 32, 4).mean((3, 5))
    np.testing.assert_allclose(np.sqrt(light) * 255, many.frames, atol=1.5)


@pytest.mark.parametrize("width", [0.9, 2.5])
def test_a_video_of_a_camera_that_stands_still_has_the_images_of_its_frames_alone(width: float) -> None:
    # the ground is painted once there, and later only what objects and their shadows may touch
    for seed in range(12):
        rng = np.random.default_rng(seed)
        made = [replace(random_stage(seed), width=width)]
        count = len(made[0].shapes)
        for _ in range(3):
            places = rng.uniform([-6, -6, -1], [6, 6, 7], (1, count, 3))
            made.append(replace(made[0], positions=places))
        names = ("cameras", "camera_rotations", "positions", "rotations")
        joined = {name: np.concatenate([getattr(one, name) for one in made]) for name in names}
        video = render(replace(made[0], **joined), 16, 2)
        for time, one in enumerate(made):
            alone = render(one, 16, 2)
            np.testing.assert_array_equal(video.masks[time], alone.masks[0])
            np.testing.assert_array_equal(video.depth[time], alone.depth[0])
            np.testing.assert_array_equal(video.frames[time], alone.frames[0])


def test_a_wall_beside_the_camera_is_seen_and_what_is_behind_it_is_not() -> None:
    wall = stage([BOX], [[0.0, 1.0, 0.5]], [1.0], (-4.0, 0.0, 0.9))
    made = replace(wall, half_sides=np.array([[8.0, 0.1, 0.5]]), width=2.0)
    film = render(made, 32)
    assert (film.masks[0, :, :6] == 1).any(0).all()  # to the left, up to the edge of the image
    assert (film.masks[0, :, 17:] == 0).all()
    there = points(made, film)[film.masks[0] == 1]
    np.testing.assert_allclose(there[:, 1].min(), 0.9, atol=1e-3)
    behind = replace(made, positions=np.array([[[-20.0, 1.0, 0.5]]]))
    assert not render(behind, 32).masks.any()
