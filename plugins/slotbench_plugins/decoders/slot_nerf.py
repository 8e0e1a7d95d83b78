"""Slot NeRF: each slot is a field of densities and colours in space, and rays through all of them are rendered."""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import softplus

from slotbench.interfaces import Decoded, Decoder, SlotSpec, VideoBatch, VideoSpec
from slotbench.nn.rays import NormedMLP, encode_scalars, of_rays, rays_of
from slotbench.nn.volume_rendering import DensityMix, mix_densities, ray_points, render_weights, termination_depth

POINT_CODES = 48
"""Width of the code of three numbers."""
UNSHADED = 4.0
"""Where the logit of the light that a field lets through begins: 0.98 of it."""


class SlotNeRF(Decoder):
    """The fields of all slots, a static one beside them and a sky behind, rendered along each ray of the batch.

    Every slot gives each point of space a density and a colour that depends on the direction, by weights that all
    slots share; any number of slots can be given, so that one can be taken out of the scene. A static field, without a
    slot, learns what all clips have in common, and a sky what is seen beyond `far` in each direction. In training the
    points of a ray are drawn, one in each of `num_points` bins; in evaluation they are the midpoints.

    A slot's share of a pixel is what its part of the density adds to the ray. `Decoded.background` has the rest: static
    field, sky, and what passes everything. `Decoded.masks` are the shares of the slots alone, over their sum, so that
    `masks * (1 - background)` are the shares themselves; where no slot is seen the masks are equal. `Decoded.depth` is
    the expected distance at which the ray ends, at most `far`.

    Densities are softplus of a linear map, and start such that all fields together have the optical depth 1 from `near`
    to `far`: a ray loses 0.63 of its light. Colours go through a sigmoid.

    Source: PSB (Singh et al., ICML 2024), section 3.2, appendix D.4.3 and Tables 10 (`NormedMLP` of two blocks) and 11
    (of one), with `dim=192`; uORF (Yu et al., ICLR 2022) for `mix="weighted_mean"`. The maps before the blocks, the
    activations and the initial densities are not printed.

    Args:
        slot_spec: the output of the core.
        video_spec: the image to produce; its channels are read, and its size is that of the rays.
        dim: width of the fields.
        num_points: points of a ray at which the fields are computed.
        near: distance from the origin of a ray at which its points begin, in units of its direction.
        far: distance at which they end.
        mix: how the densities of several fields are put together: see `slotbench.nn.volume_rendering.mix_densities`.
        static_field: adds the static field.
        sky: adds the sky; without it nothing is added for what passes everything, which is black.
        shadow: each field also gives a share of light at each point, and colours are multiplied by the product.
        max_value: bound of the coordinates of the points.
    """

    takes_views: ClassVar[bool] = True
    paints_rays: ClassVar[bool] = True
    paints_pixels = True

    def __init__(
        self,
        slot_spec: SlotSpec,
        video_spec: VideoSpec,
        dim: int = 64,
        num_points: int = 24,
        near: float = 1.0,
        far: float = 16.0,
        mix: DensityMix = "sum",
        static_field: bool = True,
        sky: bool = True,
        shadow: bool = False,
        max_value: float = 16.0,
    ):
        super().__init__()
        self.num_points, self.near, self.far = num_points, near, far
        self.mix: DensityMix = mix
        self.max_value = max_value
        channels, fields = video_spec.channels, slot_spec.num_slots + static_field
        start = 1 / ((far - near) * (fields if mix == "sum" else 1))
        self.slot = nn.Linear(slot_spec.dim, dim)
        self.field = _Field(dim, channels, start, shadow)
        self.static_field = _Field(dim, channels, start, shadow) if static_field else None
        self.sky = (
            nn.Sequential(nn.Linear(POINT_CODES, dim), NormedMLP(dim, 2), nn.Linear(dim, channels), nn.Sigmoid())
            if sky
            else None
        )

    def forward(self, slots: Float[Tensor, "batch time slots dim"], batch: VideoBatch | None = None) -> Decoded:
        """The colours of the rays of `batch`, the share that each slot has in them, their background and depth."""
        # codes of points need the bits that a slot under autocast lacks
        rays = rays_of(batch, "SlotNeRF").to(slots.device, torch.promote_types(slots.dtype, torch.float32))
        mapped = self.slot(slots.flatten(0, 1))
        found = of_rays(lambda part: self._paint(part, mapped), rays)
        return Decoded(found["colour"], found["masks"], depth=found["depth"], background=found["background"])

    def _paint(
        self, rays: Float[Tensor, "steps rays 6"], slots: Float[Tensor, "steps slots width"]
    ) -> dict[str, Tensor]:
        origin, direction = rays.split(3, dim=-1)
        shape = (*rays.shape[:2], self.num_points)
        jitter = torch.rand_like(rays.new_empty(shape)) if self.training else rays.new_full(shape, 0.5)
        distances, lengths = ray_points(self.near, self.far, jitter)
        places = origin[:, :, None] + distances[..., None] * direction[:, :, None]
        points = encode_scalars(places, self.max_value).to(slots)
        view = encode_scalars(direction, 1.0).to(slots)
        said = [self.field(points, view, slots[:, None, None])]
        if self.static_field is not None:
            said.append(self.static_field(points, view))
        density, colour, light = (torch.cat(values, dim=3).to(rays) for values in zip(*said, strict=True))
        density, shares = mix_densities(density[..., 0], self.mix)
        # products and sums, which autocast leaves in float32
        colour = (shares[..., None] * colour).sum(dim=3) * light.prod(dim=3)
        rendered = render_weights(density, lengths)
        painted = (rendered.weights[..., None] * colour).sum(dim=2)
        if self.sky is not None:
            painted = painted + rendered.left[..., None] * self.sky(view).to(rays)
        seen = (rendered.weights[..., None] * shares[..., : slots.shape[1]]).sum(dim=2)
        return {
            "colour": painted.to(slots),
            "masks": (seen + 1e-6) / (seen + 1e-6).sum(dim=-1, keepdim=True),
            "background": (1 - seen.sum(dim=-1)).clamp(min=0),
            "depth": termination_depth(rendered, distances, self.far),
        }


