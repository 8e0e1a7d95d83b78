"""Balls in a box: where they start, how they move and collide, and which pixels they cover.

Source: SlotSSM, section 7.1, after the RTRBM script behind the R-NEM data; constants as in that script.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from slotbench.data.compiled import compiled

__all__ = ["BOX", "SUBSTEPS", "BallWorld", "Balls", "Trajectory", "covered", "object_log", "simulate"]

BOX = 10.0
"""Side of the box, in the units of radii and positions."""

SUBSTEPS = 2
"""Steps of 1 / SUBSTEPS frame each between two frames."""

_SPEED = 0.5  # Frobenius norm of the matrix of a clip's start velocities, in box units per frame
_POINTS_PER_BALL = 100
_ATTEMPTS = 1000


@dataclass(frozen=True)
class Balls:
    """The balls of some clips at one moment: positions, velocities (per frame) and radii in box units, and masses."""

    positions: Float[np.ndarray, "batch objects 2"]
    velocities: Float[np.ndarray, "batch objects 2"]
    radii: Float[np.ndarray, "batch objects"]
    masses: Float[np.ndarray, "batch objects"]


@dataclass(frozen=True)
class Trajectory:
    """Trajectories of balls and their image: `ids` is 0 for background and i + 1 for ball i."""

    positions: Float[np.ndarray, "batch frames objects 2"]
    velocities: Float[np.ndarray, "batch frames objects 2"]
    ids: UInt8[np.ndarray, "batch frames height width"]


@dataclass(frozen=True)
class BallWorld:
    """The distribution that start states are drawn from.

    Args:
        num_balls: balls per clip.
        radii: radii to draw from, uniformly and for each ball, in units of a box of side 10.
        masses: masses to draw from likewise.
        mass_follows_radius: a ball that draws the i-th radius also has the i-th mass, so that its mass can be seen;
            otherwise the two draws are independent.
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
            raise ValueError("mass_follows_radius pairs the i-th mass with the i-th radius; expected as many of each")
        # the worst case must fit with ease, and it is found out here, not after an hour of training
        self._place(np.random.default_rng(0), [max(self.radii)] * self.num_balls, attempts=_ATTEMPTS // 5)

    def draw(self, generators: list[np.random.Generator]) -> Balls:
        """Draws one start state from each generator."""
        states = [self._draw(generator) for generator in generators]
        return Balls(*(np.stack(values) for values in zip(*states, strict=True)))

    def _draw(self, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Positions, velocities, radii and masses of one clip."""
        which = generator.integers((len(self.radii), len(self.masses)), size=(self.num_balls, 2))
        radii = np.array(self.radii)[which[:, 0]]
        masses = np.array(self.masses)[which[:, 0 if self.mass_follows_radius else 1]]
        velocities = generator.standard_normal((self.num_balls, 2))
        velocities *= _SPEED / math.sqrt((velocities * velocities).sum())
        return self._place(generator, radii.tolist(), _ATTEMPTS), velocities, radii, masses

    def _place(self, generator: np.random.Generator, radii: list[float], attempts: int) -> np.ndarray:
        """Places ball after ball at a uniform point of [r, 10 - r]^2 where it touches none before it."""
        if max(radii) < BOX / 2:
            for _attempt in range(attempts):
                placed: list[tuple[float, float, float]] = []
                for radius in radii:
                    for _ in range(_POINTS_PER_BALL):
                        # one by one, which is quicker than an array of two with the same numbers
                        x = radius + generator.random() * (BOX - 2 * radius)
                        y = radius + generator.random() * (BOX - 2 * radius)
                        for u, v, r in placed:
                            if (x - u) ** 2 + (y - v) ** 2 < (radius + r) ** 2:
                                break
                        else:
                            placed.append((x, y, radius))
                            break
                    else:
                        break
                if len(placed) == len(radii):
                    return np.array(placed)[:, :2]
        raise ValueError(
            f"found no room for num_balls={len(radii)} with radii up to {max(radii):g} in a box of {BOX:g} x {BOX:g} "
            f"in {attempts} attempts; expected fewer or smaller balls: lower num_balls or radii"
        )


def object_log(balls: Balls, trajectory: Trajectory) -> dict[str, Tensor]:
    """The log of a sample's balls: "positions" and "velocities" by frame, "radii" and "masses"."""
    log = {"positions": trajectory.positions, "velocities": trajectory.velocities}
    log |= {"radii": balls.radii, "masses": balls.masses}
    # the simulator's doubles stay here: not every device has them
    return {name: torch.from_numpy(values.astype(np.float32)) for name, values in log.items()}


def covered(
    positions: Float[Tensor, "batch time objects 2"], radii: Float[Tensor, "batch objects"], resolution: int
) -> Bool[Tensor, "batch time height width"]:
    """Which pixels the balls cover, by the rule of `simulate`."""
    centres = (torch.arange(resolution, dtype=positions.dtype) + 0.5) * (BOX / resolution)
    across, down = ((centres - positions[..., axis, None]).square() for axis in (0, 1))
    squared = down[..., :, None] + across[..., None, :]
    return (squared <= radii.square()[:, None, :, None, None]).any(dim=2)


def simulate(balls: Balls, num_frames: int, resolution: int) -> Trajectory:
    """Moves `balls` through `num_frames` frames, the first being where they are, and draws each.

    Two half-steps lie between two frames; in each, the balls move, then turn at the walls, then those that overlap and
    approach exchange momentum along the line between them. A ball covers a pixel if the pixel's centre is at most one
    radius away; of two balls on one pixel, the one with the lower index is seen. Row is y, column is x.
    """
    num_clips, num_balls = balls.radii.shape
    centres = (np.arange(resolution) + 0.5) * (BOX / resolution)
    positions = np.empty((num_clips, num_frames, num_balls, 2))
    velocities = np.empty((num_clips, num_frames, num_balls, 2))
    ids = np.zeros((num_clips, num_frames, resolution, resolution), dtype=np.uint8)
    # contiguous, or the kernel would be compiled anew for another layout
    start = [np.ascontiguousarray(a) for a in (balls.positions, balls.velocities, balls.radii, balls.masses)]
    compiled(_simulate)(*start, centres, positions, velocities, ids)
    return Trajectory(positions, velocities, ids)


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
    """Fills `positions`, `velocities` and `ids` of every clip; the order of each sum is part of the data set."""
    num_clips, num_frames, num_balls = positions.shape[0], positions.shape[1], positions.shape[2]
    side = centres.shape[0]
    per_unit = side / BOX
    for clip in range(num_clips):
        x = start[clip].copy()
        v = start_velocity[clip].copy()
        r = radii[clip]
        m = masses[clip]
        for frame in range(num_frames):
            for _ in range(SUBSTEPS if frame > 0 else 0):
                for i in range(num_balls):
                    for axis in range(2):
                        x[i, axis] += (1.0 / SUBSTEPS) * v[i, axis]
                        if x[i, axis] - r[i] < 0.0:
                            v[i, axis] = abs(v[i, axis])
                        if x[i, axis] + r[i] > BOX:
                            v[i, axis] = -abs(v[i, axis])
                for i in range(num_balls):
                    for j in range(i + 1, num_balls):
                        across = x[j, 0] - x[i, 0]
                        down = x[j, 1] - x[i, 1]
                        squared = across * across + down * down
                        reach = r[i] + r[j]
                        if squared >= reach * reach or squared == 0.0:
                            continue
                        distance = math.sqrt(squared)
                        across /= distance
                        down /= distance
                        vi = v[i, 0] * across + v[i, 1] * down
                        vj = v[j, 0] * across + v[j, 1] * down
                        if vi - vj <= 0.0:
                            continue
                        new_vj = (2.0 * m[i] * vi + vj * (m[j] - m[i])) / (m[i] + m[j])
                        new_vi = new_vj + vj - vi
                        v[i, 0] += (new_vi - vi) * across
                        v[i, 1] += (new_vi - vi) * down
                        v[j, 0] += (new_vj - vj) * across
                        v[j, 1] += (new_vj - vj) * down
            positions[clip, frame] = x
            velocities[clip, frame] = v
            # from the last ball to the first, so that of two balls on one pixel the first is seen
            for i in range(num_balls - 1, -1, -1):
                squared_radius = r[i] * r[i]
                # a box a pixel wider than the disc: what counts is the test on the pixel's centre
                left = max(0, int((x[i, 0] - r[i]) * per_unit) - 1)
                right = min(side, int((x[i, 0] + r[i]) * per_unit) + 2)
                top = max(0, int((x[i, 1] - r[i]) * per_unit) - 1)
                bottom = min(side, int((x[i, 1] + r[i]) * per_unit) + 2)
                for row in range(top, bottom):
                    below = centres[row] - x[i, 1]
                    below_squared = below * below
                    for column in range(left, right):
                        beside = centres[column] - x[i, 0]
                        if below_squared + beside * beside <= squared_radius:
                            ids[clip, frame, row, column] = i + 1
