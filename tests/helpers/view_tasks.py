"""Spheres that several posed cameras see, and parts that read their rays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn

from slotbench.data.base import ClipDataset, LoaderOptions, SlotDataModule, Split, to_unit_range
from slotbench.interfaces import DataSpec, Decoded, Decoder, Encoder, SlotSpec, TokenSpec, VideoBatch, VideoSpec
from slotbench.registry import load
from slotbench.tasks.novel_view_autoencoding import NovelViewAutoencoding

SAVi = load("cores", "SAVi")
SIDE, STEPS = 12, 2
_LOADER = LoaderOptions(batch_size=2, val_batch_size=2, train_size=8, val_size=3, test_size=2)


class RowsOfViews(Encoder):
    """The rows of all views of a step, each with the rays that it has seen along, through one linear map."""

    takes_views = True

    def __init__(self, spec: VideoSpec, dim: int = 4) -> None:
        super().__init__()
        self.token_spec = TokenSpec(dim, spec.num_views * spec.height)
        self.rows = nn.Linear((spec.channels + 6) * spec.width, dim)

    def forward(self, batch: VideoBatch) -> Tensor:
        seen = torch.cat([batch.pixels, batch.require("rays").to(batch.pixels)], dim=-3)
        return self.rows(rearrange(seen, "b t v c h w -> b t (v h) (c w)"))


class RayShares(Decoder):
    """The colour of each ray from the slots, mixed by shares that depend on the ray."""

    takes_views = True
    paints_rays = True

    def __init__(self, slots: SlotSpec, target: VideoSpec) -> None:
        super().__init__()
        self.of_ray, self.colour = nn.Linear(6, slots.dim), nn.Linear(slots.dim, target.channels)

    def forward(self, slots: Tensor, batch: VideoBatch | None = None) -> Decoded:
        assert batch is not None
        rays = self.of_ray(batch.require("rays").movedim(-3, -1).to(slots))
        masks = torch.einsum("btvhwd,btsd->btvshw", rays, slots).softmax(3)
        colours = self.colour(torch.einsum("btvshw,btsd->btvhwd", masks, slots) + rays)
        return Decoded(colours.movedim(-1, -3), masks, losses={"shares": masks.square().mean()})


class PosedSpheres(SlotDataModule):
    """Two or three still spheres in front of white, seen by cameras on a ring; the last `held_out` are held out."""

    def __init__(
        self, shown: int = 2, held_out: int = 2, eval_shown: int | None = None, loader: LoaderOptions = _LOADER
    ) -> None:
        super().__init__(loader)
        self.shown, self.held_out = shown, held_out
        self.eval_shown = eval_shown or shown

    @property
    def spec(self) -> DataSpec:
        frame = VideoSpec(3, SIDE, SIDE, num_views=self.shown)
        return DataSpec(frame, replace(frame, num_views=self.held_out or self.shown))

    def dataset(self, split: Split) -> ClipDataset:
        return _Spheres(self, split)

    def held_out_baselines(self, batch: VideoBatch) -> dict[str, Tensor]:
        return {"white": torch.ones_like(batch.held_out.frames), "truth": to_unit_range(batch).held_out.frames}

    def turntable(self, batch: VideoBatch, steps: int) -> VideoBatch:
        rays = _rays(steps, 0.0)[None, :, None].expand(len(batch), -1, -1, -1, -1, -1)
        return VideoBatch(torch.zeros_like(rays[:, :, :, :3]), torch.arange(steps).repeat(len(batch), 1), rays=rays)


class _Spheres(ClipDataset):
    def __init__(self, data: PosedSpheres, split: Split) -> None:
        super().__init__(data.sizes[split])
        self.data, self.split = data, split

    def clips(self, indices: Sequence[int]) -> VideoBatch:
        return VideoBatch.join([self._clip(index) for index in indices])

    def _clip(self, index: int) -> VideoBatch:
        shown = self.data.shown if self.split == "train" else self.data.eval_shown
        random = torch.Generator().manual_seed(index + 100 * len(self.split))
        views, steps = shown + self.data.held_out, STEPS
        centres = torch.rand(steps, 3, 3, generator=random) * 2 - 1
        colours = torch.rand(3, 3, generator=random)
        rays = _rays(views, float(torch.rand((), generator=random)))
        # of a sphere of radius 0.6: the distance to its centre across the ray, and along it
        away = centres[:, None, :, :, None, None] - rays[None, :, None, :3]
        along = (away * rays[None, :, None, 3:]).sum(3)
        hit = away.square().sum(3) - along.square() < 0.36
        distance, first = torch.where(hit, along, torch.inf).min(2)
        masks = torch.where(distance.isfinite(), first + 1, 0)
        palette = torch.cat([torch.ones(1, 3), colours])
        frames = (palette[masks] * 255).to(torch.uint8).movedim(-1, -3)
        whole = VideoBatch(
            frames[None], torch.arange(steps)[None], masks[None], rays=rays[None, None].expand(1, steps, -1, -1, -1, -1)
        )

        def part(first: int, last: int) -> VideoBatch:
            taken = {name: getattr(whole, name)[:, :, first:last] for name in ("frames", "masks", "rays")}
            return replace(whole, **taken, objects={"depth": distance[None, :, first:last].nan_to_num(posinf=1000.0)})

        positions = centres.movedim(0, 1)[None, :, :, :2]
        given = part(0, shown)
        given.objects["positions"] = positions.movedim(1, 2)
        return replace(given, held_out=part(shown, views) if self.data.held_out else None)


def _rays(views: int, turn: float) -> Tensor:
    """Rays "views 6 side side" of cameras on a ring of radius 4 that look at its centre."""
    angles = torch.arange(views) * 2 * math.pi / views + turn
    back = torch.stack([angles.cos(), angles.sin(), torch.zeros(views)], dim=-1)
    right = torch.stack([-angles.sin(), angles.cos(), torch.zeros(views)], dim=-1)
    places = (torch.arange(SIDE) + 0.5) / SIDE - 0.5
    rows, cols = torch.meshgrid(places, places, indexing="ij")
    up = torch.tensor([0.0, 0.0, 1.0])[:, None, None]
    directions = right[:, :, None, None] * cols - up * rows - back[:, :, None, None]
    origins = (4 * back)[:, :, None, None].expand_as(directions)
    return torch.cat([origins, directions / directions.norm(dim=1, keepdim=True)], dim=1)


def view_task(data: SlotDataModule, **arguments: Any) -> NovelViewAutoencoding:
    """A small SAVi between rows of views and shares of rays."""
    torch.manual_seed(0)
    given: dict[str, Any] = {
        "encoder": partial(RowsOfViews, dim=8),
        "core": partial(SAVi, num_slots=3, dim=8, mlp_ratio=1),
        "decoder": RayShares,
        "optimizer": partial(torch.optim.Adam, lr=1e-3),
        "rays_per_step": 20,
        "data_spec": data.spec,
    }
    return NovelViewAutoencoding(**given | arguments).eval()
