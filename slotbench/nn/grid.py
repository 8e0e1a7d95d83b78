"""Tokens as images: the cells of a grid in row-major order, frames channels-last in memory, no copy on the way."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from slotbench.interfaces import TokenSpec

__all__ = ["grid_of", "normalise_frames", "to_images", "to_tokens"]


def grid_of(token_spec: TokenSpec) -> tuple[int, int]:
    """(rows, cols) of the tokens; tokens without a grid count as one row.

    Args:
        token_spec: the output of the encoder.
    """
    rows, cols = token_spec.grid or (1, token_spec.num_tokens)
    if rows * cols != token_spec.num_tokens:
        raise ValueError(
            f"the token spec has {token_spec.num_tokens} tokens on a grid of {rows}x{cols} = {rows * cols} cells: "
            f"give one token per cell, or grid=None to take the tokens as one row"
        )
    return rows, cols


def to_images(
    tokens: Float[Tensor, "batch time tokens dim"], grid: tuple[int, int]
) -> Float[Tensor, "batch*time dim rows cols"]:
    """One image per step, every sample's steps one after the other; a channels_last view where `tokens` is contiguous.

    Args:
        tokens: cells of the grid, row by row.
        grid: (rows, cols).
    """
    batch, time, count, dim = tokens.shape
    rows, cols = grid
    if count != rows * cols:
        raise ValueError(
            f"got {count} tokens per step for a grid of {rows}x{cols} = {rows * cols} cells: "
            "the tokens must be those of the spec that the core was built from"
        )
    if not batch:
        raise ValueError("a batch of no clips has no images; expected 1 or more")
    return tokens.reshape(batch * time, rows, cols, dim).permute(0, 3, 1, 2)


def to_tokens(images: Float[Tensor, "frames dim rows cols"], batch: int) -> Float[Tensor, "batch time rows*cols dim"]:
    """The inverse of `to_images`; a view where `images` is channels_last in memory.

    Args:
        images: every sample's steps one after the other.
        batch: samples.
    """
    frames, dim, rows, cols = images.shape
    if not batch or frames % batch:
        raise ValueError(f"{frames} images cannot be the steps of {batch} clips of one length")
    return images.permute(0, 2, 3, 1).reshape(batch, frames // batch, rows * cols, dim)


def normalise_frames(images: Float[Tensor, "frames dim rows cols"]) -> Float[Tensor, "frames dim rows cols"]:
    """A LayerNorm of each image over all of its channels and pixels at once, without weights.

    It is `torch.nn.functional.layer_norm(images, images.shape[1:])`, taken over the view in which channels-last memory
    is contiguous, so that nothing is copied on the way in and out.

    Args:
        images: of any memory format; channels-last is the fast one.
    """
    cells = images.permute(0, 2, 3, 1)
    return F.layer_norm(cells, cells.shape[1:]).permute(0, 3, 1, 2)
