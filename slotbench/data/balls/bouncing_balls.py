"""White balls that bounce in an empty box: video prediction (SlotSSM, section 7.1)."""

from __future__ import annotations

import numpy as np
import torch
from einops import rearrange
from torch import Tensor

from slotbench.data.balls.physics import Balls, BallWorld, covered, object_log, simulate
from slotbench.data.base import LoaderOptions, SimulatedData, Split, check_counts
from slotbench.interfaces import DataSpec, VideoBatch

__all__ = ["BouncingBalls"]


class BouncingBalls(SimulatedData):
    """Bouncing Balls: clips of white balls on black, simulated on the fly, for video prediction.

    Frames have one channel of 0 or 255. In `masks` ball i is i + 1; where two balls touch within a pixel, the first one
    is seen. `objects` has "positions" and "velocities" (batch frames objects 2) in box units, the box being [0, 10]^2,
    and "radii" and "masses" (batch objects). The clip is its own target.

    Source: SlotSSM, section 7.1; ball count, sizes and resolution are those of the R-NEM data.

    Args:
        num_balls: balls per clip.
        eval_frames: frames of a validation or test clip (10 to look at and 20 to continue).
        radii: radii to draw from, uniformly and for each ball.
        masses: masses to draw from likewise.
        mass_follows_radius: ties the i-th mass to the i-th radius, as in the R-NEM data, so that a ball's mass can be
            seen; with masses drawn on their own, what two balls do when they meet cannot be known beforehand.
    """

    def __init__(
        self,
        num_balls: int = 4,
        num_frames: int = 20,
        eval_frames: int = 30,
        resolution: int = 64,
        radii: tuple[float, ...] = (1.2, 1.5),
        masses: tuple[float, ...] = (1.0, 6.0),
        mass_follows_radius: bool = True,
        loader: LoaderOptions = LoaderOptions(),
    ) -> None:
        super().__init__(loader)
        check_counts(num_frames=num_frames, eval_frames=eval_frames, resolution=resolution)
        self.world = BallWorld(num_balls, tuple(radii), tuple(masses), mass_follows_radius)
        self.num_frames = num_frames
        self.eval_frames = eval_frames
        self.resolution = resolution

    @property
    def spec(self) -> DataSpec:
        """Frames of one channel, which are their own target."""
        return DataSpec.of_frames(1, self.resolution)

    def oracle_predictions(self, batch: VideoBatch, context: int, horizon: int) -> dict[str, Tensor]:
        """Oracles: balls that move straight on, balls that turn at the walls only, and the whole simulator.

        All start from the logged position and velocity in the last context frame; the last knows the masses too, and
        differs from the truth by the single precision of the log alone.
        """
        now = context - 1
        names = ("positions", "velocities", "radii", "masses")
        log = {name: batch.objects[name].double().cpu() for name in names}
        positions, velocities, radii = log["positions"][:, now], log["velocities"][:, now], log["radii"]
        steps = torch.arange(1, horizon + 1, dtype=torch.float64)[:, None, None]
        straight = positions[:, None] + steps * velocities[:, None]
        # a ball in a box of its own meets walls only; its mass does not matter
        alone = Balls(*(x.flatten(0, 1)[:, None].numpy() for x in (positions, velocities, radii, radii)))
        bounced = torch.from_numpy(simulate(alone, horizon + 1, self.resolution).positions[:, 1:, 0])
        bounced = rearrange(bounced, "(batch objects) time xy -> batch time objects xy", batch=len(batch))
        balls = Balls(*(x.numpy() for x in (positions, velocities, radii, log["masses"])))
        simulated = torch.from_numpy(simulate(balls, horizon + 1, self.resolution).positions[:, 1:])
        predictors = {"constant velocity": straight, "constant velocity, walls": bounced, "simulator": simulated}
        return {
            name: covered(paths, radii, self.resolution)[:, :, None].to(batch.pixels)
            for name, paths in predictors.items()
        }

    def simulate(self, split: Split, generators: list[np.random.Generator]) -> VideoBatch:
        """Clips of `num_frames` frames for training, of `eval_frames` frames otherwise."""
        balls = self.world.draw(generators)
        trajectory = simulate(balls, self.num_frames if split == "train" else self.eval_frames, self.resolution)
        frames = (trajectory.ids > 0).view(np.uint8) * np.uint8(255)
        return VideoBatch(
            frames=torch.from_numpy(frames)[:, :, None],
            time=torch.arange(frames.shape[1]).repeat(len(frames), 1),
            masks=torch.from_numpy(trajectory.ids),
            objects=object_log(balls, trajectory),
        )
