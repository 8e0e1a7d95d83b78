"""A transposed convolution over a grid that holds one vector in every cell, as a matrix product."""

from __future__ import annotations

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["broadcast_conv_transpose"]


def broadcast_conv_transpose(
    conv: nn.ConvTranspose2d,
    vectors: Float[Tensor, "count in_channels"],
    offsets: Float[Tensor, "1 in_channels rows cols"],
) -> Float[Tensor, "count out_channels out_rows out_cols"]:
    """`conv` of `vectors[:, :, None, None] + offsets`, without writing that grid down.

    Every cell holds the same vector, so what reaches a place of the output is the vector times the sum of those taps
    of the kernel that meet a cell there: one matrix for all vectors. The offsets go through the convolution once. Same
    values and gradients up to rounding, with less work: benchmarks/broadcast_decoder.py measures it.

    Args:
        conv: without groups and dilation.
        vectors: one per grid.
        offsets: what is added to each cell, the same for all grids.
    """
    rows, cols = (_taps(conv, axis, cells).to(conv.weight) for axis, cells in enumerate(offsets.shape[-2:]))
    matrix = einsum(conv.weight, rows, cols, "inner outer k l, row k, col l -> inner row col outer")
    shape = (len(vectors), *matrix.shape[1:])
    # the matrix is channels-last, and so is what follows: no copy
    grown = (vectors @ matrix.flatten(1)).view(shape).permute(0, 3, 1, 2)
    return grown + conv(offsets).contiguous(memory_format=torch.channels_last)


def _taps(conv: nn.ConvTranspose2d, axis: int, cells: int) -> Float[Tensor, "out_cells taps"]:
    """1 where, at a place of the output, a tap of the kernel meets one of the cells, along one axis."""
    size, stride, padding = conv.kernel_size[axis], conv.stride[axis], conv.padding[axis]
    assert not isinstance(padding, str)
    length = (cells - 1) * stride - 2 * padding + size + conv.output_padding[axis]
    # tap k of cell i lands on i * stride - padding + k
    origin = torch.arange(length)[:, None] + padding - torch.arange(size)
    return ((origin % stride == 0) & (origin >= 0) & (origin // stride < cells)).float()
