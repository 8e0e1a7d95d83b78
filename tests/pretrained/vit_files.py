"""Random state dicts of small vision transformers, in the naming of DINO's release."""

from __future__ import annotations

import torch
from torch import Tensor

from slotbench.pretrained.vit import Architecture

SMALL = Architecture(patch_size=4, dim=12, num_heads=3, num_layers=2)


def vit_state(sizes: Architecture = SMALL, side: int = 3, seed: int = 0) -> dict[str, Tensor]:
    """Weights for `side` x `side` patches, large enough that nothing is nearly linear."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {
        "cls_token": (1, 1, sizes.dim),
        "pos_embed": (1, 1 + side**2, sizes.dim),
        "patch_embed.proj.weight": (sizes.dim, 3, sizes.patch_size, sizes.patch_size),
        "patch_embed.proj.bias": (sizes.dim,),
        "norm.weight": (sizes.dim,),
        "norm.bias": (sizes.dim,),
    }
    for i in range(sizes.num_layers):
        for name, out, given in (
            ("attn.qkv", 3 * sizes.dim, sizes.dim),
            ("attn.proj", sizes.dim, sizes.dim),
            ("mlp.fc1", 4 * sizes.dim, sizes.dim),
            ("mlp.fc2", sizes.dim, 4 * sizes.dim),
        ):
            shapes |= {f"blocks.{i}.{name}.weight": (out, given), f"blocks.{i}.{name}.bias": (out,)}
        for name in ("norm1", "norm2"):
            shapes |= {f"blocks.{i}.{name}.weight": (sizes.dim,), f"blocks.{i}.{name}.bias": (sizes.dim,)}
    return {name: torch.randn(shape, generator=generator) / shape[-1] ** 0.25 for name, shape in shapes.items()}
