"""Where a cell of a grid lies, as four numbers that a linear map makes a position embedding of."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from slotbench.nn.linear import xavier_linear

__all__ = ["CoordinateEmbedding", "CoordinateGrid", "coordinate_grid"]

CoordinateGrid = Literal["centres", "ramps"]


def coordinate_grid(kind: CoordinateGrid, rows: int, cols: int) -> Float[Tensor, "rows cols 4"]:
    """Four coordinates of every cell: two axes, and both again from the other end.

    Args:
        kind: "centres": (x, y, -x, -y) of the centres of the cells, where the picture reaches from -sqrt(2) to sqrt(2)
            along both axes, so that no cell is at an end. "ramps": (i, j, 1 - i, 1 - j) with row i and column j from 0
            at the first to 1 at the last cell.
        rows: cells along the height.
        cols: cells along the width.

    Raises:
        ValueError: an unknown kind.
    """
    if kind == "centres":
        y, x = (((torch.arange(n, dtype=torch.float64) + 0.5) * 2 / n - 1) * math.sqrt(2) for n in (rows, cols))
        place = torch.stack([x.expand(rows, cols), y[:, None].expand(rows, cols)], dim=-1)
        mirrored = -place
    elif kind == "ramps":
        i, j = (torch.linspace(0, 1, n, dtype=torch.float64) for n in (rows, cols))
        place = torch.stack([i[:, None].expand(rows, cols), j.expand(rows, cols)], dim=-1)
        mirrored = 1 - place
    else:
        raise ValueError(f"no coordinate grid named {kind!r}; choose one of {', '.join(get_args(CoordinateGrid))}")
    return torch.cat([place, mirrored], dim=-1).to(torch.get_default_dtype())


class CoordinateEmbedding(nn.Module):
    """One vector for every cell of a grid, linear in the four coordinates of the cell.

    Source: Locatello et al., "Object-Centric Learning with Slot Attention", NeurIPS 2020, Appendix E ("ramps"); code of
    PSB, model.py ("centres").

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
        self.linear = xavier_linear(4, dim)

    def forward(self) -> Float[Tensor, "1 dim rows cols"]:
        """The vectors as one picture, channels-last in memory, to be added to a batch of pictures."""
        return self.linear(self.coordinates).permute(2, 0, 1)[None]
