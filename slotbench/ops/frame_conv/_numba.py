"""The convolution of frames compiled for the CPU: Winograd's F(2 x 2, 3 x 3), with the norm and activation before it.

Four neighbouring outputs of a 3 x 3 convolution, a tile, read 4 x 4 inputs d. With fixed matrices A and B, and weights
G g G' that are transformed once, they are A' ((G g G') * (B' d B)) A: 16 products in the place of 36. Each transform
runs over a row of tiles and all channels at once, because the padded image keeps its even and its odd columns apart, so
that what the tiles of a row read at one of their 4 x 4 places is one run of memory.

Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016, section 4.1.

numba's cache on disk notices a change of this file alone: after an edit of one that it takes functions from, delete
`slotbench/ops/frame_conv/__pycache__`. Type hints are left off the compiled functions: numba infers the types of each
from its arguments.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from slotbench.ops._numba_math import NoAliasCompiler
from slotbench.ops.frame_conv._block_product import BLOCK, multiply_block
from slotbench.ops.group_norm._row_kernels import activate_rows, activation_constants, by_group, column_sums

__all__ = ["convolve", "convolve_pixels"]

_TILES = 32  # that go through all stages together, about

_ROW = 64  # numbers that a row of few channels is filled up to, for the sums of the norm

_inner: Any = njit(pipeline_class=NoAliasCompiler, error_model="numpy", fastmath={"contract"})
_driver: Any = njit(nogil=True, cache=True, error_model="numpy")


@_driver
def convolve(x, groups, weight, bias, eps, gelu, panels, offset, passed, factor, y):
    """y = passed + factor (conv(activation(norm(x))) + offset), without norm and activation where there are no groups.

    Args:
        x: "frames rows cols in".
        groups: of the norm, or 0.
        weight: of the norm, "in".
        bias: of the norm, "in".
        eps: of the norm.
        gelu: whether the activation is GELU, and not ELU.
        panels: weights as `transform_weight` lays them out, "16 panels in lanes".
        offset: "out".
        passed: "frames rows cols out", or with no frames for zero.
        factor: see above.
        y: "frames rows cols out".
    """
    frames, rows, cols, channels = x.shape
    tile_rows, tile_cols = (rows + 1) // 2, (cols + 1) // 2
    lanes, share = panels.shape[3], x.dtype.type(factor)
    width = panels.shape[1] * lanes
    # as many rows of tiles at once as stay in the nearest cache
    at_once = min(tile_rows, (_TILES + tile_cols - 1) // tile_cols)
    tiles = (at_once * tile_cols + BLOCK - 1) // BLOCK * BLOCK
    image = np.zeros((2 * tile_rows + 2, 2 * (tile_cols + 1) * channels), x.dtype)
    seen, made = np.zeros((16, tiles, channels), x.dtype), np.empty((16, tiles, width), x.dtype)
    scratch = np.empty((4, cols * channels), x.dtype)
    halves = np.empty((4, image.shape[1]), x.dtype)
    sums = np.empty((10, tile_cols * width), x.dtype)
    for frame in range(frames):
        if groups:
            _norm_constants(x[frame], groups, weight, bias, eps, scratch)
        _pad(x[frame], groups > 0, gelu, scratch, image)
        for first in range(0, tile_rows, at_once):
            end = min(first + at_once, tile_rows)
            for row in range(first, end):
                _transform_inputs(image, row, (row - first) * tile_cols * channels, tile_cols, channels, halves, seen)
            for at in range(16):
                for panel in range(panels.shape[1]):
                    for block in range(0, (end - first) * tile_cols, BLOCK):
                        multiply_block(seen[at], block, panels[at, panel], made[at], panel * lanes)
            for row in range(first, end):
                _transform_outputs(made, (row - first) * tile_cols * width, tile_cols * width, sums)
                for i in range(min(2, rows - 2 * row)):
                    target = y[frame, 2 * row + i]
                    # of an array that is there in any case
                    before = passed[frame, 2 * row + i] if passed.shape[0] else target
                    even, odd = sums[8 - 8 * i], sums[9 - 8 * i]
                    _write(even, odd, width, offset, before, passed.shape[0] > 0, share, target)


@_driver
def convolve_pixels(x, panels, offset, passed, factor, y):
    """y = passed + factor (weight x + offset) of every pixel.

    Args:
        x: "pixels in".
        panels: weights, "1 panels in lanes".
        offset: "out".
        passed: "pixels out", or with no pixels for zero.
        factor: see above.
        y: "pixels out".
    """
    pixels, channels = x.shape
    _, num_panels, _, lanes = panels.shape
    share = x.dtype.type(factor)
    width = num_panels * lanes
    made, few = np.empty((BLOCK, width), x.dtype), np.zeros((BLOCK, channels), x.dtype)
    flat = made.reshape(BLOCK * width)
    made_even, made_odd = flat, flat[width:]
    for first in range(0, pixels, BLOCK):
        count = min(BLOCK, pixels - first)
        rows = x[first : first + BLOCK]
        if count < BLOCK:
            few[:count] = rows
            rows = few
        for panel in range(num_panels):
            multiply_block(rows, 0, panels[0, panel], made, panel * lanes)
        target = y[first : first + count]
        before = passed[first : first + count] if passed.shape[0] else target
        _write(made_even, made_odd, 2 * width, offset, before, passed.shape[0] > 0, share, target)


@_inner
def _norm_constants(x, groups, weight, bias, eps, scratch):
    """Centre, scale and offset of every number of a row of pixels, to scratch[1:4]."""
    rows, cols, channels = x.shape
    together = 1
    while channels * together < _ROW and rows * cols % (2 * together) == 0:
        together *= 2
    width, per_group = channels * together, channels // groups
    lines = x.reshape((rows * cols // together, width))
    part, centre = np.empty(width, x.dtype), np.empty(width, x.dtype)
    sums, means, squares = np.empty(width), np.empty(groups), np.empty(groups)
    count = rows * cols * per_group
    column_sums(lines, centre, False, part, sums)
    by_group(sums, channels, means)
    for g in range(groups):
        means[g] /= count
    for j in range(width):
        centre[j] = means[j % channels // per_group]
    column_sums(lines, centre, True, part, sums)
    by_group(sums, channels, squares)
    for c in range(channels):
        g = c // per_group
        rstd = 1 / np.sqrt(squares[g] / count + eps)
        for col in range(cols):
            scratch[1, col * channels + c] = means[g]
            scratch[2, col * channels + c] = rstd * weight[c]
            scratch[3, col * channels + c] = bias[c]


@_inner
def _pad(x, activated, gelu, scratch, image):
    """Writes x, activated or not, into an image with a border of zeros whose even columns stand before its odd ones."""
    rows, cols, channels = x.shape
    half = image.shape[1] // 2
    constants = activation_constants(scratch[0])
    for row in range(rows):
        line = x[row].reshape((1, cols * channels))
        if activated:
            activate_rows(line, scratch[1], scratch[2], scratch[3], gelu, constants, scratch[:1])
            line = scratch[:1]
        values, target = line[0], image[row + 1]
        for col in range(cols):
            to = ((col + 1) % 2) * half + (col + 1) // 2 * channels
            source, place = values[col * channels : (col + 1) * channels], target[to : to + channels]
            for c in range(channels):
                place[c] = source[c]


@_inner
def _four(d0, d1, d2, d3, t0, t1, t2, t3):
    """B' d."""
    for k in range(t0.shape[0]):
        t0[k] = d0[k] - d2[k]
        t1[k] = d1[k] + d2[k]
        t2[k] = d2[k] - d1[k]
        t3[k] = d1[k] - d3[k]


