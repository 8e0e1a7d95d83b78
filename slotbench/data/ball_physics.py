"""Balls in a box: where they start, how they move and collide, and which pixels they cover.

Source: SlotSSM, section 7.1, after the RTRBM script behind the R-NEM data; constants as in that script.
"""

from __future__ import annotations

import importlib.util
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from jaxtyping import Float, UInt8

from slotbench.data import ball_kernel
from slotbench.data.ball_kernel import BOX, SUBSTEPS

__all__ = ["BallWorld", "Balls", "Kernel", "Trajectory", "simulate"]

Kernel = Literal["auto", "numba", "numpy"]

_SPEED = 0.5  # Frobenius norm of the matrix of all start velocities, in box units per frame
_POINTS_PER_BALL = 64
_ATTEMPTS = 200


@dataclass(frozen=True)
class Balls:
    """State of all balls at one moment: positions and velocities in box units (per frame), radii and masses."""

    positions: Float[np.ndarray, "objects 2"]
    velocities: Float[np.ndarray, "objects 2"]
    radii: Float[np.ndarray, " objects"]
    masses: Float[np.ndarray, " objects"]


@dataclass(frozen=True)
class Trajectory:
    """What the balls did, and the picture of it: `ids` is 0 for background and i + 1 for ball i."""

    positions: Float[np.ndarray, "frames objects 2"]
    velocities: Float[np.ndarray, "frames objects 2"]
    ids: UInt8[np.ndarray, "frames height width"]


@dataclass(frozen=True)
class BallWorld:
    """The distribution that start states are drawn from.

    Args:
        num_balls: balls per clip.
        radii: radii to draw from, uniformly and for each ball, in units of a box of side 10.
        masses: masses to draw from likewise.
        mass_follows_radius: a ball that draws the i-th radius also has the i-th mass, so that its mass can be seen; otherwise
            the two draws are independent.

    Raises:
        ValueError: for sizes that cannot be, and for balls that do not fit into the box.
    """

    num_balls: int = 4
    radii: tuple[float, ...] = (1.2, 1.5)
    masses: tuple[float, ...] = (1.0, 6.0)
    mass_follows_radius: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.num_balls <= 255:
            raise ValueError(f"num_balls is {self.num_balls}; expected 1 to 255 (an instance id is one byte)")
        for name, values in (("radii", self.radii), ("masses", self.masses)):
            if not values or not all(math.isfinite(value) and value > 0 for value in values):
                raise ValueError(f"{name} is {list(values)}; expected one or more positive numbers")
        if self.mass_follows_radius and len(self.radii) != len(self.masses):
            raise ValueError(
                f"mass_follows_radius pairs {len(self.radii)} radii with {len(self.masses)} masses; give as many of each"
            )
        # the worst case must fit, and it is found out here, not after an hour of training
        self._place(np.random.default_rng(0), [max(self.radii)] * self.num_balls)

    def draw(self, generator: np.random.Generator) -> Balls:
        """Draws a start state."""
        which = generator.integers(len(self.radii), size=self.num_balls)
        other = generator.integers(len(self.masses), size=self.num_balls)
        radii = np.array(self.radii)[which]
        masses = np.array(self.masses)[which if self.mass_follows_radius else other]
        velocities = generator.standard_normal((self.num_balls, 2))
        velocities *= _SPEED / np.sqrt((velocities * velocities).sum())
        return Balls(self._place(generator, radii.tolist()), velocities, radii, masses)

    def _place(self, generator: np.random.Generator, radii: list[float]) -> Float[np.ndarray, "objects 2"]:
        """Puts ball after ball on a uniform point of [r, 10 - r]^2 where it touches none before it."""
        if max(radii) < BOX / 2:
            for _ in range(_ATTEMPTS):
                placed: list[tuple[float, float]] = []
                points = generator.random((len(radii), _POINTS_PER_BALL, 2)).tolist()
                for radius, candidates in zip(radii, points, strict=True):
                    for across, down in candidates:
                        x = radius + across * (BOX - 2 * radius)
                        y = radius + down * (BOX - 2 * radius)
                        if all(
                            (x - px) * (x - px) + (y - py) * (y - py) >= (radius + pr) * (radius + pr)
                            for (px, py), pr in zip(placed, radii, strict=False)
                        ):
                            placed.append((x, y))
                            break
                    else:
                        break
                if len(placed) == len(radii):
                    return np.array(placed)
        raise ValueError(
            f"found no room for {len(radii)} balls of radius up to {max(radii):g} in a box of {BOX:g} x {BOX:g}; "
            "expected fewer or smaller balls: lower num_balls or radii"
        )


