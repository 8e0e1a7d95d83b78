"""Position embeddings: tables and coordinates for grids of tokens, sines and cosines for time."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from slotbench.nn.linear import xavier_linear
from slotbench.nn.parameters import without_decay

__all__ = [
    "CoordinateEmbedding",
    "CoordinateGrid",
    "PositionInit",
    "coordinate_grid",
    "fourier_grid",
    "position_table",
    "sincos_embedding",
    "sincos_grid",
]

PositionInit = Literal["fourier", "sincos", "learned"]
CoordinateGrid = Literal["centres", "ramps", "unit_centres", "signed_ramps"]


def _ladder(rows: int, cols: int, frequencies: Float[Tensor, " frequencies"]) -> Float[Tensor, "rows cols dim"]:
    """Sines and cosines of the cell centres, in (-1, 1) along both axes, at the given frequencies in radians."""
    y, x = (((torch.arange(n, dtype=torch.float64) + 0.5) * 2 / n - 1)[:, None] * frequencies for n in (rows, cols))
    along_y = torch.cat([y.sin(), y.cos()], dim=-1)[:, None].expand(-1, cols, -1)
    along_x = torch.cat([x.sin(), x.cos()], dim=-1)[None].expand(rows, -1, -1)
    return torch.cat([along_y, along_x], dim=-1).to(torch.get_default_dtype())


def _check_quarters(dim: int) -> None:
    if dim < 4 or dim % 4:
        raise ValueError(f"a two-dimensional sine and cosine table needs a dim that is a multiple of 4, got dim={dim}")


def fourier_grid(rows: int, cols: int, dim: int) -> Float[Tensor, "rows cols dim"]:
    """Two-dimensional Fourier features of the cells of a grid.

    The frequencies run in equal ratios from half a wave across the image, which is monotonous, to half a wave per
    cell of the finer axis, the fastest that the grid can show: neighbouring cells differ as clearly as far ones.

    Args:
        rows: cells along the height.
        cols: cells along the width.
        dim: a multiple of 4: sine and cosine along both axes.
    """
    _check_quarters(dim)
    fastest = math.pi / 2 * max(rows, cols, 2)
    frequencies = torch.logspace(math.log10(math.pi / 2), math.log10(fastest), dim // 4, dtype=torch.float64)
    return _ladder(rows, cols, frequencies)


def sincos_grid(rows: int, cols: int, dim: int) -> Float[Tensor, "rows cols dim"]:
    """The transformer's sines and cosines of the row index beside those of the column index.

    Args:
        rows: cells along the height.
        cols: cells along the width.
        dim: a multiple of 4.
    """
    _check_quarters(dim)
    y, x = (sincos_embedding(torch.arange(n), dim // 2) for n in (rows, cols))
    return torch.cat([y[:, None].expand(-1, cols, -1), x[None].expand(rows, -1, -1)], dim=-1)


def sincos_embedding(
    index: Int[Tensor, "*batch"], dim: int, longest: float = 10_000.0, dtype: torch.dtype | None = None
) -> Float[Tensor, "*batch dim"]:
    """Sines and cosines of an index, at wavelengths from 2 pi to 2 pi times `longest`.

    It is defined for every index, so no clip is too long.

    Args:
        index: frame or step index.
        dim: an even width.
        longest: the longest wavelength over 2 pi.
        dtype: of the result, torch's default if None; in float64 it is exact to float64, otherwise to float32.
    """
    if dim < 2 or dim % 2:
        raise ValueError(f"a sine and cosine embedding needs an even dim, got dim={dim}")
    dtype = torch.get_default_dtype() if dtype is None else dtype
    # float64 only where it is asked for: not every device has it
    inner = torch.promote_types(dtype, torch.float32)
    exponents = torch.arange(dim // 2, device=index.device, dtype=inner) / (dim // 2)
    angles = index[..., None].to(inner) * longest**-exponents
    return torch.cat([angles.sin(), angles.cos()], dim=-1).to(dtype)


def position_table(kind: PositionInit, rows: int, cols: int, dim: int) -> nn.Parameter:
    """A table with one row per cell of a grid, row-major, left alone by weight decay.

    Args:
        kind: "fourier" starts from `fourier_grid` and is trained; "sincos" is `sincos_grid` and stays; "learned" starts
            from small normal noise and is trained.
        rows: cells along the height.
        cols: cells along the width.
        dim: width of a row.
    """
    if kind == "fourier":
        table = nn.Parameter(fourier_grid(rows, cols, dim).flatten(0, 1))
    elif kind == "sincos":
        table = nn.Parameter(sincos_grid(rows, cols, dim).flatten(0, 1), requires_grad=False)
    elif kind == "learned":
        table = nn.Parameter(0.02 * torch.randn(rows * cols, dim))
    else:
        raise ValueError(f"no position table named {kind!r}; choose one of {', '.join(get_args(PositionInit))}")
    return without_decay(table)


def coordinate_grid(kind: CoordinateGrid, rows: int, cols: int) -> Float[Tensor, "rows cols axes"]:
    """Coordinates of every cell: two axes, and in most kinds both again from the other end.

    Args:
        kind: "centres": (x, y, -x, -y) of the centres of the cells, where the image reaches from -sqrt(2) to sqrt(2)
            along both axes, so that no cell is at an end. "ramps": (i, j, 1 - i, 1 - j) with row i and column j from 0
            at the first to 1 at the last cell. "unit_centres": (x, y, 1 - x, 1 - y) of the centres, where the image
            reaches from 0 to 1. "signed_ramps": (i, j) alone, from -1 at the first to 1 at the last cell.
        rows: cells along the height.
        cols: cells along the width.
    """
    if kind == "centres":
        y, x = (((torch.arange(n, dtype=torch.float64) + 0.5) * 2 / n - 1) * math.sqrt(2) for n in (rows, cols))
        place = torch.stack([x.expand(rows, cols), y[:, None].expand(rows, cols)], dim=-1)
        mirrored = -place
    elif kind == "ramps":
        i, j = (torch.linspace(0, 1, n, dtype=torch.float64) for n in (rows, cols))
        place = torch.stack([i[:, None].expand(rows, cols), j.expand(rows, cols)], dim=-1)
        mirrored = 1 - place
    elif kind == "unit_centres":
        y, x = ((torch.arange(n, dtype=torch.float64) + 0.5) / n for n in (rows, cols))
        place = torch.stack([x.expand(rows, cols), y[:, None].expand(rows, cols)], dim=-1)
        mirrored = 1 - place
    elif kind == "signed_ramps":
        i, j = (torch.linspace(-1, 1, n, dtype=torch.float64) for n in (rows, cols))
        return torch.stack([i[:, None].expand(rows, cols), j.expand(rows, cols)], dim=-1).to(torch.get_default_dtype())
    else:
        raise ValueError(f"no coordinate grid named {kind!r}; choose one of {', '.join(get_args(CoordinateGrid))}")
    return torch.cat([place, mirrored], dim=-1).to(torch.get_default_dtype())


class CoordinateEmbedding(nn.Module):
    """One vector for every cell of a grid, linear in the coordinates of the cell.

    Source: Locatello et al., "Object-Centric Learning with Slot Attention", NeurIPS 2020, Appendix E ("ramps"); the
    public codes of PSB ("centres"), STEVE ("unit_centres") and SAVi ("signed_ramps").

    Args:
        kind: which coordinates: see `coordinate_grid`.
        rows: cells along the height.
        cols: cells along the width.
        dim: width of a vector.
    """

    coordinates: Tensor

    def __init__(self, kind: CoordinateGrid, rows: int, cols: int, dim: int):
        super().__init__()
        # follows from the arguments, so no checkpoint needs it
        self.register_buffer("coordinates", coordinate_grid(kind, rows, cols), persistent=False)
        self.linear = xavier_linear(self.coordinates.shape[-1], dim)

    def forward(self) -> Float[Tensor, "1 dim rows cols"]:
        """The vectors as one image, channels-last in memory, to be added to a batch of images."""
        return self.linear(self.coordinates).permute(2, 0, 1)[None]
