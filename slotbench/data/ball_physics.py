"""Balls in a box: where they start, how they move and collide, and which pixels they cover.

Source: SlotSSM, section 7.1, after the RTRBM script behind the R-NEM data; constants as in that script.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from slotbench.data.ball_kernel import BOX, SUBSTEPS, Kernel, compiled_simulate, use_numba

__all__ = ["BallWorld", "Balls", "Trajectory", "covered", "object_log", "simulate"]

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
    """What the balls did, and the picture of it: `ids` is 0 for background and i + 1 for ball i."""

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
                f"mass_follows_radius pairs the i-th mass with the i-th radius, but there are {len(self.radii)} radii "
                f"and {len(self.masses)} masses; expected as many of each"
            )
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
        """Puts ball after ball on a uniform point of [r, 10 - r]^2 where it touches none before it."""
        if max(radii) < BOX / 2:
            for _attempt in range(attempts):
                placed: list[tuple[float, float, float]] = []
                for radius in radii:
                    for _ in range(_POINTS_PER_BALL):
                        across, down = generator.random(2).tolist()
                        x = radius + across * (BOX - 2 * radius)
                        y = radius + down * (BOX - 2 * radius)
                        if all((x - u) ** 2 + (y - v) ** 2 >= (radius + r) ** 2 for u, v, r in placed):
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
    """What a sample tells about its balls: "positions" and "velocities" by frame, "radii" and "masses"."""
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


def simulate(balls: Balls, num_frames: int, resolution: int, kernel: Kernel = "auto") -> Trajectory:
    """Moves `balls` through `num_frames` frames, the first being where they are, and draws each.

    Two half-steps lie between two frames; in each, the balls move, then turn at the walls, then those that overlap and
    approach exchange momentum along the line between them. A ball covers a pixel if the pixel's centre is at most one
    radius away; of two balls on one pixel, the one with the lower index is seen. Row is y, column is x.

    Args:
        balls: the state in the first frame.
        num_frames: frames to make.
        resolution: pixels per side.
        kernel: "numba" compiles, "numpy" does not, "auto" takes numba where it is installed. All give the same bytes.
    """
    num_clips, num_balls = balls.radii.shape
    # pixel centres come from one place, so that both kernels compare the same numbers
    centres = (np.arange(resolution) + 0.5) * (BOX / resolution)
    positions = np.empty((num_clips, num_frames, num_balls, 2))
    velocities = np.empty((num_clips, num_frames, num_balls, 2))
    ids = np.zeros((num_clips, num_frames, resolution, resolution), dtype=np.uint8)
    run: Callable[..., None] = compiled_simulate() if use_numba(kernel) else _simulate
    # contiguous, or the kernel would be compiled anew for another layout
    start = [np.ascontiguousarray(a) for a in (balls.positions, balls.velocities, balls.radii, balls.masses)]
    run(*start, centres, positions, velocities, ids)
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
    """The readable form of the kernel, with its arguments: physics in Python floats, drawing in numpy."""
    for clip in range(len(positions)):
        x, v, r, m = (values[clip].tolist() for values in (start, start_velocity, radii, masses))
        for frame in range(positions.shape[1]):
            for _ in range(SUBSTEPS if frame > 0 else 0):
                _step(x, v, r, m)
            positions[clip, frame], velocities[clip, frame] = x, v
        for i in reversed(range(len(r))):
            beside = centres - positions[clip, :, i, :1]
            below = centres - positions[clip, :, i, 1:]
            squared = (below * below)[:, :, None] + (beside * beside)[:, None, :]
            ids[clip][squared <= r[i] * r[i]] = i + 1


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
            if vi - vj <= 0.0:  # already parting; exchanging again would make them stick
                continue
            new_vj = (2.0 * m[i] * vi + vj * (m[j] - m[i])) / (m[i] + m[j])
            new_vi = new_vj + vj - vi
            v[i][0] += (new_vi - vi) * across
            v[i][1] += (new_vi - vi) * down
            v[j][0] += (new_vj - vj) * across
            v[j][1] += (new_vj - vj) * down
