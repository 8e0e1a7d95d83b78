"""Sprites that drift: where and when they appear, how they look, and which pixels they cover.

Source: Lin, "Modular Neural Networks for Video Prediction" (M.Sc. thesis, TU Delft, 2022), section 4.1.1, whose
generator is not public; shapes, colours and jitter of sizes as in the Sprites-MOT script of He et al., "Tracking by
Animation" (CVPR 2019).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float64, Int64, UInt8

from slotbench.data.compiled import compiled

__all__ = ["COLOURS", "SHAPES", "DrawnSprites", "SpriteWorld", "Sprites", "Texture", "draw_sprites"]

Texture = Literal["none", "sprites", "background", "both"]

COLOURS = {
    "red": (255, 0, 0),
    "green": (0, 255, 0),
    "blue": (0, 0, 255),
    "yellow": (255, 255, 0),
    "magenta": (255, 0, 255),
    "cyan": (0, 255, 255),
}
"""Red, green and blue in 0..255 of the colours that a sprite may have."""

SHAPES = ("circle", "triangle", "rectangle", "diamond")

_SIDE = 64  # of the frame in whose pixels sizes and speeds are given
_MARGIN = 10.0  # of that frame: sprites appear with their centre no nearer to its edge
_SIZES, _ASPECTS = (0.9, 1.1), (0.8, 1.2)
_GRID = 8  # values per side of a texture
_BACKGROUND = 0.5  # brightness of a textured background at most
_ATTEMPTS = 1000
_FIXED_DRAWS = 7  # shape, colour, size, aspect, place (2), direction


@dataclass(frozen=True)
class Sprites:
    """The sprites of some clips, with all that is needed to draw them.

    Attributes:
        births: the frame in which each appears, -1 for never.
        starts: x and y of its centre then, in pixels; the centre of the first pixel is (0, 0).
        velocities: its displacement per frame, in pixels.
        sizes: its height and width in pixels.
        shapes: which of `SHAPES`.
        colours: place of its colour in `COLOURS`.
        textures: brightness 0..1 at the points of a grid that is laid over the sprite.
        backgrounds: red, green and blue 0..1 at the points of a grid that is laid over the frame; None for black.
    """

    births: Int64[np.ndarray, "batch objects"]
    starts: Float64[np.ndarray, "batch objects 2"]
    velocities: Float64[np.ndarray, "batch objects 2"]
    sizes: Int64[np.ndarray, "batch objects 2"]
    shapes: Int64[np.ndarray, "batch objects"]
    colours: Int64[np.ndarray, "batch objects"]
    textures: Float64[np.ndarray, "batch objects rows cols"]
    backgrounds: Float64[np.ndarray, "batch 3 rows cols"] | None = None


@dataclass(frozen=True)
class DrawnSprites:
    """The image of some sprites.

    Attributes:
        frames: in 0..255.
        masks: 0 for background, i + 1 where sprite i is seen.
        visibility: pixels of each in `masks`.
        bboxes: top, left, bottom and right of these pixels, in 0..1; zeros where there are none.
    """

    frames: UInt8[np.ndarray, "batch time 3 height width"]
    masks: UInt8[np.ndarray, "batch time height width"]
    visibility: Int64[np.ndarray, "batch time objects"]
    bboxes: Float64[np.ndarray, "batch time objects 4"]


@dataclass(frozen=True)
class SpriteWorld:
    """The distribution that sprites are drawn from; `MovingSprites` has the arguments."""

    num_sprites: int = 3
    resolution: int = _SIDE
    base_size: float = 21.0
    speed: float = 2.65
    colours: tuple[str, ...] = tuple(COLOURS)
    occlusion: bool = True
    birth_probability: float = 0.5
    birth_frames: int = 2
    texture: Texture = "none"

    def __post_init__(self) -> None:
        if not 1 <= self.num_sprites <= 255:
            raise ValueError(f"num_sprites is {self.num_sprites}; expected 1 to 255 (an instance id is one byte)")
        for name in ("resolution", "birth_frames"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"{name} is {value}; expected 1 or more")
        if not self.colours or not set(self.colours) <= set(COLOURS):
            raise ValueError(f"colours is {list(self.colours)}; expected one or more of {', '.join(COLOURS)}")

    def draw(self, generators: Sequence[np.random.Generator], num_frames: int) -> Sprites:
        """Draws the sprites of one clip from each generator."""
        drawn = [self._draw(generator, num_frames) for generator in generators]
        sprites = self._sprites(np.stack([uniform for uniform, _, _ in drawn]))
        if self.texture in ("sprites", "both"):
            sprites.textures[:] = np.stack([textures for _, textures, _ in drawn])
        if self.texture in ("background", "both"):
            backgrounds = np.stack([background for _, _, background in drawn])
            return Sprites(**{**vars(sprites), "backgrounds": backgrounds})
        return sprites

    def _draw(self, generator: np.random.Generator, num_frames: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Numbers in [0, 1) of one clip: those that make its sprites, and the two kinds of texture."""
        frames = min(self.birth_frames, num_frames)
        for _ in range(_ATTEMPTS):
            uniform = generator.random((self.num_sprites, _FIXED_DRAWS + frames))
            if not (uniform[:, _FIXED_DRAWS:] < self.birth_probability).any():
                continue  # a clip without a sprite
            if self.occlusion or not _overlap(self._sprites(uniform[None]), num_frames, self.resolution):
                break
        else:
            raise ValueError(
                f"found no clip of {self.num_sprites} sprites of base size {self.base_size:g} that never overlap, or "
                f"in which one appears, in {_ATTEMPTS} attempts: lower num_sprites, base_size or the number of "
                "frames, raise birth_probability, or allow occlusion"
            )
        if self.texture == "none":
            return uniform, np.empty(0), np.empty(0)
        # after the sprites, which are the same under all textures; in the log's precision
        grids = generator.random((self.num_sprites + 3, _GRID, _GRID), dtype=np.float32).astype(np.float64)
        return uniform, grids[:-3], grids[-3:]

    def _sprites(self, uniform: Float64[np.ndarray, "batch objects draws"]) -> Sprites:
        """The sprites that numbers in [0, 1) stand for."""
        born = uniform[..., _FIXED_DRAWS:] < self.birth_probability
        births = np.where(born.any(-1), born.argmax(-1), -1)
        pixel = self.resolution / _SIDE
        size = self.base_size * pixel * _between(uniform[..., 2], _SIZES)
        aspect = np.sqrt(_between(uniform[..., 3], _ASPECTS))
        margin = _MARGIN * pixel
        starts = margin + uniform[..., 4:6] * (self.resolution - 1 - 2 * margin)
        angle = uniform[..., 6] * (2 * math.pi)
        velocities = self.speed * pixel * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
        palette = np.array([list(COLOURS).index(name) for name in self.colours])
        return Sprites(
            births=births,
            # what the log has in single precision is all that there is to know
            starts=starts.astype(np.float32).astype(np.float64),
            velocities=velocities.astype(np.float32).astype(np.float64),
            sizes=np.maximum(np.rint(np.stack([size * aspect, size / aspect], axis=-1)), 1).astype(np.int64),
            shapes=(uniform[..., 0] * len(SHAPES)).astype(np.int64),
            colours=palette[(uniform[..., 1] * len(palette)).astype(np.int64)],
            textures=np.ones((*births.shape, _GRID, _GRID)),
        )