class _Said(NamedTuple):
    """What fields say of points, "steps rays points fields" and density 1, colour's channels, and light 1."""

    density: Tensor
    colour: Tensor
    light: Tensor


class _Field(nn.Module):
    """Density, colour and, with `shadow`, light of points; of every slot, if there are any.

    Args:
        dim: width.
        channels: of a colour.
        start: density at the beginning, about.
        shadow: light is not 1 everywhere.
    """

    def __init__(self, dim: int, channels: int, start: float, shadow: bool):
        super().__init__()
        self.point = nn.Linear(POINT_CODES, dim)
        self.block1 = NormedMLP(dim, 2)
        self.density = nn.Linear(dim, 1)
        nn.init.constant_(self.density.bias, math.log(math.expm1(start)))
        self.view = nn.Linear(POINT_CODES, dim)
        self.block2 = NormedMLP(dim, 1)
        self.colour = nn.Linear(dim, channels)
        self.light = nn.Linear(dim, 1) if shadow else None
        if self.light is not None:
            nn.init.constant_(self.light.bias, UNSHADED)

    def forward(
        self,
        points: Float[Tensor, "steps rays points codes"],
        view: Float[Tensor, "steps rays codes"],
        slots: Float[Tensor, "steps 1 1 fields dim"] | None = None,
    ) -> _Said:
        hidden = self.point(points)[:, :, :, None]
        hidden = self.block1(hidden if slots is None else hidden + slots)
        density = softplus(self.density(hidden))
        colour = self.colour(self.block2(hidden + self.view(view)[:, :, None, None])).sigmoid()
        light = torch.ones_like(density) if self.light is None else self.light(hidden).sigmoid()
        return _Said(density, colour, light)
