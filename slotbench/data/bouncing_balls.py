"""White balls that bounce in an empty box: video prediction (SlotSSM, section 7.1)."""

from __future__ import annotations

import numpy as np
import torch
from torch.utils.data import Dataset

from slotbench.data.ball_physics import BallWorld, Kernel, simulate
from slotbench.data.base import SlotDataModule, Split, generator_for
from slotbench.interfaces import DataSpec, VideoBatch, VideoSpec

__all__ = ["BouncingBalls"]


class BouncingBalls(SlotDataModule):
    """Clips of white balls on black, made on the fly.

    Frames have one channel of 0 or 255. `masks` has ball i as i + 1; where two balls touch within a pixel, the first is seen.
    `objects` has "positions" and "velocities" (batch frames objects 2) in box units, the box being [0, 10]^2, and "radii" and
    "masses" (batch objects). The clip is its own target.

    Source: SlotSSM, section 7.1; ball count, sizes and resolution are those of the R-NEM data.

    Args:
        num_balls: balls per clip.
        num_frames: frames of a training clip.
        eval_frames: frames of a validation or test clip (10 to look at and 20 to continue).
        resolution: pixels per side.
        radii: radii to draw from, uniformly and for each ball.
        masses: masses to draw from likewise.
        mass_follows_radius: ties the i-th mass to the i-th radius, so that a ball's mass can be seen.
        kernel: "numba", "numpy", or "auto", the faster of those installed; the bytes are the same.
        batch_size: clips per training batch.
        val_batch_size: clips per batch in validation and test.
        num_workers: processes that make clips; 0 is best unless the training process is the bottleneck.
        seed: with the split and the index it determines a clip.
        train_size: clips in the training split.
        val_size: clips in the validation split.
        test_size: clips in the test split.

    Raises:
        ValueError: for arguments that cannot be, and for balls that do not fit into the box.
    """

    def __init__(
        self,
        num_balls: int = 4,
        num_frames: int = 20,
        eval_frames: int = 30,
        resolution: int = 64,
        radii: tuple[float, ...] = (1.2, 1.5),
        masses: tuple[float, ...] = (1.0, 6.0),
        mass_follows_radius: bool = False,
        kernel: Kernel = "auto",
        batch_size: int = 16,
        val_batch_size: int = 64,
        num_workers: int = 0,
        seed: int = 0,
        train_size: int = 1_000_000,
        val_size: int = 1000,
        test_size: int = 1000,
    ) -> None:
        super().__init__(batch_size, val_batch_size, num_workers, seed, train_size, val_size, test_size)
        for name, value in {"num_frames": num_frames, "eval_frames": eval_frames, "resolution": resolution}.items():
            if value < 1:
                raise ValueError(f"{name} is {value}; expected 1 or more")
        self.world = BallWorld(num_balls, tuple(radii), tuple(masses), mass_follows_radius)
        self.num_frames = num_frames
        self.eval_frames = eval_frames
        self.resolution = resolution
        self.kernel: Kernel = kernel

    @property
    def spec(self) -> DataSpec:
        """One channel in, one channel out."""
        frame = VideoSpec(channels=1, height=self.resolution, width=self.resolution)
        return DataSpec(input=frame, target=frame)

    def dataset(self, split: Split) -> Dataset[VideoBatch]:
        """Clips of `num_frames` frames for training, of `eval_frames` frames otherwise."""
        num_frames = self.num_frames if split == "train" else self.eval_frames
        return _Clips(self.world, num_frames, self.resolution, self.kernel, self.seed, split, self.sizes[split])


class _Clips(Dataset[VideoBatch]):
    def __init__(
        self, world: BallWorld, num_frames: int, resolution: int, kernel: Kernel, seed: int, split: Split, size: int
    ) -> None:
        self.world = world
        self.num_frames = num_frames
        self.resolution = resolution
        self.kernel: Kernel = kernel
        self.seed = seed
        self.split: Split = split
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> VideoBatch:
        if not 0 <= index < self.size:
            raise IndexError(f"clip {index} of {self.size}")
        balls = self.world.draw(generator_for(self.seed, self.split, index))
        trajectory = simulate(balls, self.num_frames, self.resolution, self.kernel)
        frames = np.where(trajectory.ids > 0, np.uint8(255), np.uint8(0))
        return VideoBatch(
            frames=torch.from_numpy(frames)[None, :, None],
            time=torch.arange(self.num_frames)[None],
            masks=torch.from_numpy(trajectory.ids)[None],
            objects={
                "positions": torch.from_numpy(trajectory.positions.astype(np.float32))[None],
                "velocities": torch.from_numpy(trajectory.velocities.astype(np.float32))[None],
                "radii": torch.from_numpy(balls.radii.astype(np.float32))[None],
                "masses": torch.from_numpy(balls.masses.astype(np.float32))[None],
            },
        )
