"""Scenes of `CATERLike`: the objects, their looks, and their motion in an episode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from slotbench.data.movi_like.scenes import COLORS
from slotbench.errors import DataFilesError

__all__ = ["GOLD", "SHAPES", "Actions", "Episode", "EpisodeLaw", "Moves", "Shape", "SnitchState", "cells_of"]

Actions = Literal["all", "max2"]
Moves = Literal["free", "released"]
"""Of how near objects may come and when moves begin and end: our rule, or that of CATER's released generator."""
Shape = Literal["cube", "cylinder", "sphere", "cone"]
SHAPES: tuple[Shape, ...] = get_args(Shape)
"""By label; the snitch has the next one."""

GOLD = np.array([1.0, 0.78, 0.2])
"""The colour of the snitch, which no other object has."""

HALF_FLOOR = 3.0

_CONE, _SNITCH = SHAPES.index("cone"), len(SHAPES)
_SIZES = np.array([0.25, 0.5, 0.75])  # small, medium, large: radii as seen from above
_SNITCH_RADIUS = 0.3
_GAP, _TRIES, _RESTARTS = 0.25, 50, 200
_SPARE = 30  # frames at the end in which no round of the released moves begins


class SnitchState:
    """Values of `objects["snitch_state"]`, one for each step."""

    VISIBLE, OCCLUDED, CONTAINED, CARRIED = 0, 1, 2, 3


@dataclass(frozen=True)
class Episode:
    """A video as objects and their motion, frame by frame; object 0 is the snitch.

    Attributes:
        shapes: 0 cube, 1 cylinder, 2 sphere, 3 cone, 4 the snitch "objects".
        sizes: 0 small, 1 medium, 2 large; the snitch is 0 "objects".
        materials: 0 metal, 1 rubber "objects".
        color_labels: place in `COLORS` "objects"; -1 for the snitch, which is gold.
        radii: as seen from above "objects".
        places: x, y of the centre and z of the lowest point "time objects 3".
        turns: about the vertical, in radians "time objects".
        holders: the cone that covers an object directly, -1 for none "time objects".
    """

    shapes: np.ndarray
    sizes: np.ndarray
    materials: np.ndarray
    color_labels: np.ndarray
    radii: np.ndarray
    places: np.ndarray
    turns: np.ndarray
    holders: np.ndarray

    @property
    def halves(self) -> np.ndarray:
        """Half the side of a cube, or the radius, which in all other shapes is half the height too."""
        return np.where(self.shapes == 0, self.radii / np.sqrt(2.0), self.radii)

    @property
    def colors(self) -> np.ndarray:
        """Of the objects, in 0..1 "objects 3"."""
        return np.where(self.color_labels[:, None] < 0, GOLD, COLORS[self.color_labels])

    @property
    def last_uncovered(self) -> int:
        """The last frame in which no cone was over the snitch; at the start there is none."""
        return int(np.flatnonzero(self.holders[:, 0] < 0)[-1])

    @property
    def was_moved(self) -> bool:
        """Whether a cone is over the snitch at the end and has moved it since it came."""
        way = self.places[-1, 0, :2] - self.places[self.last_uncovered, 0, :2]
        return bool(self.holders[-1, 0] >= 0 and abs(way).max() > 1e-9)

    def snitch_carried(self) -> np.ndarray:
        """Whether a cone moves the snitch from the frame before to this one "time"."""
        steps = np.diff(self.places[:, 0, :2], axis=0, prepend=self.places[:1, 0, :2])
        return (self.holders[:, 0] >= 0) & (abs(steps).max(-1) > 1e-9)


