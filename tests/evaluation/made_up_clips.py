"""Clips with slots that are made up: each object's attributes, mixed linearly, in a slot whose number is drawn."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from slotbench.evaluation.probe_clips import Clips

SHAPES = 3


@dataclass(frozen=True)
class World:
    """How attributes become slots: the same for all clips of a test, as a trained network is."""

    clips: int = 60
    frames: int = 4
    objects: int = 3
    slots: int = 5
    dim: int = 24
    noise: float = 0.01
    seed: int = 0

    def mixing(self) -> Tensor:
        # x, y, one-hot shape, colour, a constant; then mixed
        return torch.randn(2 + SHAPES + 3 + 1, self.dim, generator=torch.Generator().manual_seed(self.seed))

    def clips_of(self, part: int) -> tuple[Clips, Tensor]:
        """Clips, and the slot "clips objects" of each object."""
        generator = torch.Generator().manual_seed(1000 * self.seed + part + 1)

        def uniform(*shape: int) -> Tensor:
            return torch.rand(shape, generator=generator)

        start = uniform(self.clips, 1, self.objects, 2)
        step = 0.2 * (uniform(self.clips, 1, self.objects, 2) - 0.5)
        positions = start + step * torch.arange(self.frames)[None, :, None, None]
        shape = torch.randint(SHAPES, (self.clips, self.objects), generator=generator)
        color = uniform(self.clips, self.objects, 3)
        constant = torch.cat([torch.nn.functional.one_hot(shape, SHAPES), color, torch.ones_like(color[..., :1])], -1)
        told = torch.cat([positions, constant[:, None].expand(-1, self.frames, -1, -1)], -1)
        slots = torch.randn(self.clips, self.frames, self.slots, self.dim, generator=generator)
        order = uniform(self.clips, self.slots).argsort(1)[:, : self.objects]
        at = order[:, None, :, None].expand(-1, self.frames, -1, self.dim)
        inside = told @ self.mixing() + self.noise * torch.randn(at.shape, generator=generator)
        slots = slots.scatter(2, at, inside)
        tables = torch.zeros(self.clips, self.frames, self.objects + 1, self.slots, dtype=torch.long)
        rows = torch.arange(1, self.objects + 1)
        for clip in range(self.clips):
            tables[clip, :, rows, order[clip]] = 40
            tables[clip, :, 0] = 20
        labels = {
            "positions": positions,
            "color": color[:, None],
            "shape_label": shape[:, None, :, None],
        }
        visible = torch.ones(self.clips, self.frames, self.objects, dtype=torch.bool)
        shapes = uniform(self.clips, self.frames, self.slots, 3)
        names = [f"{self.seed}/{part}/{clip}".encode() for clip in range(self.clips)]
        return Clips(slots, tables, visible, shapes, labels, names), order