def draw_sprites(sprites: Sprites, num_frames: int, resolution: int, first: int = 0) -> DrawnSprites:
    """Moves sprites in straight lines and draws each frame.

    A sprite's patch is set to whole pixels (halves go up) and cut off at the frame's edges; of two sprites on one
    pixel the one with the higher index is seen. Row is y, column is x.
    """
    batch, count = sprites.births.shape
    shape = (batch, num_frames, 3, resolution, resolution)
    if sprites.backgrounds is None:
        frames = np.zeros(shape, dtype=np.uint8)
    else:
        light = _BACKGROUND * _spread(sprites.backgrounds, resolution)
        frames = np.repeat(np.rint(255 * light).astype(np.uint8)[:, None], num_frames, axis=1)
    masks = np.zeros((batch, num_frames, resolution, resolution), dtype=np.uint8)
    visibility = np.zeros((batch, num_frames, count), dtype=np.int64)
    bboxes = np.zeros((batch, num_frames, count, 4))
    colours = np.array(list(COLOURS.values()), dtype=np.uint8)[sprites.colours]
    # contiguous, or the kernels would be compiled anew for another layout
    shapes, textures, *moving = (
        np.ascontiguousarray(values)
        for values in (sprites.shapes, sprites.textures, sprites.births, sprites.starts, sprites.velocities)
    )
    sizes = np.ascontiguousarray(sprites.sizes)
    shades = np.zeros((batch, count, sizes[..., 0].max(), sizes[..., 1].max()))
    compiled(_shade_sprites)(shapes, sizes, textures, shades)
    compiled(_draw_sprites)(first, *moving, sizes, colours, shades, frames, masks, visibility, bboxes)
    return DrawnSprites(frames, masks, visibility, bboxes)


def _between(uniform: np.ndarray, ends: tuple[float, float]) -> np.ndarray:
    return ends[0] + uniform * (ends[1] - ends[0])


