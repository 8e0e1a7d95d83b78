"""Blinking Color Balls, the long-context benchmark of SlotSSM: predict the next frame with every ball in its colour.

Source: SlotSSM, section 7.2 and appendix B.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from slotbench.data.balls.blinking_colours import (
    BACKGROUND,
    FIRST_COLOUR,
    PALETTE,
    RULES,
    WHITE,
    Rule,
    paint,
    rule_classes,
)
from slotbench.data.balls.physics import BallWorld, object_log, simulate
from slotbench.data.base import LoaderOptions, SimulatedData, Split, check_counts
from slotbench.interfaces import DataSpec, VideoBatch, VideoSpec

__all__ = ["BlinkingBalls"]

_TOKEN = 4  # pixels per side of the squares that a patch is cut into


class BlinkingBalls(SimulatedData):
    """Blinking Color Balls: the next frame is to be predicted, every ball in the colour that its history determines.

    An episode has `num_frames` frames. All but the last, the context, come as a sequence of (T - 1) * P^2 patches,
    row-major. In each context frame one ball, drawn at random, has one of five colours, and the others are white. After
    each context frame a target is due: the next frame, every ball coloured by `rule` from its own history so far. The
    last target is the benchmark's; the others serve as dense supervision. Motion knows nothing of colours, and neither
    motion nor draws know of rule, resolution or patches: an index shows the same episode under all of them.

    `objects` has "positions" and "velocities" (batch T objects 2) in box units, the box being [0, 10]^2; "radii" and
    "masses" (batch objects); "context" (batch T-1 2), the ball painted in each context frame (from 0) and its class;
    and "earliest", "most_frequent" and "last" (batch T-1 objects), the class of each ball in each target under that
    rule. In `masks` and `target_masks` ball i is i + 1.

    Source: SlotSSM, section 7.2 and appendix B; ball count, sizes, resolution and palette are not stated there.

    Args:
        rule: what colours a ball in the target: the earliest colour it received or the most frequent one.
        num_frames: frames of an episode, the last target included (the paper's are 6 and 11).
        patches_per_side: cells per side that a context frame is cut into (the paper's are 4, 8 and 16).
        num_balls: balls per episode.
        radii: radii to draw from, uniformly and for each ball.
        masses: masses to draw from likewise.
        mass_follows_radius: ties the i-th mass to the i-th radius, so that a ball's mass can be seen.
    """

    def __init__(
        self,
        rule: Rule = "earliest",
        num_frames: int = 6,
        patches_per_side: int = 4,
        num_balls: int = 4,
        resolution: int = 64,
        radii: tuple[float, ...] = (1.2, 1.5),
        masses: tuple[float, ...] = (1.0, 6.0),
        mass_follows_radius: bool = False,
        loader: LoaderOptions = LoaderOptions(),
    ) -> None:
        super().__init__(loader)
        if num_frames < 2:
            raise ValueError(f"num_frames is {num_frames}; expected 2 or more: one to look at and one to predict")
        check_counts(patches_per_side=patches_per_side)
        unit = _TOKEN * patches_per_side
        if resolution < unit or resolution % unit:
            raise ValueError(f"resolution is {resolution}; expected a multiple of {unit} at {patches_per_side=}")
        self.world = BallWorld(num_balls, tuple(radii), tuple(masses), mass_follows_radius)
        self.rule: Rule = rule
        self.num_frames = num_frames
        self.patches_per_side = patches_per_side
        self.resolution = resolution

    @property
    def spec(self) -> DataSpec:
        """Patches of RGB in, a whole image of seven classes out."""
        patch = self.resolution // self.patches_per_side
        return DataSpec(
            input=VideoSpec(channels=3, height=patch, width=patch, patches_per_side=self.patches_per_side),
            target=VideoSpec(
                channels=len(PALETTE),
                height=self.resolution,
                width=self.resolution,
                palette=tuple((red, green, blue) for red, green, blue in PALETTE.tolist()),
            ),
        )

    def overrides_for_length(self, split: Split, frames: int, clips: int) -> dict[str, Any]:
        """Episodes of so many frames, the last target included."""
        return {"num_frames": frames}

    def simulate(self, split: Split, generators: list[np.random.Generator]) -> VideoBatch:
        """The episodes of a split."""
        # first the balls, then the colours: so the balls move alike whatever is painted
        balls = self.world.draw(generators)
        num_balls, num_context = self.world.num_balls, self.num_frames - 1
        draws = [g.integers((num_balls, len(PALETTE) - FIRST_COLOUR), size=(num_context, 2)) for g in generators]
        context = np.stack(draws) + np.array([0, FIRST_COLOUR])
        by_clip = [rule_classes(clip, num_balls) for clip in context]
        classes = {rule: np.stack([clip[rule] for clip in by_clip]) for rule in RULES}
        trajectory = simulate(balls, self.num_frames, self.resolution)

        # the class of the background and of each ball, in every frame that is shown and that is asked for
        shown = np.full((len(generators), num_context, num_balls + 1), WHITE, dtype=np.uint8)
        shown[:, :, 0] = BACKGROUND
        asked = shown.copy()
        np.put_along_axis(shown, context[:, :, :1] + 1, context[:, :, 1:].astype(np.uint8), axis=2)
        asked[:, :, 1:] = classes[self.rule]
        frames, masks, target = paint(trajectory.ids, shown, asked, self.patches_per_side)
        per_frame = self.patches_per_side**2
        due = (torch.arange(num_context) + 1) * per_frame - 1
        return VideoBatch(
            frames=torch.from_numpy(frames),
            time=torch.arange(num_context * per_frame).repeat(len(frames), 1),
            masks=torch.from_numpy(masks),
            target=torch.from_numpy(target),
            target_masks=torch.from_numpy(trajectory.ids[:, 1:]),
            target_time=due.repeat(len(frames), 1),
            objects={
                **object_log(balls, trajectory),
                "context": torch.from_numpy(context),
                **{rule: torch.from_numpy(by_ball) for rule, by_ball in classes.items()},
            },
        )
