"""Cutting a grid of tokens into patches that do not overlap, one vector per patch, and laying vectors out again."""

from __future__ import annotations

from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from slotbench.nn.resnet_blocks import lecun_normal_

__all__ = ["GridToPatches", "PatchesToGrid", "patch_shape"]


def patch_shape(grid: tuple[int, int], patch: int | None) -> tuple[int, int]:
    """(rows, cols) of one patch, in cells.

    Args:
        grid: (rows, cols) of the tokens.
        patch: cells per side of a patch; None for the whole grid in one.

    Raises:
        ValueError: patches of that size do not tile the grid.
    """
    if patch is None:
        return grid
    if patch < 1 or grid[0] % patch or grid[1] % patch:
        raise ValueError(
            f"patch={patch} does not tile a grid of {grid[0]}x{grid[1]} cells: give a number that divides both sides, "
            "or None to make one patch of the whole grid"
        )
    return patch, patch


class GridToPatches(nn.Module):
    """One linear map without bias from the cells of a patch to its vector: a convolution whose stride is its kernel.

    Row (r, c, d) of the transposed weight, in row-major order, belongs to channel d of cell (r, c) of the patch.

    Source: ConvS5 (Smith et al., NeurIPS 2023), public code, `z_proj`.

    Args:
        token_dim: width of a token.
        dim: width of a patch's vector.
        grid: (rows, cols) of the tokens.
        shape: (rows, cols) of a patch, as `patch_shape` gives them.
    """

    def __init__(self, token_dim: int, dim: int, grid: tuple[int, int], shape: tuple[int, int]):
        super().__init__()
        self.grid, self.shape = grid, shape
        self.linear = nn.Linear(shape[0] * shape[1] * token_dim, dim, bias=False)
        lecun_normal_(self.linear.weight)

    def forward(self, tokens: Float[Tensor, "batch time tokens token_dim"]) -> Float[Tensor, "batch time patches dim"]:
        """The patches of every step, row by row."""
        pattern = "batch time (rows r cols c) dim -> batch time (rows cols) (r c dim)"
        r, c = self.shape
        return self.linear(rearrange(tokens, pattern, rows=self.grid[0] // r, cols=self.grid[1] // c, r=r, c=c))


class PatchesToGrid(nn.Module):
    """One linear map without bias from a vector to the cells of its patch: a transposed convolution of that stride.

    Row (r, c, d) of the weight, in row-major order, belongs to channel d of cell (r, c). Its initial
    weights have the fan of the public code, which counts the cells of a patch in although they share no sum.

    Source: ConvS5 (Smith et al., NeurIPS 2023), public code, `z_unproj`.

    Args:
        dim: width of a patch's vector.
        token_dim: width of a cell of the output.
        grid: (rows, cols) of the output.
        shape: (rows, cols) of a patch, as `patch_shape` gives them.
    """

    def __init__(self, dim: int, token_dim: int, grid: tuple[int, int], shape: tuple[int, int]):
        super().__init__()
        self.grid, self.shape = grid, shape
        cells = shape[0] * shape[1]
        self.linear = nn.Linear(dim, cells * token_dim, bias=False)
        lecun_normal_(self.linear.weight, fan_in=cells * dim)

    def forward(self, patches: Float[Tensor, "batch time patches dim"]) -> Float[Tensor, "batch time tokens token_dim"]:
        """The cells of every step, row by row."""
        pattern = "batch time (rows cols) (r c dim) -> batch time (rows r cols c) dim"
        r, c = self.shape
        return rearrange(self.linear(patches), pattern, rows=self.grid[0] // r, cols=self.grid[1] // c, r=r, c=c)
