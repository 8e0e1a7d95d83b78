"""A cell of an autoregressive transformer compiled for the CPU: all layers, for a few frames.

Every row of a matrix is read once and multiplied with the vectors of all frames, so that few frames cost what reading
the weights costs. The softmax takes numpy's exponential, a number at a time: rows are as long as there are cells or
slots.

numba's cache on disk notices a change of this file alone: after an edit of one that it takes functions from, delete
`slotbench/ops/code_sampling/__pycache__`. Type hints are left off the compiled functions: numba infers the types of
each from its arguments.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from slotbench.ops._numba_math import sum_products

_in_sums: Any = njit(error_model="numpy", fastmath={"contract", "reassoc"})
_driver: Any = njit(nogil=True, cache=True, error_model="numpy")


@_in_sums
def _add_scaled(out, scale, x):
    for j in range(out.shape[0]):
        out[j] += scale * x[j]


@_in_sums
def _normed(x, norm, zero, eps, width, out):
    for frame in range(x.shape[0]):
        mean, variance = zero, zero
        for j in range(x.shape[1]):
            mean += x[frame, j]
        mean /= width
        for j in range(x.shape[1]):
            variance += (x[frame, j] - mean) * (x[frame, j] - mean)
        deviation = np.sqrt(variance / width + eps)
        for j in range(x.shape[1]):
            out[frame, j] = (x[frame, j] - mean) / deviation * norm[0, j] + norm[1, j]


@_in_sums
def _product(matrix, x, zero, out):
    for i in range(matrix.shape[0]):
        for frame in range(x.shape[0]):
            out[frame, i] = sum_products(matrix[i], x[frame], zero)


@_in_sums
def _add_product(matrix, x, bias, zero, out):
    for i in range(matrix.shape[0]):
        for frame in range(x.shape[0]):
            out[frame, i] += sum_products(matrix[i], x[frame], zero) + bias[i]


@_in_sums
def _softmax(scores, zero):
    top = scores[0]
    for j in range(1, scores.shape[0]):
        top = max(top, scores[j])
    total = zero
    for j in range(scores.shape[0]):
        scores[j] = np.exp(scores[j] - top)
        total += scores[j]
    for j in range(scores.shape[0]):
        scores[j] /= total


@_in_sums
def _attend_to_cells(mapped, kept, cell, scale, zero, scores, out):
    """Self-attention of the cell: its keys and values are kept, and it reads those of all cells so far."""
    num_heads, head_dim = kept.shape[2], kept.shape[4]
    dim = num_heads * head_dim
    for frame in range(mapped.shape[0]):
        for head in range(num_heads):
            first = head * head_dim
            for j in range(head_dim):
                kept[frame, 0, head, cell, j] = mapped[frame, dim + first + j]
                kept[frame, 1, head, cell, j] = mapped[frame, 2 * dim + first + j]
            query = mapped[frame, first : first + head_dim]
            read = out[frame, first : first + head_dim]
            weights = scores[: cell + 1]
            for other in range(cell + 1):
                weights[other] = scale * sum_products(query, kept[frame, 0, head, other], zero)
            _softmax(weights, zero)
            read[:] = zero
            for other in range(cell + 1):
                _add_scaled(read, weights[other], kept[frame, 1, head, other])


@_in_sums
def _attend_to_slots(normed, keys, values, num_heads, zero, share, scores, shares, x):
    """Adds what each head reads of the slots to `x`, and the weights, as a share of the layers, to `shares`."""
    num_slots = shares.shape[2]
    weights = scores[:num_slots]
    for frame in range(x.shape[0]):
        for head in range(num_heads):
            for slot in range(num_slots):
                weights[slot] = sum_products(keys[frame, head, slot], normed[frame], zero)
            _softmax(weights, zero)
            for slot in range(num_slots):
                shares[frame, head, slot] += share * weights[slot]
                _add_scaled(x[frame], weights[slot], values[frame, head, slot])


@_driver
def decode_cell(x, cell, weights, slot_keys, slot_values, kept, numbers, scores, logits, shares):
    """Writes the "frames codes" of a cell to `logits` and the mean over layers of "frames heads slots" to `shares`.

    `x` is "frames dim" and is written over; the rest is what `CellDecoder` holds.
    """
    norms, mapping, output, expand, expand_bias, contract, contract_bias, last_norm, head = weights
    zero, eps, width, head_scale, share = numbers
    normed, change = np.empty_like(x), np.empty_like(x)
    mapped = np.empty((x.shape[0], mapping.shape[1]), x.dtype)
    hidden = np.empty((x.shape[0], expand.shape[1]), x.dtype)
    no_bias = np.zeros(x.shape[1], x.dtype)
    shares[:] = zero
    for layer in range(mapping.shape[0]):
        _normed(x, norms[layer, 0], zero, eps, width, normed)
        if layer == 0:
            x[:] = normed
        _product(mapping[layer], normed, zero, mapped)
        _attend_to_cells(mapped, kept[layer], cell, head_scale, zero, scores, change)
        _add_product(output[layer], change, no_bias, zero, x)
        _normed(x, norms[layer, 1], zero, eps, width, normed)
        _attend_to_slots(normed, slot_keys[layer], slot_values[layer], shares.shape[1], zero, share, scores, shares, x)
        _normed(x, norms[layer, 2], zero, eps, width, normed)
        hidden[:] = zero
        _add_product(expand[layer], normed, expand_bias[layer], zero, hidden)
        for frame in range(x.shape[0]):
            for j in range(hidden.shape[1]):
                hidden[frame, j] = max(hidden[frame, j], zero)
        _add_product(contract[layer], hidden, contract_bias[layer], zero, x)
    _normed(x, last_norm, zero, eps, width, normed)
    _product(head, normed, zero, logits)
