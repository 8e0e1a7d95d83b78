"""A batch of clips, which can be cut in time and moved between devices as one thing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from slotbench.errors import UserError

__all__ = ["VideoBatch", "check_unit_range", "to_unit_range", "unit_frames"]

_BEYOND = 0.01


@dataclass
class VideoBatch:
    """A batch of clips of one layout; `VideoBatch(frames)` is one of frames alone, whose steps count from 0.

    Where several cameras see each step, `frames`, `masks`, `rays` and `features` have an axis of views after that of
    time, of the views that are shown to the encoder.

    Attributes:
        frames: bytes (`uint8`) in 0..255, or floats in [0, 1]; parts, tasks and metrics read `pixels`.
        time: absolute step index of every step, so that a clip cut in two still knows where it is.
        masks: instance ids of the input, 0 = background; -1 at pixels that count nowhere, of a data set with `void`.
        target: the answers to predict, `targets` times in the clip: ids of classes of pixels or cells, or of one pixel
            that is the label of the clip; a video to reconstruct or to continue has none.
        target_masks: instance ids of the target, 0 = background.
        target_time: the absolute step after which each target is due.
        actions: action vectors.
        rays: origin and direction of the ray of each pixel, for parts that need them.
        features: of each frame, from a frozen network, where the set comes with them.
        codes: a tokenizer's codes of each frame, where the task has one, for encoders that read them.
        objects: the simulator's log or the set's annotations, e.g. "positions"; not cut by a slice.
        hidden: steps whose frame is hidden from the model, for encoders with `hides_frames`.
        index: which clip of its split each one is, where a data set's loader sets it.
        held_out: the same steps from views that no encoder is shown; a decoder paints the views of its rays.
    """

    frames: (
        Float[Tensor, "batch time *views channels height width"]
        | Integer[Tensor, "batch time *views channels height width"]
    )
    time: Integer[Tensor, "batch time"] = None  # type: ignore[assignment]  # `__post_init__` counts the steps
    masks: Integer[Tensor, "batch time *views height width"] | None = None
    target: Integer[Tensor, "batch targets *views target_height target_width"] | None = None
    target_masks: Integer[Tensor, "batch targets *views target_height target_width"] | None = None
    target_time: Integer[Tensor, "batch targets"] | None = None
    actions: Float[Tensor, "batch time num_actions"] | None = None
    rays: Float[Tensor, "batch time *views 6 height width"] | None = None
    features: Float[Tensor, "batch time *views feature_channels rows cols"] | None = None
    codes: Integer[Tensor, "batch time *views code_rows code_cols"] | None = None
    hidden: Bool[Tensor, "batch time"] | None = None
    objects: dict[str, Tensor] = field(default_factory=dict)
    index: Integer[Tensor, " batch"] | None = None
    held_out: VideoBatch | None = None

    def __post_init__(self) -> None:
        if self.time is None:
            self.frames = _frames_alone(self.frames)
            self.time = torch.arange(self.num_steps, device=self.frames.device).repeat(len(self), 1)

    @classmethod
    def from_numpy(cls, frames: np.ndarray, masks: np.ndarray | None = None, start: int = 0) -> VideoBatch:
        """A video that is a numpy array, as a batch of one clip; several videos, as a batch of as many.

        Args:
            frames: bytes or floats in [0, 1], "time height width channels", or the same behind an axis of the batch.
            masks: instance ids, the same without the channels.
            start: absolute index of the first step, for a video that comes in pieces.
        """
        if frames.ndim not in (4, 5) or frames.shape[-1] not in (1, 3):
            raise UserError(
                f"frames have the shape {frames.shape}; expected (time, height, width, channels), or the same after an "
                "axis of videos, with 1 or 3 channels"
            )
        if frames.dtype != np.uint8 and not np.issubdtype(frames.dtype, np.floating):
            raise UserError(f"frames are of {frames.dtype}; expected uint8 in 0..255, or floats in [0, 1]")
        if masks is not None and masks.shape != frames.shape[:-1]:
            raise UserError(f"masks have the shape {masks.shape}; expected that of the frames, {frames.shape[:-1]}")
        if masks is not None and masks.dtype.kind not in "iub":
            raise UserError(f"masks are of {masks.dtype}; expected integer ids, 0 = background")
        pixels = unit_frames(torch.from_numpy(np.ascontiguousarray(frames))).float()
        if frames.dtype != np.uint8:
            check_unit_range(pixels)
        pixels = rearrange(pixels, "... height width channels -> ... channels height width")
        ids = None if masks is None else torch.from_numpy(masks.astype(np.int64))
        if frames.ndim == 4:
            pixels, ids = pixels[None], None if ids is None else ids[None]
        time = torch.arange(start, start + pixels.shape[1]).repeat(len(pixels), 1)
        return cls(pixels, time, ids)

    @property
    def pixels(self) -> Float[Tensor, "batch time *views channels height width"]:
        """The frames as floats in [0, 1]: bytes divided by 255, floats as they are (`unit_frames`)."""
        return unit_frames(self.frames)

    @property
    def num_steps(self) -> int:
        """Time steps in the clip."""
        return self.frames.shape[1]

    def __len__(self) -> int:
        return self.frames.shape[0]

    def require(self, name: str) -> Tensor:
        """The field `name`; a ValueError if the data set does not have it."""
        value = getattr(self, name)
        if value is None:
            raise ValueError(f"this data set gives no {name}, which is needed here: choose a data set that does")
        return value

    @property
    def num_views(self) -> int:
        """Views that are shown per step."""
        return self.frames.shape[2] if self.frames.dim() == 6 else 1

    def all_views(self) -> VideoBatch:
        """Shown views and, behind them, those that are held out, without targets; both have an axis of views."""
        if self.held_out is None:
            return self
        joined: dict[str, Any] = {"frames": torch.cat([self.pixels, self.held_out.pixels], dim=2)}
        for name in ("masks", "rays", "features"):
            own, held = getattr(self, name), getattr(self.held_out, name)
            if own is not None and held is not None:
                joined[name] = torch.cat([own, held], dim=2)
        nothing = dict.fromkeys(("target", "target_masks", "target_time", "codes"))
        return replace(self, **({"masks": None} | nothing | joined), held_out=None)

    def take_rays(self, chosen: Integer[Tensor, "batch time rays"]) -> VideoBatch:
        """Some pixels of every step as one view of a single row, for a decoder that paints them (`paints_rays`).

        `chosen` counts pixels through views, rows and columns. The batch has `time`, and `frames`, `masks` and `rays`
        "batch time 1 channels 1 rays", "batch time 1 1 rays" and "batch time 1 6 1 rays".
        """
        rays = self.require("rays")
        views, height, width = rays.shape[2], rays.shape[-2], rays.shape[-1]

        def taken(value: Tensor) -> Tensor:
            # with an axis of channels, which masks get for the moment
            pixels = rearrange(value.expand(-1, -1, views, -1, height, width), "b t v c h w -> b t c (v h w)")
            index = chosen[:, :, None].expand(-1, -1, pixels.shape[2], -1)
            return pixels.gather(3, index)[:, :, None, :, None]

        masks = None if self.masks is None else taken(self.masks[:, :, :, None])[:, :, :, 0]
        return VideoBatch(taken(self.frames), self.time, masks, rays=taken(rays))

    def slice_time(self, start: int, stop: int) -> VideoBatch:
        """Steps `start` to `stop` (exclusive) of every clip, with the targets that are due within them."""
        cut: dict[str, Any] = {
            name: None if value is None else value[:, start:stop]
            for name in ("frames", "time", "masks", "actions", "rays", "features", "codes", "hidden")
            for value in [getattr(self, name)]
        }
        if self.target_time is not None:
            due = torch.isin(self.target_time[0], cut["time"][0])
            for name in ("target", "target_masks", "target_time"):
                value = getattr(self, name)
                cut[name] = None if value is None else value[:, due]
        if self.held_out is not None:
            cut["held_out"] = self.held_out.slice_time(start, stop)
        return replace(self, **cut)

    def map(self, function: Callable[[Tensor], Tensor]) -> VideoBatch:
        """A new batch with `function` applied to every tensor."""
        changed = {f.name: function(value) for f in fields(self) if isinstance(value := getattr(self, f.name), Tensor)}
        objects = {name: function(value) for name, value in self.objects.items()}
        held_out = None if self.held_out is None else self.held_out.map(function)
        return replace(self, **changed, objects=objects, held_out=held_out)

    @classmethod
    def join(cls, parts: Sequence[VideoBatch]) -> VideoBatch:
        """Batches, or clips as batches of one, put together along the batch axis."""
        first = parts[0]
        if len(parts) == 1:
            return first
        joined: dict[str, Any] = {
            f.name: torch.cat([getattr(part, f.name) for part in parts])
            for f in fields(first)
            if isinstance(getattr(first, f.name), Tensor)
        }
        joined["objects"] = {name: torch.cat([part.objects[name] for part in parts]) for name in first.objects}
        if first.held_out is not None:
            joined["held_out"] = cls.join([part.held_out for part in parts if part.held_out is not None])
        return replace(first, **joined)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> VideoBatch:
        """The batch on another device."""
        return self.map(lambda value: value.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> VideoBatch:
        """The batch in page-locked memory."""
        return self.map(Tensor.pin_memory)


def _frames_alone(frames: Any) -> Tensor:
    """Frames that come without anything else, as a tensor with all axes."""
    if isinstance(frames, np.ndarray):
        frames = torch.tensor(frames, dtype=torch.get_default_dtype() if frames.dtype.kind == "f" else None)
    if not isinstance(frames, Tensor) or frames.dim() not in (5, 6):
        found = f"the shape {list(frames.shape)}" if isinstance(frames, Tensor) else f"the type {type(frames).__name__}"
        raise UserError(
            f'frames have {found}; expected a tensor "batch time channels height width": frames[None] of one clip, or '
            'VideoBatch.from_numpy(video) of an array "time height width channels"'
        )
    return frames


def to_unit_range(batch: VideoBatch) -> VideoBatch:
    """The batch with `pixels` for its frames, held-out views too, so that later steps need not convert them again.

    Frames that come with features stay as they are.
    """
    if batch.features is not None:  # frames are for pictures: converting them takes longer than reading the clip
        return batch
    frames, held_out = unit_frames(batch.frames), batch.held_out and to_unit_range(batch.held_out)
    if frames is batch.frames and held_out is batch.held_out:
        return batch
    return replace(batch, frames=frames, held_out=held_out)


def unit_frames(frames: Tensor) -> Tensor:
    """Frames of bytes as floats in [0, 1]; frames that are floats stay as they are.

    Example:
        >>> unit_frames(torch.tensor([0, 51, 255], dtype=torch.uint8))
        tensor([0.0000, 0.2000, 1.0000])
    """
    if frames.is_floating_point():
        return frames
    if frames.dtype != torch.uint8:
        raise UserError(f"frames are of {frames.dtype}; expected bytes (uint8) in 0..255, or floats in [0, 1]")
    return frames.float().div_(255)


def check_unit_range(frames: Tensor) -> None:
    """Refuses floats that are not in [0, 1], up to 0.01 beyond, as those in 0..255 are; it reads every pixel."""
    if not frames.numel():
        return
    low, high = (float(value) for value in frames.detach().aminmax())
    if not -_BEYOND <= low <= high <= 1 + _BEYOND:
        raise UserError(
            f"frames go from {low:g} to {high:g}; expected floats in [0, 1], or bytes (uint8) in 0..255: divide "
            "by 255, undo a normalisation, or clamp what resizing overshoots"
        )
