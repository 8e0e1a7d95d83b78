"""Slot mixer decoder: a ray chooses among the slots, and an MLP paints it from their mean."""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from slotbench.interfaces import Decoded, Decoder, SlotSpec, VideoBatch, VideoSpec
from slotbench.nn.attention import CrossAttention
from slotbench.nn.linear import MLP
from slotbench.nn.rays import RAY_CODES, NormedMLP, RayPoint, encode_rays, of_rays, rays_of


class SlotMixerDecoder(Decoder):
    """Each ray attends to the slots, which are mixed by one set of weights; an MLP makes its colour of mix and ray.

    The ray's code, sines and cosines of origin and direction, goes through layers of cross-attention to the slots and
    MLP, without attention among rays (the allocation transformer). Its product with each slot gives the weights, a
    softmax over slots; they are the masks. Any number of slots can be given, so that one can be taken out of the scene.
    The image is bounded to [0, 1] by a sigmoid.

    Source: OSRT (Sajjadi et al., NeurIPS 2022), at the sizes of PSB (Singh et al., ICML 2024), appendix D.4.4 and
    Table 12, with `dim=192`. That mix and ray are mapped to the MLP's width and added, and pre-norm layers with MLPs
    four times as wide, are not printed.

    Args:
        slot_spec: the output of the core.
        video_spec: the image to produce; its channels are read, and its size is that of the rays.
        dim: width inside.
        num_layers: layers of the allocation transformer.
        num_heads: their heads.
        mlp_ratio: hidden width of their MLPs in units of `dim`.
        num_blocks: residual blocks of the MLP that paints.
        max_value: bound of the coordinates of that point.
        ray_point: what stands for a ray in its code beside its direction: its origin, as in the paper, or its point
            nearest to the coordinates' 0, which is the same for all cameras on the ray.
    """

    takes_views: ClassVar[bool] = True
    paints_rays: ClassVar[bool] = True
    paints_pixels = True

    def __init__(
        self,
        slot_spec: SlotSpec,
        video_spec: VideoSpec,
        dim: int = 64,
        num_layers: int = 3,
        num_heads: int = 4,
        mlp_ratio: int = 4,
        num_blocks: int = 4,
        max_value: float = 16.0,
        ray_point: RayPoint = "camera",
    ):
        super().__init__()
        self.max_value = max_value
        self.ray_point: RayPoint = ray_point
        self.query = nn.Linear(RAY_CODES, dim)
        self.layers = nn.ModuleList(
            _AllocationLayer(dim, slot_spec.dim, num_heads, mlp_ratio) for _ in range(num_layers)
        )
        self.choice = nn.Linear(dim, dim, bias=False)
        self.key = nn.Linear(slot_spec.dim, dim, bias=False)
        self.mix = nn.Linear(slot_spec.dim, dim)
        self.ray = nn.Linear(dim, dim)
        self.mlp = NormedMLP(dim, num_blocks)
        self.colour = nn.Linear(dim, video_spec.channels)

    def forward(self, slots: Float[Tensor, "batch time slots dim"], batch: VideoBatch | None = None) -> Decoded:
        """The colours of the rays of `batch`, and the share that each slot has in them."""
        rays = rays_of(batch, "SlotMixerDecoder").to(slots)
        given = slots.flatten(0, 1)
        keys = self.key(given)

        def paint(part: Float[Tensor, "steps rays 6"]) -> dict[str, Tensor]:
            query = x = self.query(encode_rays(part, self.max_value, self.ray_point))
            for layer in self.layers:
                x = layer(x, given)
            weights = (self.choice(x) @ keys.mT * keys.shape[-1] ** -0.5).softmax(dim=-1)
            hidden = self.mlp(self.mix(weights @ given) + self.ray(query))
            return {"colour": self.colour(hidden).sigmoid(), "masks": weights}

        found = of_rays(paint, rays)
        return Decoded(found["colour"], found["masks"])


class _AllocationLayer(nn.Module):
    def __init__(self, dim: int, slot_dim: int, num_heads: int, mlp_ratio: int):
        super().__init__()
        self.ray_norm = nn.LayerNorm(dim)
        self.slot_norm = nn.LayerNorm(slot_dim)
        self.attention = CrossAttention(dim, slot_dim, num_heads)
        self.mlp_norm = nn.LayerNorm(dim)
        self.mlp = MLP(dim, mlp_ratio * dim)

    def forward(
        self, x: Float[Tensor, "steps rays dim"], slots: Float[Tensor, "steps slots slot_dim"]
    ) -> Float[Tensor, "steps rays dim"]:
        x = x + self.attention(self.ray_norm(x), self.slot_norm(slots))[0]
        return x + self.mlp(self.mlp_norm(x))