@_inner
def _two(m0, m1, m2, m3, s0, s1):
    """A' m."""
    for k in range(s0.shape[0]):
        s0[k] = m0[k] + m1[k] + m2[k]
        s1[k] = m1[k] - m2[k] - m3[k]


@_inner
def _transform_inputs(image, row, first, tile_cols, channels, halves, seen):
    """B' d B of a row of tiles, which stand from `first` on."""
    h0, h1, h2, h3 = halves[0], halves[1], halves[2], halves[3]
    _four(image[2 * row], image[2 * row + 1], image[2 * row + 2], image[2 * row + 3], h0, h1, h2, h3)
    count, half = tile_cols * channels, image.shape[1] // 2
    for a in range(4):
        line = halves[a]
        even, odd, next_even, next_odd = line[:half], line[half:], line[channels:half], line[half + channels :]
        _four(
            even,
            odd,
            next_even,
            next_odd,
            seen[4 * a].reshape(-1)[first : first + count],
            seen[4 * a + 1].reshape(-1)[first : first + count],
            seen[4 * a + 2].reshape(-1)[first : first + count],
            seen[4 * a + 3].reshape(-1)[first : first + count],
        )


@_inner
def _transform_outputs(made, first, count, sums):
    """A' M A of a row of tiles: its upper pixels to sums[8:], its lower ones to sums[:2], even columns before odd."""
    for b in range(4):
        _two(
            made[b].reshape(-1)[first : first + count],
            made[4 + b].reshape(-1)[first : first + count],
            made[8 + b].reshape(-1)[first : first + count],
            made[12 + b].reshape(-1)[first : first + count],
            sums[b],
            sums[4 + b],
        )
    _two(sums[0], sums[1], sums[2], sums[3], sums[8], sums[9])
    _two(sums[4], sums[5], sums[6], sums[7], sums[0], sums[1])


@_inner
def _write(even, odd, step, offset, passed, has_passed, factor, y):
    """A row of pixels, of which those in even columns stand apart from the odd, `step` numbers from one to the next."""
    cols, channels = y.shape
    for col in range(cols):
        start = col // 2 * step
        source, target = (odd if col % 2 else even)[start : start + channels], y[col]
        if has_passed:
            before = passed[col]
            for c in range(channels):
                target[c] = before[c] + factor * (source[c] + offset[c])
        else:
            for c in range(channels):
                target[c] = factor * (source[c] + offset[c])