@dataclass(frozen=True)
class EpisodeLaw:
    """The distribution of episodes.

    Args:
        num_objects: fewest and most objects, the snitch and the cones among them.
        num_cones: cones that there are in any case, of medium and of large size in turn.
        other_shapes: what further objects may be.
        actions: "all" objects may move in a round, or two at most ("max2").
        moves: "free" ones may bring objects as near to each other as they do not touch, begin in the first nine tenths
            of the video, and may go on when it ends. "released" are those of CATER's generator: objects stay 0.25
            apart, taken as balls, rounds begin until 30 frames before the last one, and every move ends by it.
    """

    num_objects: tuple[int, int] = (5, 10)
    num_cones: int = 2
    other_shapes: Sequence[Shape] = SHAPES
    actions: Actions = "all"
    moves: Moves = "free"

    def __post_init__(self) -> None:
        fewest, most = self.num_objects
        if self.num_cones < 1:
            raise ValueError(f"num_cones is {self.num_cones}; expected 1 or more, to have something to cover with")
        if not self.num_cones + 1 <= fewest <= most <= 12:
            raise ValueError(
                f"num_objects is {list(self.num_objects)}; expected the fewest and the most, at least "
                f"{self.num_cones + 1} (the snitch and num_cones) and at most 12, which the floor has room for"
            )
        unknown = [shape for shape in self.other_shapes if shape not in SHAPES]
        if unknown or not self.other_shapes:
            raise ValueError(f"other_shapes is {list(self.other_shapes)}; expected some of {', '.join(SHAPES)}")

    def draw(self, rng: np.random.Generator, num_frames: int) -> Episode:
        """An episode of so many frames."""
        from slotbench.data.cater_like.law_kernel import simulate_into  # compiles, or reads from disk

        count = int(rng.integers(self.num_objects[0], self.num_objects[1] + 1))
        others = np.array([SHAPES.index(shape) for shape in self.other_shapes])
        fixed = 1 + self.num_cones
        shapes = np.full(count, _CONE)
        shapes[0], shapes[fixed:] = _SNITCH, others[rng.integers(0, len(others), count - fixed)]
        sizes = 1 + (np.arange(count) + 1) % 2
        sizes[0], sizes[fixed:] = 0, rng.integers(0, 3, count - fixed)
        radii = _SIZES[sizes]
        radii[0] = _SNITCH_RADIUS
        materials, color_labels = rng.integers(0, 2, count), rng.integers(0, len(COLORS), count)
        materials[0], color_labels[0] = 0, -1
        places = np.zeros((num_frames, count, 3))
        places[:, :, :2] = _starts(rng, radii)
        turns, holders = np.zeros((num_frames, count)), np.full((num_frames, count), -1)
        turns[:] = rng.uniform(0.0, 2.0 * np.pi, count)
        heights = np.where(shapes == 0, np.sqrt(2.0), 2.0) * radii
        most_movers = 2 if self.actions == "max2" else count
        free = self.moves == "free"
        rule = (-1.0, int(0.9 * num_frames), False) if free else (_GAP, num_frames - _SPARE, True)
        simulate_into(rng, shapes, radii, heights, most_movers, *rule, places, turns, holders)  # type: ignore[call-arg]
        return Episode(shapes, sizes, materials, color_labels, radii, places, turns, holders)


def cells_of(places: np.ndarray, grid: int) -> np.ndarray:
    """The cell "..." of a floor of `grid` x `grid` cells in which points "... 2 or more" lie.

    Rows count along y and columns along x, from the lowest; cell = row * grid + column, as in CATER's lists.

    Example:
        >>> cells_of(np.array([[-3.0, -3.0], [2.9, 2.9], [-0.1, 0.1]]), 6)
        array([ 0, 35, 20])
    """
    at = np.floor((places[..., :2] + HALF_FLOOR) * (grid / (2 * HALF_FLOOR))).astype(np.int64)
    at = at.clip(0, grid - 1)  # a point on the upper edge belongs to the last cell
    return at[..., 1] * grid + at[..., 0]


def _starts(rng: np.random.Generator, radii: np.ndarray) -> np.ndarray:
    """Where objects stand at first "objects 2", at least a gap between any two."""
    for _ in range(_RESTARTS):
        placed = np.zeros((0, 2))
        for index in range(len(radii)):
            candidates = rng.uniform(-HALF_FLOOR, HALF_FLOOR, (_TRIES, 2))
            apart = np.linalg.norm(candidates[:, None] - placed, axis=-1) - radii[:index] - radii[index]
            free = np.flatnonzero((apart >= _GAP).all(1))
            if not len(free):
                break
            placed = np.concatenate([placed, candidates[free[:1]]])
        else:
            return placed
    raise DataFilesError(f"{len(radii)} objects find no room on the floor: give a smaller num_objects")
