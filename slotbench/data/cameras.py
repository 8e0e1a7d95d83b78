"""Posed pin-hole cameras: camera-to-world matrices, the rays of pixels, and paths for pictures.

A camera-to-world matrix is 4 x 4; the columns of its rotation are the camera's right, up and backward, so that it looks
along its own -z, and its last column is the camera's centre. Pixels are square, and the axis goes through the middle of
the image.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["in_frame_of", "look_at", "pixel_rays", "pose", "turntable"]


def pose(rotation: Float[Tensor, "*cameras 3 3"], centre: Float[Tensor, "*cameras 3"]) -> Float[Tensor, "*cameras 4 4"]:
    """Camera-to-world matrices of rotations and centres."""
    last = torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=centre.dtype).expand(*centre.shape[:-1], 1, 4)
    return torch.cat([torch.cat([rotation, centre[..., None]], dim=-1), last], dim=-2)


def look_at(
    centre: Float[Tensor, "*cameras 3"], target: Float[Tensor, "*targets 3"] | None = None
) -> Float[Tensor, "*cameras 4 4"]:
    """Camera-to-world matrices of upright cameras.

    Args:
        centre: where they are, in a world whose z is upwards.
        target: what they look at, one for all or one for each; the origin by default. A camera straight above it has
            the world's x to its right.
    """
    backward = centre if target is None else centre - target
    backward = backward / backward.norm(dim=-1, keepdim=True)
    right = torch.stack([-backward[..., 1], backward[..., 0], torch.zeros_like(backward[..., 0])], dim=-1)
    length = right.norm(dim=-1, keepdim=True)
    ahead = torch.tensor([1.0, 0.0, 0.0], dtype=centre.dtype)
    right = torch.where(length > 1e-9, right / length.clamp_min(1e-9), ahead)
    up = torch.linalg.cross(backward, right)
    return pose(torch.stack([right, up, backward], dim=-1), centre)


def pixel_rays(
    cameras: Float[Tensor, "*cameras 4 4"], focal: float | Float[Tensor, "*focals"], height: int, width: int
) -> Float[Tensor, "*cameras 6 height width"]:
    """Origin and unit direction of the ray through the centre of each pixel, in the world of the matrices.

    Args:
        cameras: camera-to-world matrices.
        focal: focal length in pixels; several broadcast against the cameras.
        height: rows of pixels.
        width: columns of pixels.

    Example:
        >>> pixel_rays(torch.eye(4), focal=1.0, height=1, width=1).flatten().tolist()
        [0.0, 0.0, 0.0, 0.0, 0.0, -1.0]
    """
    kind = {"dtype": cameras.dtype, "device": cameras.device}
    across = torch.arange(width, **kind) + 0.5 - width / 2  # type: ignore[call-overload]
    down = torch.arange(height, **kind) + 0.5 - height / 2  # type: ignore[call-overload]
    length = torch.as_tensor(focal, **kind)[..., None, None].expand(*cameras.shape[:-2], height, width)  # type: ignore[arg-type]
    local = torch.stack([across.expand_as(length), -down[:, None].expand_as(length), -length], dim=-3)
    ways = torch.einsum(
        "...ij,...jhw->...ihw", cameras[..., :3, :3], local * local.square().sum(-3, keepdim=True).rsqrt()
    )
    return torch.cat([cameras[..., :3, 3, None, None].expand_as(ways), ways], dim=-3)


def in_frame_of(
    cameras: Float[Tensor, "*cameras 4 4"], frame: Float[Tensor, "*frames 4 4"]
) -> Float[Tensor, "*both 4 4"]:
    """The matrices with the camera `frame` in the place of the world: its own becomes the identity."""
    rotation, centre = frame[..., :3, :3].transpose(-1, -2), frame[..., :3, 3:]
    return pose(rotation, -(rotation @ centre)[..., 0]) @ cameras


def turntable(
    steps: int, radius: float, elevation: float = 30.0, target: tuple[float, float, float] = (0.0, 0.0, 0.0)
) -> Float[Tensor, "steps 4 4"]:
    """Cameras on a circle around a target that they look at, as a picture that turns needs."""
    turn, rise = torch.arange(steps) * (2 * math.pi / steps), math.radians(elevation)
    around = torch.stack(
        [turn.cos() * math.cos(rise), turn.sin() * math.cos(rise), torch.full_like(turn, math.sin(rise))]
    )
    centre = torch.tensor(target)
    return look_at(centre + radius * around.T, centre)
