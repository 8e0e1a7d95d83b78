"""Moving Sprites: up to three flat shapes of plain colours that cross a black frame and leave it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from slotbench.data.base import LoaderOptions, SimulatedData, Split, check_counts
from slotbench.data.sprites.world import COLOURS, DrawnSprites, Sprites, SpriteWorld, Texture, draw_sprites
from slotbench.interfaces import DataSpec, VideoBatch

__all__ = ["MovingSprites"]


class MovingSprites(SimulatedData):
    """Moving Sprites: flat shapes appear in the first frames, drift in straight lines and leave; some cover others.

    In each of the first `birth_frames` frames every sprite that is not there yet appears with `birth_probability`, so
    that at the defaults three of four are there; a clip in which none appears is drawn again. A sprite is a circle, a
    triangle, a rectangle or a diamond, of `base_size` up to 10 % more or less and an aspect of 0.8 to 1.2, in one of
    `colours`. It appears with its centre at least 10 pixels from the edges, moves at `speed` in a direction of its own,
    turns nowhere, and is cut off at the edges. The sprite with the higher index covers the others. All lengths are
    in pixels of a frame of 64 and scale with `resolution`: an index shows the same clip at all resolutions, colours
    and textures.

    Many frames late in a clip are empty: 14 % of the frames 10 to 19 at the defaults. An all-black prediction is
    therefore a strong baseline, and scores on clips that show something in every frame are worth having beside it.

    In `masks` sprite i is i + 1 where it is seen. `objects` has "present" (batch objects; whether it ever appears),
    "births" (batch objects; its first frame, -1 for never), "starts" (batch objects 2; where its centre is then),
    "scale" (batch objects 2; height and width), "shape_label", "color_label" (batch objects; places in `SHAPES` and
    `COLOURS`, -1 for no sprite), "positions" and "velocities" (batch frames objects 2; x, then y), all in pixels, and
    "visibility" (batch frames objects; pixels seen), "bboxes" (batch frames objects 4; top, left, bottom and right of
    them in 0..1, zeros where nothing is seen). Before its first frame a sprite waits where it will appear. With
    textures there are "textures" and "backgrounds", grids of light that are laid over sprites and frame. The clip is
    its own target.

    Source: Lin, "Modular Neural Networks for Video Prediction" (2022), section 4.1.1, by its description: the thesis
    states neither sizes nor speeds, and its generator is not public, so that scores compare with each other and not
    with published ones. 11,520 clips train and 1,280 test; validation has clips of its own here.

    Args:
        num_sprites: sprites per clip at most.
        base_size: side of a sprite before jitter, in pixels of a frame of 64.
        speed: pixels per frame, in a frame of 64.
        colours: names of the colours to draw from; one name makes all sprites alike in colour.
        occlusion: whether sprites may overlap; if not, a clip in which two do is drawn again.
        birth_probability: of a sprite that is not there yet, in each of the first frames.
        birth_frames: the number of these frames.
        texture: "none", or patterns of light on the "sprites", in colours on the "background", or "both".
    """

    default_sizes: ClassVar[Mapping[Split, int]] = {"train": 11_520, "val": 1280, "test": 1280}

    def __init__(
        self,
        num_sprites: int = 3,
        num_frames: int = 20,
        eval_frames: int = 20,
        resolution: int = 64,
        base_size: float = 21.0,
        speed: float = 2.65,
        colours: tuple[str, ...] = tuple(COLOURS),
        occlusion: bool = True,
        birth_probability: float = 0.5,
        birth_frames: int = 2,
        texture: Texture = "none",
        loader: LoaderOptions = LoaderOptions(),
    ) -> None:
        super().__init__(loader)
        check_counts(num_frames=num_frames, eval_frames=eval_frames)
        look = (num_sprites, resolution, base_size, speed, tuple(colours), occlusion)
        self.world = SpriteWorld(*look, birth_probability, birth_frames, texture)
        self.num_frames = num_frames
        self.eval_frames = eval_frames
        # where nothing fits, it is found out here and not after an hour of training
        self.world.draw([np.random.default_rng(0)], max(num_frames, eval_frames))

    @property
    def spec(self) -> DataSpec:
        """Coloured frames, which are their own target."""
        return DataSpec.of_frames(3, self.world.resolution)

    def oracle_predictions(self, batch: VideoBatch, context: int, horizon: int) -> dict[str, Tensor]:
        """Oracle: the sprites that have appeared go on at their true velocity, with their true shapes and colours.

        It is right, but for sprites that appear after the context.
        """
        sprites = self._logged(batch)
        known = replace(sprites, births=np.where(sprites.births < context, sprites.births, -1))
        drawn = draw_sprites(known, horizon, self.world.resolution, first=context)
        return {"constant velocity": torch.from_numpy(drawn.frames).to(batch.pixels) / 255}

    def layers(self, batch: VideoBatch) -> Float[Tensor, "batch time objects channels height width"]:
        """Every sprite alone on black, also where others cover it."""
        sprites = self._logged(batch)
        batch_size, count = sprites.births.shape
        alone = {
            name: rearrange(values, "batch objects ... -> (batch objects) 1 ...")
            for name, values in vars(sprites).items()
            if name != "backgrounds"
        }
        drawn = draw_sprites(Sprites(**alone), batch.num_steps, self.world.resolution, first=int(batch.time[0, 0]))
        frames = torch.from_numpy(drawn.frames.reshape(batch_size, count, *drawn.frames.shape[1:]))
        return frames.transpose(1, 2).to(batch.frames.device).float() / 255

    def simulate(self, split: Split, generators: list[np.random.Generator]) -> VideoBatch:
        """Clips of `num_frames` frames for training, of `eval_frames` frames otherwise."""
        num_frames = self.num_frames if split == "train" else self.eval_frames
        sprites = self.world.draw(generators, num_frames)
        drawn = draw_sprites(sprites, num_frames, self.world.resolution)
        return VideoBatch(
            frames=torch.from_numpy(drawn.frames),
            time=torch.arange(num_frames).repeat(len(generators), 1),
            masks=torch.from_numpy(drawn.masks),
            objects=_log(sprites, drawn),
        )

    def _logged(self, batch: VideoBatch) -> Sprites:
        """The sprites of a batch, from its log."""
        log = {name: values.cpu().numpy() for name, values in batch.objects.items()}
        births = log["births"]
        plain = np.ones((*births.shape, 2, 2))
        return Sprites(
            births=births,
            starts=log["starts"].astype(np.float64),
            velocities=log["velocities"][:, 0].astype(np.float64),
            sizes=np.rint(log["scale"]).astype(np.int64),
            shapes=log["shape_label"],
            colours=log["color_label"],
            textures=log["textures"].astype(np.float64) if "textures" in log else plain,
            backgrounds=log["backgrounds"].astype(np.float64) if "backgrounds" in log else None,
        )


def _log(sprites: Sprites, drawn: DrawnSprites) -> dict[str, Tensor]:
    """The log of a sample's sprites."""
    present = sprites.births >= 0
    age = np.maximum(np.arange(drawn.masks.shape[1])[:, None] - sprites.births[:, None], 0)
    velocities = np.broadcast_to(sprites.velocities[:, None], (*age.shape, 2))
    log = {
        "present": present,
        "births": sprites.births,
        "starts": sprites.starts.astype(np.float32),
        "scale": sprites.sizes.astype(np.float32),
        "shape_label": np.where(present, sprites.shapes, -1),
        "color_label": np.where(present, sprites.colours, -1),
        "positions": (sprites.starts[:, None] + age[..., None] * velocities).astype(np.float32),
        "velocities": velocities.astype(np.float32),
        "visibility": drawn.visibility,
        "bboxes": drawn.bboxes.astype(np.float32),
    }
    for name in ("textures", "backgrounds"):
        if (grids := getattr(sprites, name)) is not None:
            log[name] = grids.astype(np.float32)
    return {name: torch.from_numpy(values) for name, values in log.items()}
