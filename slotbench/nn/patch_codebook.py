"""Patches of frames and a codebook of them: k-means, the simplest way from frames to discrete codes and back."""

from __future__ import annotations

import torch
from einops import rearrange
from jaxtyping import Float, Integer
from torch import Tensor

__all__ = ["cut_patches", "fit_codebook", "join_patches", "nearest_entries"]

_ROWS_AT_ONCE = 16_384


def cut_patches(
    frames: Float[Tensor, "*batch channels height width"], size: int
) -> Float[Tensor, "*batch rows cols values"]:
    """The square patches of frames, each as one vector."""
    return rearrange(frames, "... c (row y) (col x) -> ... row col (c y x)", y=size, x=size)


def join_patches(
    patches: Float[Tensor, "*batch rows cols values"], size: int
) -> Float[Tensor, "*batch channels height width"]:
    """Undoes `cut_patches`."""
    return rearrange(patches, "... row col (c y x) -> ... c (row y) (col x)", y=size, x=size)


def nearest_entries(
    values: Float[Tensor, "*batch dim"], codebook: Float[Tensor, "codes dim"]
) -> Integer[Tensor, "*batch"]:
    """The entry of the codebook that is nearest to each vector; of equally near ones, the first."""
    rows = values.reshape(-1, values.shape[-1])
    # |v|^2 is the same for all entries
    lengths = codebook.square().sum(1) / 2
    found = [(part @ codebook.T - lengths).argmax(1) for part in rows.split(_ROWS_AT_ONCE)]
    return torch.cat(found).view(values.shape[:-1])


def fit_codebook(
    patches: Float[Tensor, "patches dim"], num_codes: int, iterations: int = 20, seed: int = 0
) -> Float[Tensor, "codes dim"]:
    """Lloyd's k-means from entries that k-means++ has drawn; an entry that nothing is nearest to is drawn again.

    Where there are fewer different patches than codes, entries repeat.

    Args:
        patches: vectors.
        num_codes: entries of the codebook.
        iterations: of Lloyd's algorithm.
        seed: of the draws.
    """
    generator = torch.Generator().manual_seed(seed)
    codebook = _spread(patches, num_codes, generator)
    for _ in range(iterations):
        codes = nearest_entries(patches, codebook)
        sums = torch.zeros_like(codebook).index_add_(0, codes, patches)
        counts = torch.bincount(codes, minlength=num_codes).to(patches)
        codebook = torch.where(counts[:, None] > 0, sums / counts.clamp(min=1)[:, None], codebook)
        if (empty := (counts == 0).nonzero()[:, 0]).numel():
            drawn = torch.randint(len(patches), (len(empty),), generator=generator)
            codebook[empty] = patches[drawn.to(patches.device)]
    return codebook


def _spread(patches: Tensor, num_codes: int, generator: torch.Generator) -> Tensor:
    """Entries far from one another: each drawn by the squared distance to the nearest one before it."""
    first = int(torch.randint(len(patches), (1,), generator=generator))
    chosen = [patches[first]]
    distance = (patches - chosen[0]).square().sum(1)
    for _ in range(num_codes - 1):
        total = distance.cumsum(0)
        # on the CPU, so that every device draws the same
        point = torch.rand((), generator=generator).item() * float(total[-1])
        chosen.append(patches[min(int(torch.searchsorted(total, point)), len(patches) - 1)])
        distance = torch.minimum(distance, (patches - chosen[-1]).square().sum(1))
    return torch.stack(chosen)
