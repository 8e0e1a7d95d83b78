"""Data sets of several posed cameras: which views are shown and which held out, their rays, and trivial predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from slotbench.data.base import Split, check_counts
from slotbench.data.cameras import in_frame_of, pixel_rays
from slotbench.data.clips import ClipSource, StoredVideos
from slotbench.interfaces import DataSpec, VideoBatch, VideoSpec

__all__ = ["Frame", "PosedData", "PosedVideos", "split_views"]

_MEAN_OF = 64  # training clips
Frame = Literal["world", "first"]

_VIEWS = 5  # tells the generator of the choice of cameras from those of samples, orders and crops


def split_views(
    batch: VideoBatch, order: Tensor, num_shown: int, frame: Frame = "world", per_view: Sequence[str] = ()
) -> VideoBatch:
    """Parts the views of a batch into those that are shown and those that are held out, and gives both their rays.

    Args:
        batch: clips of all views, whose `objects` have the camera-to-world matrices "cameras" (batch time views 4 4)
            and the focal length in pixels "focal" (batch).
        order: "batch views": which views come first in each clip; the first `num_shown` are shown.
        num_shown: how many.
        frame: "world", or "first": matrices and rays are in the frame of the first shown camera at the first step.
        per_view: other entries of `objects` that have an axis of views after that of time.

    Returns:
        the batch with `rays` and `held_out`. Entries of `objects` with views are parted too; "views" (batch views) says
        which camera each one is, and "to_world" (batch 4 4) leads from the frame of matrices and rays to the world.
    """
    clips = torch.arange(len(batch))[:, None]
    cameras = batch.objects["cameras"][clips, :, order].transpose(1, 2)
    if frame == "first":
        to_world = cameras[:, 0, 0]
        cameras = in_frame_of(cameras, to_world[:, None, None])
    else:
        to_world = torch.eye(4).expand(len(batch), 4, 4)
    rays = pixel_rays(cameras, batch.objects["focal"][:, None, None], *batch.frames.shape[-2:])

    def part(chosen: slice) -> VideoBatch:
        def taken(value: Tensor) -> Tensor:
            return value[clips, :, order[:, chosen]].transpose(1, 2).contiguous()

        views = {name: taken(batch.objects[name]) for name in per_view if name in batch.objects}
        views |= {"cameras": cameras[:, :, chosen], "views": order[:, chosen]}
        return replace(
            batch,
            frames=taken(batch.frames),
            masks=None if batch.masks is None else taken(batch.masks),
            rays=rays[:, :, chosen],
            objects=batch.objects | views | {"to_world": to_world},
        )

    shown, held_out = part(slice(num_shown)), part(slice(num_shown, None))
    if not held_out.num_views:
        return shown
    names = {*per_view, "cameras", "views", "focal", "to_world"}
    about = {name: value for name, value in held_out.objects.items() if name in names}
    return replace(shown, held_out=replace(held_out, objects=about))


class PosedVideos(ClipSource):
    """Stored videos of all cameras, of which some are shown.

    Which ones is drawn for each video; with `per_clip`, for each frame that a clip of it begins with.

    Args:
        source: the videos, with "cameras" in `objects`.
        num_shown: cameras that are shown.
        focal: focal length in pixels; None where `objects` has a "focal" of each video.
        frame: of matrices and rays.
        per_clip: draws anew for each clip of a video.
        per_view: other entries of `objects` that have an axis of views.
    """

    beneath: ClipSource

    def __init__(
        self,
        source: ClipSource,
        num_shown: int,
        focal: float | None = None,
        frame: Frame = "world",
        per_clip: bool = False,
        per_view: Sequence[str] = ("depth",),
    ) -> None:
        self.beneath, self.num_shown, self.focal, self.frame = source, num_shown, focal, frame
        self.per_clip, self.per_view = per_clip, per_view
        self.lengths, self.stride = source.lengths, source.stride

    def read(self, videos: Sequence[int], starts: Sequence[int], num_frames: int) -> VideoBatch:
        """Clips, with `rays` and `held_out`."""
        batch = self.beneath.read(videos, starts, num_frames)
        if self.focal is not None:
            batch.objects["focal"] = torch.full((len(batch),), self.focal)
        places = zip(videos, starts, strict=True)
        order = torch.tensor(np.stack([self._order(video, start, batch.num_views) for video, start in places]))
        return split_views(batch, order, self.num_shown, self.frame, self.per_view)

    def _order(self, video: int, start: int, count: int) -> np.ndarray:
        seed = np.random.SeedSequence([_VIEWS, video, start + 1 if self.per_clip else 0])
        return np.random.default_rng(seed).permutation(count)


class PosedData(StoredVideos):
    """A data set whose steps several posed cameras see; some of them are shown, the others are held out.

    A subclass calls `set_views` when it is made, and wraps its videos by `posed`.
    """

    width: int | None = None
    """Columns of pixels; None for as many as rows."""
    num_cameras: int
    num_shown: int
    eval_shown: int
    frame: Frame

    def set_views(self, num_cameras: int, num_shown: int, eval_shown: int | None, frame: Frame) -> None:
        """Sets how many of the cameras are shown."""
        check_counts(num_shown=num_shown, eval_shown=eval_shown)
        for name, shown in {"num_shown": num_shown, "eval_shown": eval_shown}.items():
            if shown is not None and shown > num_cameras:
                raise ValueError(f"{name} is {shown}; expected at most {num_cameras}, the cameras of a step")
        if num_shown == 1 < num_cameras:
            raise ValueError("num_shown is 1; expected 2 or more, several views per step (eval_shown may be 1)")
        self.num_cameras, self.num_shown, self.frame = num_cameras, num_shown, frame
        self.eval_shown = num_shown if eval_shown is None else eval_shown

    @property
    def spec(self) -> DataSpec:
        """Frames of the shown views; the target are those that are held out, or the same where none is."""
        held_out = self.num_cameras - self.num_shown or self.num_shown
        size = (self.channels, self.resolution, self.width or self.resolution)
        return DataSpec(VideoSpec(*size, num_views=self.num_shown), VideoSpec(*size, num_views=held_out))

    def posed(self, source: ClipSource, split: Split, focal: float | None = None) -> PosedVideos:
        """The videos of a split with their views parted."""
        training = split == "train"
        shown = self.num_shown if training else self.eval_shown
        return PosedVideos(source, shown, focal, self.frame, per_clip=training)

    def held_out_baselines(self, batch: VideoBatch) -> dict[str, Tensor]:
        """Held-out views by simple means: the shown view of the nearest camera, and the mean training image."""
        if batch.held_out is None:
            return {}
        shape = batch.held_out.frames.shape
        return {
            "nearest_view": _nearest(batch, batch.held_out),
            "mean_image": self.mean_image.to(batch.frames.device).expand(shape).clone(),
        }

    @cached_property
    def mean_image(self) -> Tensor:
        """The mean of all views of up to 64 training clips "channels height width", in [0, 1]."""
        clips = self.dataset("train")
        frames = [clips.clips([i]).all_views().pixels for i in range(min(_MEAN_OF, len(clips)))]
        return torch.stack([part.flatten(0, 2).mean(0) for part in frames]).mean(0)


def _nearest(batch: VideoBatch, held_out: VideoBatch) -> Tensor:
    """For each held-out view the shown one of the nearest camera: distance plus one less the cosine of directions."""
    shown, held = batch.objects["cameras"], held_out.objects["cameras"]
    away = (held[:, :, :, None, :3, 3] - shown[:, :, None, :, :3, 3]).norm(dim=-1)
    turned = 1 - (held[:, :, :, None, :3, 2] * shown[:, :, None, :, :3, 2]).sum(-1)
    which = (away + turned).argmin(-1)
    frames = batch.pixels
    return frames.gather(2, which[..., None, None, None].expand(*which.shape, *frames.shape[3:]))
