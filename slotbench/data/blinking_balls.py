"""Blinking Color Balls: remember, over a long sequence of patches, which ball was painted how (SlotSSM, section 7.2, appendix B)."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Integer, UInt8
from torch.utils.data import Dataset

from slotbench.data.ball_physics import BallWorld, Kernel, simulate
from slotbench.data.base import SlotDataModule, Split, generator_for
from slotbench.interfaces import DataSpec, VideoBatch, VideoSpec

__all__ = [
    "PALETTE",
    "RULES",
    "WHITE",
    "BlinkingBalls",
    "Rule",
    "dequantise",
    "patchify",
    "quantise",
    "rule_classes",
    "unpatchify",
]

Rule = Literal["earliest", "most_frequent"]

RULES = ("earliest", "most_frequent", "last")
"""The rules that a sample logs the colours of: the two that make a task, and the trivial one that needs no memory of order."""

PALETTE = np.array(
    [(0, 0, 0), (255, 255, 255), (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0), (255, 0, 255)], dtype=np.uint8
)
"""The seven classes: 0 background (black), 1 white, then red, green, blue, yellow and magenta."""

WHITE = 1
_FIRST_COLOUR = 2
_TOKEN = 4  # pixels per side of the squares that a patch is cut into


def dequantise(classes: UInt8[np.ndarray, "*shape"]) -> UInt8[np.ndarray, "*shape 3"]:
    """The colour image of a class image, channels last."""
    return PALETTE[classes]


# bit c of the code of a palette colour says whether channel c is on; the codes of two RGB colours, cyan and none, stay free
_CLASS_OF_CODE = np.full(8, 255, dtype=np.uint8)
_CLASS_OF_CODE[(PALETTE // 255) @ np.array([1, 2, 4])] = np.arange(len(PALETTE))


def quantise(rgb: UInt8[np.ndarray, "*shape 3"]) -> UInt8[np.ndarray, "*shape"]:
    """The class image of a colour image, channels last; the exact inverse of `dequantise`.

    Raises:
        ValueError: if a pixel has none of the seven colours.
    """
    classes = _CLASS_OF_CODE[(rgb // 255) @ np.array([1, 2, 4])]
    wrong = (classes == 255) | ((rgb != 0) & (rgb != 255)).any(-1)
    if wrong.any():
        raise ValueError(
            f"{int(wrong.sum())} pixels have a colour outside the palette, the first {rgb[wrong][0].tolist()}; "
            f"expected only {PALETTE.tolist()}: turn off smoothing and lossy compression"
        )
    return classes


def patchify(video: Integer[np.ndarray, "frames height width *channels"], patches_per_side: int) -> np.ndarray:
    """Cuts each frame into P x P cells, row-major, and lays them out in time: step s is cell s % P^2 of frame s // P^2."""
    p = patches_per_side
    return rearrange(video, "frames (y h) (x w) ... -> (frames y x) h w ...", y=p, x=p)


def unpatchify(steps: Integer[np.ndarray, "time height width *channels"], patches_per_side: int) -> np.ndarray:
    """Puts the cells that `patchify` cut back into frames."""
    p = patches_per_side
    return rearrange(steps, "(frames y x) h w ... -> frames (y h) (x w) ...", y=p, x=p)


def rule_classes(
    drawn: Integer[np.ndarray, " frames"], colours: Integer[np.ndarray, " frames"], num_balls: int
) -> dict[str, Integer[np.ndarray, "frames objects"]]:
    """The class of every ball after every context frame, under each of `RULES`.

    Source: SlotSSM, appendix B: the earliest colour a ball received; the one it received most often, of equals the one it received
    first; white if it received none. Not the paper's: the last colour, a floor.

    Args:
        drawn: the ball painted in each context frame, from 0.
        colours: the class it was painted in.
        num_balls: balls in the clip.
    """
    classes = {rule: np.full((len(drawn), num_balls), WHITE) for rule in RULES}
    counts: list[dict[int, int]] = [{} for _ in range(num_balls)]
    for frame, (ball, colour) in enumerate(zip(drawn.tolist(), colours.tolist(), strict=True)):
        count = counts[ball]
        count[colour] = count.get(colour, 0) + 1
        # a dict keeps the order of first insertion and max takes the first of equals: that is the rule for ties
        classes["earliest"][frame:, ball] = next(iter(count))
        classes["most_frequent"][frame:, ball] = max(count, key=count.__getitem__)
        classes["last"][frame:, ball] = colour
    return classes