def simulate(balls: Balls, num_frames: int, resolution: int, kernel: Kernel = "auto") -> Trajectory:
    """Moves `balls` through `num_frames` frames, the start being the first, and draws each.

    Two half-steps lie between two frames; in each, balls move, then turn at the walls, then those that overlap and approach
    exchange momentum along the line between them. A ball covers a pixel if the pixel's centre is at most one radius away;
    of two balls on one pixel, the one with the lower index is seen. Row is y, column is x.

    Args:
        balls: the state in the first frame.
        num_frames: frames to make.
        resolution: pixels per side.
        kernel: "numba" compiles; "numpy" is the same without; "auto" takes numba where it is installed. The bytes are the same.
    """
    # pixel centres come from one place, so that the two kernels compare the same numbers
    centres = (np.arange(resolution) + 0.5) * (BOX / resolution)
    num_balls = len(balls.radii)
    positions = np.empty((num_frames, num_balls, 2))
    velocities = np.empty((num_frames, num_balls, 2))
    ids = np.zeros((num_frames, resolution, resolution), dtype=np.uint8)
    arguments = (balls.positions, balls.velocities, balls.radii, balls.masses, centres, positions, velocities, ids)
    if kernel == "numba" or (kernel == "auto" and _has_numba()):
        ball_kernel.compiled()(*arguments)
    else:
        _simulate(*arguments)
    return Trajectory(positions, velocities, ids)


@lru_cache(maxsize=1)
def _has_numba() -> bool:
    return importlib.util.find_spec("numba") is not None


def _simulate(
    start: np.ndarray,
    start_velocity: np.ndarray,
    radii: np.ndarray,
    masses: np.ndarray,
    centres: np.ndarray,
    positions: np.ndarray,
    velocities: np.ndarray,
    ids: np.ndarray,
) -> None:
    """The readable form of the kernel, with its arguments: physics in Python floats, drawing in numpy."""
    x, v, r, m = start.tolist(), start_velocity.tolist(), radii.tolist(), masses.tolist()
    for frame in range(len(positions)):
        if frame > 0:
            for _ in range(SUBSTEPS):
                _step(x, v, r, m)
        positions[frame], velocities[frame] = x, v
    for i in reversed(range(len(r))):
        beside = centres - positions[:, i, :1]
        below = centres - positions[:, i, 1:]
        squared = (below * below)[:, :, None] + (beside * beside)[:, None, :]
        ids[squared <= r[i] * r[i]] = i + 1


def _step(x: list[list[float]], v: list[list[float]], r: list[float], m: list[float]) -> None:
    """One sub-step, in place."""
    for position, velocity, radius in zip(x, v, r, strict=True):
        for axis in (0, 1):
            position[axis] += (1.0 / SUBSTEPS) * velocity[axis]
            if position[axis] - radius < 0.0:
                velocity[axis] = abs(velocity[axis])
            if position[axis] + radius > BOX:
                velocity[axis] = -abs(velocity[axis])
    for i in range(len(x)):
        for j in range(i + 1, len(x)):
            across, down = x[j][0] - x[i][0], x[j][1] - x[i][1]
            squared = across * across + down * down
            reach = r[i] + r[j]
            if squared >= reach * reach or squared == 0.0:
                continue
            distance = math.sqrt(squared)
            across, down = across / distance, down / distance
            vi = v[i][0] * across + v[i][1] * down
            vj = v[j][0] * across + v[j][1] * down
            if vi - vj <= 0.0:  # already parting: without this they would stick
                continue
            new_vj = (2.0 * m[i] * vi + vj * (m[j] - m[i])) / (m[i] + m[j])
            new_vi = new_vj + vj - vi
            v[i][0] += (new_vi - vi) * across
            v[i][1] += (new_vi - vi) * down
            v[j][0] += (new_vj - vj) * across
            v[j][1] += (new_vj - vj) * down