def _spread(grids: Float64[np.ndarray, "*batch rows cols"], size: int) -> Float64[np.ndarray, "*batch size size"]:
    """Grids laid over squares of `size` pixels, bilinearly between their points."""
    place = (np.arange(size) + 0.5) / size * (_GRID - 1)
    below = np.minimum(place.astype(np.int64), _GRID - 2)
    weights = np.zeros((size, _GRID))
    weights[np.arange(size), below] = 1 - (place - below)
    weights[np.arange(size), below + 1] = place - below
    return weights @ grids @ weights.T


def _overlap(sprites: Sprites, num_frames: int, resolution: int) -> bool:
    """Whether the patches of two sprites of one clip share a pixel of a frame."""
    frames = np.arange(num_frames)[:, None]
    age = (frames - sprites.births[0])[..., None]
    there = (sprites.births[0] >= 0) & (age[..., 0] >= 0)
    sides = sprites.sizes[0, :, ::-1]
    corner = np.floor(sprites.starts[0] + age * sprites.velocities[0] - (sides - 1) / 2 + 0.5)
    least, most = np.clip(corner, 0, resolution), np.clip(corner + sides, 0, resolution)
    shared = np.minimum(most[:, :, None], most[:, None]) > np.maximum(least[:, :, None], least[:, None])
    pairs = shared.all(-1) & there[:, :, None] & there[:, None]
    return bool((pairs & ~np.eye(pairs.shape[-1], dtype=bool)).any())


def _shade_sprites(shapes: np.ndarray, sizes: np.ndarray, textures: np.ndarray, shades: np.ndarray) -> None:
    """Fills the brightness of each pixel of each patch into `shades`, which come as zeros and stay so outside."""
    last = textures.shape[2] - 1
    for clip in range(shapes.shape[0]):
        for i in range(shapes.shape[1]):
            height, width, shape = sizes[clip, i, 0], sizes[clip, i, 1], shapes[clip, i]
            grid = textures[clip, i]
            for row in range(height):
                down = abs(2 * row - (height - 1))
                y = (row + 0.5) / height * last
                above = min(int(y), last - 1)
                p = y - above
                for column in range(width):
                    across = abs(2 * column - (width - 1))
                    if shape == 0:
                        inside = down * down + across * across <= height * height
                    elif shape == 1:
                        inside = (height - row) * width <= 2 * height * min(column + 1, width - column)
                    else:
                        inside = shape == 2 or down + across <= height
                    if inside:
                        x = (column + 0.5) / width * last
                        left = min(int(x), last - 1)
                        q = x - left
                        upper = grid[above, left] * (1 - q) + grid[above, left + 1] * q
                        lower = grid[above + 1, left] * (1 - q) + grid[above + 1, left + 1] * q
                        # a quarter at least, so that zero is outside
                        shades[clip, i, row, column] = 0.25 + 0.75 * (upper * (1 - p) + lower * p)


def _draw_sprites(
    first: int,
    births: np.ndarray,
    starts: np.ndarray,
    velocities: np.ndarray,
    sizes: np.ndarray,
    colours: np.ndarray,
    shades: np.ndarray,
    frames: np.ndarray,
    masks: np.ndarray,
    visibility: np.ndarray,
    bboxes: np.ndarray,
) -> None:
    """Fills what is seen of the sprites into the last four; `masks`, `visibility` and `bboxes` come as zeros."""
    num_clips, num_frames, num_sprites = visibility.shape
    side = masks.shape[2]
    for clip in range(num_clips):
        # from the front to the back, so that each pixel is painted once, by the sprite that is seen there
        for i in range(num_sprites - 1, -1, -1):
            height, width = sizes[clip, i, 0], sizes[clip, i, 1]
            for frame in range(num_frames):
                age = first + frame - births[clip, i]
                if births[clip, i] < 0 or age < 0:
                    continue
                corner_x = math.floor(starts[clip, i, 0] + age * velocities[clip, i, 0] - (width - 1) / 2 + 0.5)
                corner_y = math.floor(starts[clip, i, 1] + age * velocities[clip, i, 1] - (height - 1) / 2 + 0.5)
                seen, top, bottom, left, right = 0, side, 0, side, 0
                for row in range(max(0, -corner_y), min(height, side - corner_y)):
                    for column in range(max(0, -corner_x), min(width, side - corner_x)):
                        light = shades[clip, i, row, column]
                        y, x = corner_y + row, corner_x + column
                        if light == 0.0 or masks[clip, frame, y, x] != 0:
                            continue
                        masks[clip, frame, y, x] = i + 1
                        for channel in range(3):
                            frames[clip, frame, channel, y, x] = int(light * colours[clip, i, channel] + 0.5)
                        seen += 1
                        top, bottom = min(top, y), max(bottom, y + 1)
                        left, right = min(left, x), max(right, x + 1)
                if seen > 0:
                    visibility[clip, frame, i] = seen
                    box = bboxes[clip, frame, i]
                    box[0], box[1], box[2], box[3] = top / side, left / side, bottom / side, right / side
