"""Maze: an agent walks in a maze of textured walls, for what a model remembers of places that it has left."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Integer
from torch import Tensor
from torch.nn import functional as F

from slotbench.data.base import LoaderOptions, SimulatedData, Split, check_counts
from slotbench.interfaces import DataSpec, VideoBatch, VideoSpec

__all__ = ["Conditioning", "Maze"]

Conditioning = Literal["none", "action", "pose"]
"""What comes with a step: nothing, the action that leads to the next frame, or the poses of both frames."""

PALETTE = (
    *((230, 25, 75), (60, 180, 75), (255, 225, 25), (0, 130, 200), (245, 130, 48)),
    *((145, 30, 180), (70, 240, 240), (240, 50, 230), (250, 190, 212), (0, 128, 128)),
)
"""Red, green and blue in 0..255 of the colours of walls."""
PATTERNS = 4
ACTIONS = ("left", "right", "forward")
HEADINGS = 16
ORACLE_MEMORY = (8, 32)
"""Frames of the end of the context that oracles with a short memory know the colours of."""
UNSEEN = (1, 9, 17, 33, 65, 129)
"""First number of frames of each bin of the time since a surface was in view."""


class Maze(SimulatedData):
    """Maze: what an agent sees that walks from room to room past textured walls, with its actions or poses.

    The maze has `rooms` x `rooms` rooms of one cell, joined by a random tree of passages and `loops` more. Each wall
    cell has one of four patterns of two of ten colours, which do not change: what was seen once can be known whenever
    it is seen again. The agent walks on shortest paths to random cells, a quarter of a cell or a sixteenth of a turn
    per frame; a column of pixels is one ray of a view of 60 degrees, ground and ceiling have one colour each, and walls
    two shades, by the way they face. At 2 x 2 rooms with a loop the passages are always the same ring.

    With `conditioning` "action", `VideoBatch.actions[t]` is one of left, right, forward, one-hot, which leads from
    frame t to t + 1. With "pose" it is a vector (`VideoSpec.vector_actions`), the pose of frame t and that of t + 1,
    so that only memory is asked for and no integration of a path. The pose of a frame is four one-hot codes: the cell
    together with the quarter that the heading is nearest to, the place in the cell along x and along y, the heading.

    `objects` has "poses" (batch frames 3; x and y in quarters of a cell, heading in sixteenths of a turn), "walls"
    (batch rows cols; cells), "patterns" (batch rows cols), "colours" (batch rows cols 2), "surfaces" (batch frames
    height width; twice the number of the wall cell that a pixel shows plus which of its colours, -1 for none), and
    "last_seen" (batch frames height width; the last step before this one at which that surface was in view, -1 for
    never). The clip is its own target.

    Source: the law is of this project, after DMLab's mazes in Yan et al., "Temporally Consistent Transformers for
    Video Generation", ICML 2023, where 144 frames are read and 156 predicted.

    Args:
        rooms: rooms on a side, 2 to 5.
        loops: walls that are opened beyond the tree.
        conditioning: what comes with a step.
    """

    def __init__(
        self,
        rooms: int = 3,
        loops: int = 1,
        num_frames: int = 300,
        eval_frames: int = 300,
        resolution: int = 32,
        conditioning: Conditioning = "action",
        loader: LoaderOptions = LoaderOptions(),
    ) -> None:
        super().__init__(loader)
        check_counts(num_frames=num_frames, eval_frames=eval_frames, resolution=resolution)
        if not 2 <= rooms <= 5:
            raise ValueError(f"rooms is {rooms}; expected 2 to 5, the rooms on a side of the maze")
        self.rooms, self.loops, self.resolution = rooms, loops, resolution
        self.num_frames, self.eval_frames = num_frames, eval_frames
        self.conditioning = conditioning

    @property
    def spec(self) -> DataSpec:
        """Coloured frames, which are their own target."""
        width = {"none": 0, "action": len(ACTIONS), "pose": 2 * sum(self._pose_sizes())}[self.conditioning]
        frame = VideoSpec(3, self.resolution, self.resolution, width, vector_actions=self.conditioning == "pose")
        return DataSpec(frame, frame)

    def simulate(self, split: Split, generators: list[np.random.Generator]) -> VideoBatch:
        """Clips of `num_frames` frames for training, of `eval_frames` frames otherwise."""
        steps = self.num_frames if split == "train" else self.eval_frames
        log = self._empty(len(generators), steps)
        frames = np.empty((len(generators), steps, 3, self.resolution, self.resolution), np.uint8)
        actions = np.empty((len(generators), steps + 1), np.int64)
        for clip, generator in enumerate(generators):
            self._make(generator, {name: values[clip] for name, values in log.items()}, frames[clip], actions[clip])
        poses = torch.from_numpy(log["poses"])
        log["poses"] = log["poses"][:, :-1].astype(np.float32)
        given = {
            "none": None,
            "action": F.one_hot(torch.from_numpy(actions[:, :-1]), len(ACTIONS)).float(),
            "pose": self._pose_vectors(poses),
        }[self.conditioning]
        return VideoBatch(
            frames=torch.from_numpy(frames),
            time=torch.arange(steps).repeat(len(generators), 1),
            actions=given,
            objects={name: torch.from_numpy(values) for name, values in log.items()},
        )

    def baseline_predictions(self, batch: VideoBatch, context: int, horizon: int) -> dict[str, Tensor]:
        """The mean frame of the context and, where actions or poses say the way, its frame of the nearest pose."""
        seen = batch.pixels[:, :context]
        found = {"mean frame of the context": seen.mean(1, keepdim=True).expand(-1, horizon, -1, -1, -1)}
        if self.conditioning != "none":
            nearest = _nearest_poses(batch.objects["poses"], context, horizon)
            found["frame of the nearest pose"] = seen[torch.arange(len(seen), device=seen.device)[:, None], nearest]
        return found

    def oracle_predictions(self, batch: VideoBatch, context: int, horizon: int) -> dict[str, Tensor]:
        """The true geometry, with the colours that were in view in the context, in its last frames, or none.

        Walls whose colours are not known have the mean colour.
        """
        surfaces = batch.objects["surfaces"][:, : context + horizon].long()
        future, true = surfaces[:, context:], batch.pixels[:, context : context + horizon]
        unknown = self._mean_colour(batch.objects["colours"], future, true)
        last = _last_in_view(surfaces[:, :context], future)
        found = {"geometry alone": unknown}
        for frames in (*(n for n in ORACLE_MEMORY if n < context), context):
            known = (future < 0) | (last >= context - frames)
            name = "context" if frames == context else f"last {frames} frames"
            found[f"colours of the {name}"] = torch.where(known[:, :, None], true, unknown)
        return found

    def pixel_groups(self, batch: VideoBatch, context: int, horizon: int) -> dict[str, Tensor]:
        """Pixels of walls by when their surface was in view in the context, the last time.

        `long_memory`: in none of its last 32 frames, but before; `unseen_33-64` and the like: so many frames before the
        one to predict; `never_seen`: not at all.
        """
        surfaces = batch.objects["surfaces"][:, : context + horizon].long()
        future = surfaces[:, context:]
        last = _last_in_view(surfaces[:, :context], future)
        seen = (future >= 0) & (last >= 0)
        age = torch.arange(context, context + future.shape[1], device=last.device)[:, None, None] - last
        found = {}
        if context > ORACLE_MEMORY[-1]:
            found["long_memory"] = seen & (last < context - ORACLE_MEMORY[-1])
        for first, past in zip(UNSEEN, (*UNSEEN[1:], None), strict=True):
            name = f"unseen_{first}-{past - 1}" if past else f"unseen_{first}+"
            found[name] = seen & (age >= first) & (age < past if past else seen)
        return found | {"never_seen": (future >= 0) & ~seen}

    def _empty(self, clips: int, steps: int) -> dict[str, np.ndarray]:
        size, side = 2 * self.rooms + 1, self.resolution
        return {
            "poses": np.empty((clips, steps + 1, 3), np.int64),
            "walls": np.ones((clips, size, size), np.uint8),
            "patterns": np.empty((clips, size, size), np.int64),
            "colours": np.empty((clips, size, size, 2), np.int64),
            "surfaces": np.empty((clips, steps, side, side), np.int16),
            "last_seen": np.empty((clips, steps, side, side), np.int16),
        }

    def _make(
        self, generator: np.random.Generator, log: dict[str, np.ndarray], frames: np.ndarray, actions: np.ndarray
    ) -> None:
        from slotbench.data.maze.kernels import carve, last_seen, render, walk  # numba takes half a second

        walls = log["walls"]
        log["patterns"][...] = generator.integers(PATTERNS, size=walls.shape)
        first = generator.integers(len(PALETTE), size=walls.shape)
        other = generator.integers(1, len(PALETTE), size=walls.shape)  # never the same colour twice
        log["colours"][...] = np.stack([first, (first + other) % len(PALETTE)], axis=-1)
        carve(walls, self.loops, generator)
        walk(walls, generator, log["poses"], actions)
        palette = np.array(PALETTE, np.int64)
        render(walls, log["patterns"], log["colours"], palette, log["poses"][:-1], frames, log["surfaces"])
        last_seen(log["surfaces"], log["last_seen"])

    def _pose_sizes(self) -> tuple[int, int, int, int]:
        return 4 * (2 * self.rooms + 1) ** 2, 4, 4, HEADINGS

    def _pose_vectors(self, poses: Integer[Tensor, "batch steps 3"]) -> Float[Tensor, "batch steps-1 vector"]:
        x, y, heading = poses.unbind(-1)
        quarter = (heading + 2) // 4 % 4
        place = 4 * ((2 * self.rooms + 1) * (y // 4) + x // 4) + quarter
        codes = zip((place, x % 4, y % 4, heading), self._pose_sizes(), strict=True)
        each = torch.cat([F.one_hot(code, size) for code, size in codes], dim=-1).float()
        return torch.cat([each[:, :-1], each[:, 1:]], dim=-1)

    def _mean_colour(
        self,
        colours: Integer[Tensor, "batch rows cols 2"],
        surfaces: Integer[Tensor, "batch horizon height width"],
        true: Float[Tensor, "batch horizon 3 height width"],
    ) -> Float[Tensor, "batch horizon 3 height width"]:
        """The true frames with the mean colour in the place of the colours of walls, in their shade."""
        palette = torch.tensor(PALETTE, device=true.device).to(true) / 255
        index = colours.flatten(1).gather(1, surfaces.clamp(min=0).flatten(1)).view_as(surfaces)
        shade = true.sum(2) / palette.sum(1)[index]
        mean = palette.mean(0)[:, None, None] * shade.round(decimals=1)[:, :, None]
        return torch.where((surfaces >= 0)[:, :, None], mean, true)


def _last_in_view(
    shown: Integer[Tensor, "batch frames height width"], asked: Integer[Tensor, "batch horizon height width"]
) -> Integer[Tensor, "batch horizon height width"]:
    """The last of some frames that shows the surface of each pixel; -1 for none. The surface -1 is not looked at."""
    most = int(torch.stack([shown.max(), asked.max()]).max()) + 2
    table = torch.full((len(shown), most), -1, device=shown.device)
    for step, frame in enumerate(shown.unbind(1)):
        table.scatter_(1, frame.flatten(1) + 1, value=step)
    return table.gather(1, asked.flatten(1) + 1).view_as(asked)


def _nearest_poses(
    poses: Float[Tensor, "batch frames 3"], context: int, horizon: int
) -> Integer[Tensor, "batch horizon"]:
    """The context frame nearest to each later one: distance in cells plus one less the cosine of headings."""
    seen, asked = poses[:, None, :context], poses[:, context : context + horizon, None]
    turn = (seen[..., 2] - asked[..., 2]) * (2 * math.pi / HEADINGS)
    return ((seen[..., :2] - asked[..., :2]).norm(dim=-1) / 4 + 1 - turn.cos()).argmin(-1)