class BlinkingBalls(SlotDataModule):
    """Balls bounce; in each context frame one of them, drawn at random, shows one of five colours; how will they look next?

    An episode has `num_frames` frames. The first T - 1, the context, come as a sequence of (T - 1) * P^2 patches, row-major. After each
    context frame a target is due: the next frame with every ball coloured by `rule` from its own history so far. The last one is the
    benchmark's; the others serve as dense supervision. Motion knows nothing of colours, of the rule, of resolution or patches:
    the same index shows the same balls and the same draws.

    `objects` has "positions" and "velocities" (batch T objects 2) in box units, "radii" and "masses" (batch objects), "context" (batch T-1 2),
    the ball painted in each context frame (from 0) and its class, and "earliest", "most_frequent" and "last" (batch T-1 objects), each ball's
    class in each target under that rule. In `masks` and `target_masks` ball i is i + 1.

    Source: SlotSSM, section 7.2 and appendix B; ball count, sizes, resolution and palette are not stated there.

    Args:
        rule: what colours a ball in the target: the earliest colour it received or the most frequent one.
        num_frames: frames of an episode, the last target included (the paper's are 6 and 11).
        patches_per_side: cells per side that a context frame is cut into (the paper's are 4, 8 and 16).
        num_balls: balls per episode.
        resolution: pixels per side of a frame.
        radii: radii to draw from, uniformly and for each ball.
        masses: masses to draw from likewise.
        mass_follows_radius: ties the i-th mass to the i-th radius, so that a ball's mass can be seen.
        kernel: "numba", "numpy", or "auto", the faster of those installed; the bytes are the same.
        batch_size: episodes per training batch.
        val_batch_size: episodes per batch in validation and test.
        num_workers: processes that make episodes; 0 is best unless the training process is the bottleneck.
        seed: with the split and the index it determines an episode.
        train_size: episodes in the training split.
        val_size: episodes in the validation split.
        test_size: episodes in the test split.

    Raises:
        ValueError: for arguments that cannot be, and for balls that do not fit into the box.
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
        if rule not in ("earliest", "most_frequent"):
            raise ValueError(f"rule is {rule!r}; expected 'earliest' or 'most_frequent'")
        if num_frames < 2:
            raise ValueError(f"num_frames is {num_frames}; expected 2 or more: one to look at and one to predict")
        if patches_per_side < 1:
            raise ValueError(f"patches_per_side is {patches_per_side}; expected 1 or more")
        unit = _TOKEN * patches_per_side
        if resolution < unit or resolution % unit:
            nearest = max(unit, round(resolution / unit) * unit)
            raise ValueError(
                f"resolution is {resolution} at patches_per_side={patches_per_side}; expected a multiple of {unit}, because each patch is "
                f"cut into tokens of {_TOKEN} x {_TOKEN} pixels: use resolution={nearest} or fewer patches"
            )
        self.world = BallWorld(num_balls, tuple(radii), tuple(masses), mass_follows_radius)
        self.rule: Rule = rule
        self.num_frames = num_frames
        self.patches_per_side = patches_per_side
        self.resolution = resolution
        self.kernel: Kernel = kernel

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

    def dataset(self, split: Split) -> Dataset[VideoBatch]:
        """The episodes of a split."""
        return _Episodes(self, split)


class _Episodes(Dataset[VideoBatch]):
    def __init__(self, data: BlinkingBalls, split: Split) -> None:
        # not `data` itself: it would carry a trainer into the workers
        self.world = data.world
        self.rule = data.rule
        self.num_frames = data.num_frames
        self.patches_per_side = data.patches_per_side
        self.resolution = data.resolution
        self.kernel = data.kernel
        self.seed = data.seed
        self.split: Split = split
        self.size = data.sizes[split]

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> VideoBatch:
        if not 0 <= index < self.size:
            raise IndexError(f"episode {index} of {self.size}")
        generator = generator_for(self.seed, self.split, index)
        # the balls first and the colours after: so motion is the same whatever is painted
        balls = self.world.draw(generator)
        num_balls, num_context = self.world.num_balls, self.num_frames - 1
        paint = generator.integers((num_balls, len(PALETTE) - _FIRST_COLOUR), size=(num_context, 2))
        drawn, colours = paint[:, 0], paint[:, 1] + _FIRST_COLOUR
        classes = rule_classes(drawn, colours, num_balls)
        trajectory = simulate(balls, self.num_frames, self.resolution, self.kernel)

        # one row per frame: the class of the background, then of each ball
        context = np.full((num_context, num_balls + 1), WHITE, dtype=np.uint8)
        context[:, 0] = 0
        target = context.copy()
        context[np.arange(num_context), drawn + 1] = colours
        target[:, 1:] = classes[self.rule]
        frame = np.arange(num_context)[:, None, None]
        masks = patchify(trajectory.ids[:-1], self.patches_per_side)
        frames = patchify(dequantise(context[frame, trajectory.ids[:-1]]), self.patches_per_side)
        per_frame = self.patches_per_side**2
        return VideoBatch(
            frames=torch.from_numpy(frames).permute(0, 3, 1, 2)[None],
            time=torch.arange(num_context * per_frame)[None],
            masks=torch.from_numpy(masks)[None],
            target=torch.from_numpy(target[frame, trajectory.ids[1:]])[None],
            target_masks=torch.from_numpy(trajectory.ids[1:])[None],
            target_time=((torch.arange(num_context) + 1) * per_frame - 1)[None],
            objects={
                "positions": torch.from_numpy(trajectory.positions.astype(np.float32))[None],
                "velocities": torch.from_numpy(trajectory.velocities.astype(np.float32))[None],
                "radii": torch.from_numpy(balls.radii.astype(np.float32))[None],
                "masses": torch.from_numpy(balls.masses.astype(np.float32))[None],
                "context": torch.from_numpy(np.stack([drawn, colours], axis=-1))[None],
                **{rule: torch.from_numpy(by_ball)[None] for rule, by_ball in classes.items()},
            },
        )
