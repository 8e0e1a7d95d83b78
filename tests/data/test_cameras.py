"""Matrices and rays of posed cameras are those of a plain loop."""

from __future__ import annotations

import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from slotbench.data.cameras import in_frame_of, look_at, pixel_rays, turntable


def random_cameras(seed: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return look_at(*(torch.randn(*shape, 3, generator=generator, dtype=torch.float64) for _ in range(2)))


@given(seed=st.integers(0, 10**6), height=st.integers(1, 4), width=st.integers(1, 4), focal=st.floats(0.5, 20))
def test_rays_are_those_of_a_loop_over_pixels(seed: int, height: int, width: int, focal: float) -> None:
    cameras = random_cameras(seed, 2, 3)
    rays = pixel_rays(cameras, focal, height, width)
    assert rays.shape == (2, 3, 6, height, width)
    for clip, view in np.ndindex(2, 3):
        matrix = cameras[clip, view].numpy()
        for row, column in np.ndindex(height, width):
            point = matrix @ np.array([column + 0.5 - width / 2, -(row + 0.5 - height / 2), -focal, 1.0])
            way = point[:3] - matrix[:3, 3]
            expected = np.concatenate([matrix[:3, 3], way / np.linalg.norm(way)])
            np.testing.assert_allclose(rays[clip, view, :, row, column].numpy(), expected, atol=1e-12)


@given(seed=st.integers(0, 10**6))
def test_cameras_look_at_their_target_upright_and_have_rotations(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    centre, target = torch.randn(2, 5, 3, generator=generator, dtype=torch.float64)
    cameras = look_at(centre, target)
    to_target = target - centre
    torch.testing.assert_close(-cameras[:, :3, 2], to_target / to_target.norm(dim=-1, keepdim=True))
    torch.testing.assert_close(cameras[:, :3, 3], centre)
    torch.testing.assert_close(cameras[:, 2, 0], torch.zeros(5, dtype=torch.float64))
    assert (cameras[:, 2, 1] > 0).all()
    rotation = cameras[:, :3, :3]
    torch.testing.assert_close(rotation @ rotation.mT, torch.eye(3, dtype=torch.float64).expand(5, 3, 3))
    torch.testing.assert_close(torch.linalg.det(rotation), torch.ones(5, dtype=torch.float64))


@given(seed=st.integers(0, 10**6))
def test_rays_of_another_frame_are_the_same_rays(seed: int) -> None:
    cameras = random_cameras(seed, 2, 3)
    posed = in_frame_of(cameras, cameras[:, :1])
    torch.testing.assert_close(posed[:, 0], torch.eye(4, dtype=torch.float64).expand(2, 4, 4), atol=1e-9, rtol=0)
    torch.testing.assert_close(cameras[:, :1] @ posed, cameras)


def test_a_turntable_goes_around_its_target_in_even_steps() -> None:
    cameras = turntable(8, radius=5.0, elevation=30.0, target=(1.0, 2.0, 3.0))
    away = cameras[:, :3, 3] - torch.tensor([1.0, 2.0, 3.0])
    torch.testing.assert_close(away.norm(dim=-1), torch.full((8,), 5.0))
    torch.testing.assert_close(away[:, 2], torch.full((8,), 2.5))
    torch.testing.assert_close(cameras[:, :3, 2], away / 5.0)
    steps = (away - away.roll(1, 0)).norm(dim=-1)
    torch.testing.assert_close(steps, torch.full((8,), 10 * math.cos(math.radians(30)) * math.sin(math.pi / 8)))
