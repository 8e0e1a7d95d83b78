"""White balls that bounce in an empty box: video prediction (SlotSSM, section 7.1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from einops import rearrange
from torch import Tensor
from torch.utils.data import Dataset

from slotbench.data.ball_kernel import Kernel, use_numba
from slotbench.data.ball_physics import Balls, BallWorld, covered, object_log, simulate
from slotbench.data.base import ClipDataset, SlotDataModule, Split, generator_for
from slotbench.interfaces import DataSpec, VideoBatch, VideoSpec

__all__ = ["BouncingBalls"]


class BouncingBalls(SlotDataModule):
    """Clips of white balls on black, made on the fly.

    Frames have one channel of 0 or 255. In `masks` ball i is i + 1; where two balls touch within a pixel, the first one
    is seen. `objects` has "positions" and "velocities" (batch frames objects 2) in box units, the box being [0, 10]^2,
    and "radii" and "masses" (batch objects). The clip is its own target.

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
        use_numba(kernel)  # complains about a kernel that cannot run
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

    def continuations(self, batch: VideoBatch, context: int, horizon: int) -> dict[str, Tensor]:
        """Balls that go straight on through everything, and balls that turn at the walls but pass through each other.

        Both start from the logged position and velocity in the last context frame.
        """
        now = context - 1
        log = {name: batch.objects[name].double().cpu() for name in ("positions", "velocities", "radii")}
        positions, velocities, radii = log["positions"][:, now], log["velocities"][:, now], log["radii"]
        steps = torch.arange(1, horizon + 1, dtype=torch.float64)[:, None, None]
        straight = positions[:, None] + steps * velocities[:, None]
        # a ball in a box of its own meets walls only; its mass does not matter
        alone = Balls(*(x.flatten(0, 1)[:, None].numpy() for x in (positions, velocities, radii, radii)))
        bounced = torch.from_numpy(simulate(alone, horizon + 1, self.resolution, self.kernel).positions[:, 1:, 0])
        bounced = rearrange(bounced, "(batch objects) time xy -> batch time objects xy", batch=len(batch))
        predictors = {"constant velocity": straight, "constant velocity, walls": bounced}
        return {
            name: covered(paths, radii, self.resolution)[:, :, None].to(batch.frames)
            for name, paths in predictors.items()
        }

    def dataset(self, split: Split) -> Dataset[VideoBatch]:
        """Clips of `num_frames` frames for training, of `eval_frames` frames otherwise."""
        return _Clips(self, split)


class _Clips(ClipDataset):
    def __init__(self, data: BouncingBalls, split: Split) -> None:
        super().__init__(data.sizes[split])
        # not `data` itself: it would carry a trainer into the workers
        self.world = data.world
        self.num_frames = data.num_frames if split == "train" else data.eval_frames
        self.resolution = data.resolution
        self.kernel = data.kernel
        self.seed = data.seed
        self.split = split

    def clips(self, indices: Sequence[int]) -> VideoBatch:
        balls = self.world.draw([generator_for(self.seed, self.split, index) for index in indices])
        trajectory = simulate(balls, self.num_frames, self.resolution, self.kernel)
        frames = (trajectory.ids > 0).view(np.uint8) * np.uint8(255)
        return VideoBatch(
            frames=torch.from_numpy(frames)[:, :, None],
            time=torch.arange(self.num_frames).repeat(len(indices), 1),
            masks=torch.from_numpy(trajectory.ids),
            objects=object_log(balls, trajectory),
        )
