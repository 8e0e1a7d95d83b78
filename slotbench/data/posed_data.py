"""Data sets of several posed cameras: sizes, shown and held-out views, and views that learn nothing."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from slotbench.data.base import Split, check_choices, check_counts
from slotbench.data.clips import ClipSource, StoredVideos
from slotbench.data.posed_views import Frame, PosedVideos
from slotbench.interfaces import DataSpec, VideoBatch, VideoSpec

__all__ = ["PosedData"]

_MEAN_OF = 64  # training clips


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
        """Sets how many of the cameras are shown.

        Args:
            num_cameras: cameras of each step.
            num_shown: those that are shown in training.
            eval_shown: those that are shown otherwise; None for as many.
            frame: of matrices and rays.

        Raises:
            ValueError: more are shown than there are, or none.
        """
        check_choices(frame=(frame, Frame))
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
