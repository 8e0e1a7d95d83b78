"""CATERLike, the question of CATER on simulated clips: in which cell of the floor is the snitch at the end?"""

from __future__ import annotations

from typing import Literal

import numpy as np

from slotbench.data.base import LoaderOptions, SimulatedData, Split, check_counts, join_clips, padded
from slotbench.data.cater.cater import Sampling, frame_numbers
from slotbench.data.cater_like.scenes import SHAPES, Actions, Episode, EpisodeLaw, Moves, Shape, SnitchState, cells_of
from slotbench.data.cater_like.views import (
    TABLE_WIDTH,
    Camera,
    Lens,
    camera_path,
    draw_images,
    draw_plan,
    floor_corners,
    object_table,
)
from slotbench.data.movi_like.videos import camera_log
from slotbench.interfaces import DataSpec, VideoBatch, VideoSpec

__all__ = ["CATERLike"]

Observation = Literal["images", "objects"]
Target = Literal["cell", "frames"]

_WIDEST = 0.9  # zoom at which the horizon would come into view


class CATERLike(SimulatedData):
    """Clips in which objects slide, are picked up, turn, and cones cover and carry the snitch; the label is its cell.

    The law is that of CATER's public generator: rounds in which every object slides, is picked up and put down or turns
    for 20 to 30 frames, and, in half of them, a cone covers a smaller cone, sphere or the snitch. A cone that slides
    takes along what it covers; one that is picked up uncovers it. No path may collide. A video has `video_frames`
    frames; a clip shows `num_frames` of them, one of each of as many segments of equal length: in training one at
    random, else the last. The target is the cell of the floor in which the snitch is, a class of `grid` squared, at
    every step, and, for the last one, in the last frame of the video. Scores compare with each other, never with scores
    on CATER.

    Observations: with "images" the ray-caster of `MOViLike` draws what a camera sees. With "objects" sight is taken for
    granted: `features` "batch time 14 rows 1" has a row for each object that no cone covers (`TABLE_WIDTH` in `views`
    says what is in it), rows of covered objects are zero, and `frames` and `masks` are a plan of the floor from above.

    In `masks` object i is i + 1. `objects` has what `MOViLike` gives: "num_objects", "present", "positions" (batch time
    objects 3; centres), "visibility" (batch time objects; pixels), "shape_label" (0 cube, 1 cylinder, 2 sphere, 3 cone,
    4 the snitch), "size_label", "material_label", "color_label", "scale", "color", with images the camera's
    entries, "image_positions" aside, and "depth" if asked for; labels of padding are -1. Of CATER: "holders" (batch
    time objects; the cone directly over an object, -1 for none), "snitch_state" (batch time; 0 visible, 1 occluded, 2
    contained, 3 carried by its cone at this very step; with "objects" nothing is occluded), "frame" (batch time;
    numbers in the video), "last_uncovered" (batch; the cell in which no cone was over the snitch for the last time),
    "covered" and "moved_covered" (batch; whether a cone is over it at the end, and has moved it since),
    "frames_since_seen" (batch; frames of the video since the last step at which it was visible, 0 if it is),
    "end_cells" and "end_holders" (batch objects; of the last frame), and "floor_corners" (batch grid+1 grid+1 2; where
    the corners of the cells are in the last image, as "image_positions" of MOVi are, rows along y of the floor).

    Source: Girdhar and Ramanan, "CATER", ICLR 2020, and its public generator; SlotSSM, section 7.4. What they leave
    open is in docs/datasets.md.

    Args:
        observation: "images" or "objects".
        video_frames: frames of a video, 24 per second; CATER has 301.
        num_frames: steps of a clip, at most `video_frames`. Fewer frames for as many steps are a faster time.
        sampling: "segments" as above; for pre-training a "window" of consecutive frames, which in training begins at
            random and else ends with the video, or "random" frames of the whole video, in their order.
        target: the "cell" of the snitch, or the "frames" themselves, for tasks that reconstruct or continue them.
        grid: cells per side of the floor.
        num_objects: fewest and most objects, snitch and cones among them.
        num_cones: cones that there are in any case.
        other_shapes: what further objects may be: cube, cylinder, sphere, cone.
        actions: in a round "all" objects may move, or two at most ("max2").
        camera: "fixed", or "moving" around the floor.
        zoom: times the focal length of MOVi's camera.
        samples_per_side: rays per pixel are its square.
        depth: gives the distance from the camera as well.
        moves: "free", or as in CATER's "released" generator, in which objects stay 0.25 apart and every move has ended
            by the last frame; see `EpisodeLaw`.
    """

    def __init__(
        self,
        observation: Observation = "images",
        video_frames: int = 240,
        num_frames: int = 60,
        sampling: Sampling = "segments",
        target: Target = "cell",
        grid: int = 6,
        num_objects: tuple[int, int] = (5, 10),
        num_cones: int = 2,
        other_shapes: list[Shape] = list(SHAPES),  # noqa: B006 (never changed; jsonargparse wants a plain default)
        actions: Actions = "all",
        camera: Camera = "fixed",
        resolution: int = 32,
        zoom: float = 1.6,
        samples_per_side: int = 2,
        depth: bool = False,
        moves: Moves = "free",
        loader: LoaderOptions = LoaderOptions(),
    ) -> None:
        super().__init__(loader)
        check_counts(video_frames=video_frames, num_frames=num_frames, resolution=resolution)
        check_counts(samples_per_side=samples_per_side)
        if num_frames > video_frames:
            raise ValueError(f"num_frames is {num_frames}; expected at most video_frames, which is {video_frames}")
        if not 2 <= grid <= 12:
            raise ValueError(f"grid is {grid}; expected 2 to 12 cells per side")
        if zoom < _WIDEST:
            raise ValueError(f"zoom is {zoom}; expected {_WIDEST} or more, for a camera that sees floor only")
        if depth and observation == "objects":
            raise ValueError("depth is that of images: set observation to images, or leave depth out")
        self.law = EpisodeLaw((num_objects[0], num_objects[1]), num_cones, tuple(other_shapes), actions, moves)
        self.observation: Observation = observation
        self.video_frames = video_frames
        self.num_frames = num_frames
        self.sampling: Sampling = sampling
        self.target: Target = target
        self.grid = grid
        self.camera: Camera = camera
        self.lens = Lens(resolution, float(zoom), samples_per_side)
        self.depth = depth

    @property
    def spec(self) -> DataSpec:
        """Frames in, or rows of a table, and one class of `grid` squared out, or the frames."""
        frame = VideoSpec(channels=3, height=self.lens.resolution, width=self.lens.resolution)
        label = VideoSpec(channels=self.grid**2, height=1, width=1) if self.target == "cell" else frame
        table = VideoSpec(channels=TABLE_WIDTH, height=self.law.num_objects[1], width=1)
        return DataSpec(input=frame, target=label, features=table if self.observation == "objects" else None)

    def max_eval_frames(self, split: Split) -> int | None:
        """0: a clip shows `num_frames` frames of a whole video."""
        return 0

    def simulate(self, split: Split, generators: list[np.random.Generator]) -> VideoBatch:
        """The clips of a split."""
        return join_clips([self._clip(split, rng) for rng in generators])

    def _clip(self, split: Split, rng: np.random.Generator) -> dict[str, np.ndarray]:
        episode = self.law.draw(rng, self.video_frames)
        cameras = camera_path(self.camera, rng, self.video_frames)
        frames = frame_numbers(self.sampling, rng, self.video_frames, self.num_frames, split == "train")
        if self.observation == "objects":
            images, masks = draw_plan(episode, frames, self.lens.resolution)
            seen = {"features": object_table(episode, frames, self.law.num_objects[1])[..., None].swapaxes(1, 2)}
        else:
            film = draw_images(episode, frames, cameras[frames], self.lens)
            images, masks = film.frames, film.masks
            seen = camera_log(cameras[frames], self.lens.focal_length)
            seen |= {"depth": film.depth} if self.depth else {}
        camera = None if self.observation == "objects" else tuple(cameras[frames[-1]].tolist())
        seen["floor_corners"] = floor_corners(self.grid, camera, self.lens).astype(np.float32)
        if self.target == "cell":
            cells = cells_of(episode.places[frames, 0], self.grid)
            cells[-1] = cells_of(episode.places[-1, 0], self.grid)
            seen |= {"target": cells[:, None, None], "target_time": np.arange(self.num_frames)}
        log = self._log(episode, frames, masks) | self._of_the_snitch(episode, frames, masks)
        return {"frames": images, "masks": masks} | seen | log

    def _log(self, episode: Episode, frames: np.ndarray, masks: np.ndarray) -> dict[str, np.ndarray]:
        count, room = len(episode.shapes), self.law.num_objects[1]
        ids = np.arange(1, count + 1, dtype=np.uint8)
        centres = episode.places.copy()
        centres[..., 2] += episode.halves
        labels = {
            "shape_label": episode.shapes,
            "size_label": episode.sizes,
            "material_label": episode.materials,
            "color_label": episode.color_labels,
        }
        pixels = (masks[:, None] == ids[:, None, None]).sum((2, 3), dtype=np.int64)
        return {
            "num_objects": np.array(count),
            "present": np.arange(room) < count,
            "positions": padded(centres[frames].astype(np.float32), room, axis=1),
            "visibility": padded(pixels, room, axis=1),
            "holders": padded(episode.holders[frames], room, axis=1, fill=-1),
            "scale": padded((2 * episode.halves).astype(np.float32), room),
            "color": padded(episode.colors.astype(np.float32), room),
            "end_cells": padded(cells_of(centres[-1], self.grid), room),
            "end_holders": padded(episode.holders[-1], room, fill=-1),
            **{name: padded(values.astype(np.int64), room, fill=-1) for name, values in labels.items()},
        }

    def _of_the_snitch(self, episode: Episode, frames: np.ndarray, masks: np.ndarray) -> dict[str, np.ndarray]:
        contained = episode.holders[frames, 0] >= 0
        # a table has the row of what stands behind or beneath another, too
        seen_at_all = (masks == 1).any((1, 2)) | (self.observation == "objects")
        state = np.where(seen_at_all, SnitchState.VISIBLE, SnitchState.OCCLUDED)
        state = np.where(contained, SnitchState.CONTAINED, state)
        state[contained & episode.snitch_carried()[frames]] = SnitchState.CARRIED
        seen = frames[state == SnitchState.VISIBLE]
        since = self.video_frames - 1 - int(seen[-1]) if len(seen) else self.video_frames
        # in training the last step may be before the last frame
        since = 0 if state[-1] == SnitchState.VISIBLE else since
        return {
            "snitch_state": state,
            "frame": frames,
            "last_uncovered": np.array(cells_of(episode.places[episode.last_uncovered, 0], self.grid)),
            "covered": np.array(bool(episode.holders[-1, 0] >= 0)),
            "moved_covered": np.array(episode.was_moved),
            "frames_since_seen": np.array(since),
        }
