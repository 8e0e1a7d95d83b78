"""The vision transformer in the form of the DINO releases.

Source: Dosovitskiy et al., "An Image Is Worth 16x16 Words", ICLR 2021; Caron et al., "Emerging Properties in
Self-Supervised Vision Transformers" (DINO), ICCV 2021.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from math import isqrt
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.pretrained.weights import WeightError, load_frozen

__all__ = ["ARCHITECTURES", "Architecture", "ViT", "resample_positions"]

_NORM_EPS = 1e-6
_PROJECTION = "patch_embed.proj.weight"  # a name that every such file has


class Architecture(NamedTuple):
    """Side of a patch in pixels, width of a token, heads of an attention, and number of blocks."""

    patch_size: int
    dim: int
    num_heads: int
    num_layers: int = 12


ARCHITECTURES = {
    "vit_small_patch8": Architecture(8, 384, 6),
    "vit_small_patch16": Architecture(16, 384, 6),
    "vit_base_patch8": Architecture(8, 768, 12),
    "vit_base_patch16": Architecture(16, 768, 12),
}
"""Those that DINO has been released in, by their names in timm."""


class ViT(nn.Module):
    """Patches and a class token through blocks of attention and MLP; returns the patches after the final norm.

    The parameters have the names that they have in the DINO release and in timm; `grid` has the rows and columns of
    patches.
    """

    def __init__(self, architecture: Architecture, grid: tuple[int, int]) -> None:
        super().__init__()
        dim = architecture.dim
        self.grid = grid
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + grid[0] * grid[1], dim))
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(3, dim, architecture.patch_size, architecture.patch_size)})
        self.blocks = nn.ModuleList(_Block(dim, architecture.num_heads) for _ in range(architecture.num_layers))
        self.norm = nn.LayerNorm(dim, eps=_NORM_EPS)

    @classmethod
    def from_tensors(
        cls, tensors: Mapping[str, Tensor], arch: str, grid: tuple[int, int], source: str = "the given tensors"
    ) -> ViT:
        """The network with weights of DINO's release or of timm, frozen.

        Args:
            tensors: a state dict; names may have a prefix in common, such as "backbone.", and the rest is not read.
            arch: one of `ARCHITECTURES`.
            grid: rows and columns of patches. Positions that were learned for another grid are resampled.
            source: where they are from, in an error.
        """
        network = cls(ARCHITECTURES[arch], grid)
        own = _without_prefix(tensors, source)
        if "pos_embed" in own and own["pos_embed"].shape != network.pos_embed.shape:
            own["pos_embed"] = resample_positions(own["pos_embed"], grid, source)
        return load_frozen(network, own, f"a {arch}", "DINO's and timm's", source)

    def forward(self, images: Float[Tensor, "frames 3 height width"]) -> Float[Tensor, "frames dim rows cols"]:
        """The features of every patch, without the class token."""
        patches = self.patch_embed["proj"](images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.cls_token.expand(len(images), -1, -1), patches], dim=1) + self.pos_embed
        for block in self.blocks:
            tokens = block(tokens)
        return self.norm(tokens)[:, 1:].transpose(1, 2).unflatten(2, self.grid)


def resample_positions(
    table: Float[Tensor, "1 positions dim"], grid: tuple[int, int], source: str = "the given tensors"
) -> Float[Tensor, "1 new_positions dim"]:
    """Position embeddings, the class token's and then those of a square of patches, for another grid, bicubic.

    DINO's own code passes a scale that is larger by a tenth of a patch, against rounding, and so samples slightly
    elsewhere; the two agree on the grid of the training.
    """
    count = table.shape[1] - 1
    side = isqrt(max(0, count))
    if side < 1 or side * side != count:
        raise WeightError(f"pos_embed in {source} has {table.shape[1]} positions; expected one more than a square")
    square = table[:, 1:].transpose(1, 2).unflatten(2, (side, side)).float()
    patches = F.interpolate(square, size=grid, mode="bicubic", align_corners=False)
    return torch.cat([table[:, :1].float(), patches.flatten(2).transpose(1, 2)], dim=1)


class _Block(nn.Module):
    """Attention and MLP, each after a norm and beside a skip connection."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=_NORM_EPS)
        self.attn = _Attention(dim, num_heads)
        self.norm2 = nn.LayerNorm(dim, eps=_NORM_EPS)
        layers = {"fc1": nn.Linear(dim, 4 * dim), "act": nn.GELU(), "fc2": nn.Linear(4 * dim, dim)}
        self.mlp = nn.Sequential(OrderedDict(layers))

    def forward(self, tokens: Float[Tensor, "frames tokens dim"]) -> Float[Tensor, "frames tokens dim"]:
        tokens = tokens + self.attn(self.norm1(tokens))
        return tokens + self.mlp(self.norm2(tokens))


class _Attention(nn.Module):
    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, tokens: Float[Tensor, "frames tokens dim"]) -> Float[Tensor, "frames tokens dim"]:
        q, k, v = self.qkv(tokens).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


def _without_prefix(tensors: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
    """The tensors under the names that they have in the network itself."""
    prefixes = [name.removesuffix(_PROJECTION) for name in tensors if name.endswith(_PROJECTION)]
    if len(prefixes) != 1:
        what = f"{source} does not hold one vision transformer in DINO's or timm's naming"
        raise WeightError(f"{what}: expected one tensor named {_PROJECTION}, and found {len(prefixes)}")
    (prefix,) = prefixes
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
