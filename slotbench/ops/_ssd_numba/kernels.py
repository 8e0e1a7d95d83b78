"""The compiled functions of Mamba-2's scan.

One task is one block of channels of one group of samples: whole heads of one group of heads, or a part of one wide
head. Within it the channels are the innermost axis, as in the compiled selective scan. The backward goes over each
chunk of steps twice: forwards from the state before it for what the states multiply (the gradient of C), backwards for
all else, so that no state of a single step is kept. Sums over the batch are taken in an order that the number of
threads does not change.

Type hints are left off the compiled functions: numba infers the types of each from its arguments.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from slotbench.ops._numba_math import LOG2_E, NoAliasCompiler, exp2
from slotbench.ops._rows import row

LANES = 16  # a block is padded to a multiple of what fits a vector register, twice in double precision
CHUNK = 32  # steps between two saved states

_in_step = njit(pipeline_class=NoAliasCompiler, error_model="numpy", fastmath={"contract"})
_with_sums = njit(pipeline_class=NoAliasCompiler, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})
_in_chunk = njit(error_model="numpy")
_driver: Any = njit(nogil=True, cache=True, error_model="numpy")


@_in_step
def _step_of_four(h0, h1, h2, h3, decay, drive, y, b, c):
    """`_step` for four states, so that what the lanes share is read once for all of them."""
    b0, b1, b2, b3 = b[0], b[1], b[2], b[3]
    c0, c1, c2, c3 = c[0], c[1], c[2], c[3]
    for j in range(drive.shape[0]):
        d, x = decay[j], drive[j]
        v0, v1, v2, v3 = d * h0[j] + b0 * x, d * h1[j] + b1 * x, d * h2[j] + b2 * x, d * h3[j] + b3 * x
        h0[j], h1[j], h2[j], h3[j] = v0, v1, v2, v3
        y[j] += (c0 * v0 + c1 * v1) + (c2 * v2 + c3 * v3)


@_in_step
def _step(h, decay, drive, y, b, c):
    """Takes the state of the block, h "state lanes", over one step and sets y "lanes" without its skip."""
    y[:] = 0
    fours = len(h) - len(h) % 4
    for n in range(0, fours, 4):
        _step_of_four(h[n], h[n + 1], h[n + 2], h[n + 3], decay, drive, y, b[n : n + 4], c[n : n + 4])
    for n in range(fours, len(h)):
        for j in range(drive.shape[0]):
            value = decay[j] * h[n, j] + b[n] * drive[j]
            h[n, j] = value
            y[j] += c[n] * value


@_in_step
def _second_step_of_four(h0, h1, h2, h3, decay, drive, grad_y, y, b, c, sums0, sums1, sums2, sums3):
    """`_second_step` for four states."""
    b0, b1, b2, b3 = b[0], b[1], b[2], b[3]
    c0, c1, c2, c3 = c[0], c[1], c[2], c[3]
    for block in range(drive.shape[0] // LANES):
        for i in range(LANES):
            j = block * LANES + i
            d, x, g = decay[j], drive[j], grad_y[j]
            v0, v1, v2, v3 = d * h0[j] + b0 * x, d * h1[j] + b1 * x, d * h2[j] + b2 * x, d * h3[j] + b3 * x
            h0[j], h1[j], h2[j], h3[j] = v0, v1, v2, v3
            y[j] += (c0 * v0 + c1 * v1) + (c2 * v2 + c3 * v3)
            sums0[i] += g * v0
            sums1[i] += g * v1
            sums2[i] += g * v2
            sums3[i] += g * v3


@_in_step
def _second_step(h, decay, drive, grad_y, y, b, c, sums):
    """Does as `_step`, and sets the gradient of C, still to be summed along `sums` "state LANES"."""
    y[:] = 0
    sums[:] = 0
    fours = len(h) - len(h) % 4
    for n in range(0, fours, 4):
        _second_step_of_four(
            h[n], h[n + 1], h[n + 2], h[n + 3], decay, drive, grad_y, y, b[n : n + 4], c[n : n + 4],
            sums[n], sums[n + 1], sums[n + 2], sums[n + 3],
        )  # fmt: skip
    for n in range(fours, len(h)):
        for j in range(drive.shape[0]):
            value = decay[j] * h[n, j] + b[n] * drive[j]
            h[n, j] = value
            y[j] += c[n] * value
            sums[n, j % LANES] += grad_y[j] * value


@_in_step
def _reverse_step_of_four(
    grad0, grad1, grad2, grad3, decay, drive, grad_y, b, c, grad_drive, sums0, sums1, sums2, sums3
):
    """`_reverse_step` for four states."""
    b0, b1, b2, b3 = b[0], b[1], b[2], b[3]
    c0, c1, c2, c3 = c[0], c[1], c[2], c[3]
    for block in range(drive.shape[0] // LANES):
        for i in range(LANES):
            j = block * LANES + i
            d, x, g = decay[j], drive[j], grad_y[j]
            g0, g1, g2, g3 = grad0[j] + c0 * g, grad1[j] + c1 * g, grad2[j] + c2 * g, grad3[j] + c3 * g
            sums0[i] += g0 * x
            sums1[i] += g1 * x
            sums2[i] += g2 * x
            sums3[i] += g3 * x
            grad_drive[j] += (b0 * g0 + b1 * g1) + (b2 * g2 + b3 * g3)
            grad0[j], grad1[j], grad2[j], grad3[j] = d * g0, d * g1, d * g2, d * g3


@_in_step
def _reverse_step(grad_h, decay, drive, grad_y, b, c, grad_drive, sums):
    """Takes grad_h from after the step to before it, and sets the gradients of drive "lanes" and of B (in `sums`)."""
    grad_drive[:] = 0
    sums[:] = 0
    fours = len(grad_h) - len(grad_h) % 4
    for n in range(0, fours, 4):
        _reverse_step_of_four(
            grad_h[n], grad_h[n + 1], grad_h[n + 2], grad_h[n + 3], decay, drive, grad_y, b[n : n + 4], c[n : n + 4],
            grad_drive, sums[n], sums[n + 1], sums[n + 2], sums[n + 3],
        )  # fmt: skip
    for n in range(fours, len(grad_h)):
        for j in range(drive.shape[0]):
            grad = grad_h[n, j] + c[n] * grad_y[j]
            sums[n, j % LANES] += grad * drive[j]
            grad_drive[j] += b[n] * grad
            grad_h[n, j] = decay[j] * grad


@_with_sums
def _add_up(sums, out):
    for n in range(len(out)):
        total = sums.dtype.type(0)
        for i in range(LANES):
            total += sums[n, i]
        out[n] = total


@_with_sums
def _dot(x, y):
    total = x.dtype.type(0)
    for j in range(len(x)):
        total += x[j] * y[j]
    return total


@_in_step
def _read_step(x, gain, exponent, per_head, gains, decays, drives):
    """Sets gain, decay and drive "lanes" from the step's x, and its gain and exponent "heads"."""
    log2_e = x.dtype.type(LOG2_E)
    for head in range(len(gain)):
        begin, stop = head * per_head, min((head + 1) * per_head, len(x))
        gains[begin:stop] = gain[head]
        decays[begin:stop] = exp2(exponent[head] * log2_e)
    for j in range(len(x)):
        drives[j] = gains[j] * x[j]


@_in_step
def _skip(out, y, x, skip):
    for j in range(len(out)):
        out[j] = y[j] + skip[j] * x[j]


@_in_step
def _reverse_inputs(grad_x, grad_skip, grad_drive, grad_y, x, gains, skip):
    for j in range(len(grad_x)):
        grad_x[j] = grad_drive[j] * gains[j] + skip[j] * grad_y[j]
        grad_skip[j] += grad_y[j] * x[j]


@_in_chunk
def _place(block, blocks, heads, head_dim, groups):
    """(group, part of it, piece of a head, first head, last head, first channel, last channel) of a block."""
    _, parts, of_part, pieces, lanes, _ = blocks
    group, rest = divmod(block, parts * pieces)
    part, piece = divmod(rest, pieces)
    per_group = heads // groups
    first = group * per_group + part * of_part
    last = min(first + of_part, (group + 1) * per_group)
    begin = first * head_dim + piece * lanes
    stop = last * head_dim if pieces == 1 else min(begin + lanes, last * head_dim)
    return group, part, piece, first, last, begin, stop


@_driver
def forward(first, last, sizes, blocks, x, gain, exponent, B, C, skip, state, y, end, starts):
    """Runs tasks first to last: sets y "batch time channels", end "batch channels state" and, if it has room, starts.

    The channels are those of all heads; `starts` "batch blocks chunks state lanes" are the states before every chunk.
    """
    time, heads, head_dim, groups, num_states = sizes
    (num_blocks, _, _, _, _, lanes), dtype = blocks, state.dtype
    h = np.zeros((num_states, lanes), dtype)
    gains, decays = np.zeros(lanes, dtype), np.zeros(lanes, dtype)
    drives, step_y = np.zeros(lanes, dtype), np.zeros(lanes, dtype)
    for task in range(first, last):
        sample, block = divmod(task, num_blocks)
        group, _, _, head, last_head, begin, stop = _place(block, blocks, heads, head_dim, groups)
        maps = group * num_states, (group + 1) * num_states
        h[:] = 0
        drives[:] = 0
        h[:, : stop - begin] = state[sample, begin:stop].T
        for t in range(time):
            if len(starts) > 0 and t % CHUNK == 0:
                starts[sample, block, t // CHUNK] = h
            step_x = row(x, sample, t, begin, stop)
            _read_step(
                step_x, row(gain, sample, t, head, last_head), row(exponent, sample, t, head, last_head), head_dim,
                gains, decays, drives,
            )  # fmt: skip
            _step(h, decays, drives, step_y, row(B, sample, t, *maps), row(C, sample, t, *maps))
            _skip(row(y, sample, t, begin, stop), step_y, step_x, skip[begin:stop])
        end[sample, begin:stop] = h[:, : stop - begin].T


@_in_chunk
def _again(
    h, sample, begin_step, steps, place, head_dim, x, gain, exponent, B, C, grad_y, grad_C, gains, decays, drives,
    grads, came, step_y, sums, of_part,
):  # fmt: skip
    """The forward of a chunk once more: what its reverse needs of every step, and the gradient of C."""
    group, head, last_head, begin, stop = place
    width = stop - begin
    num_states = len(h)
    low, high = group * num_states, (group + 1) * num_states
    for k in range(steps):
        t = begin_step + k
        _read_step(
            row(x, sample, t, begin, stop), row(gain, sample, t, head, last_head),
            row(exponent, sample, t, head, last_head), head_dim, gains[k], decays[k], drives[k],
        )  # fmt: skip
        grads[k, :width] = row(grad_y, sample, t, begin, stop)
        _second_step(
            h, decays[k], drives[k], grads[k], step_y, row(B, sample, t, low, high), row(C, sample, t, low, high), sums
        )
        _add_up(sums, row(grad_C, of_part, t, low, high))
        for i in range(last_head - head):
            lane, end = i * head_dim, min((i + 1) * head_dim, width)
            came[k, i] = _dot(grads[k, lane:end], step_y[lane:end])


@_in_chunk
def _reverse(
    grad_h, through, sample, begin_step, steps, place, head_dim, x, gain, B, C, skip, gains, decays, drives, grads,
    came, grad_drive, sums, of_part, of_piece, grad_x, grad_gain, grad_exponent, grad_B, grad_skip,
):  # fmt: skip
    """The reverse of a chunk. `through` "heads" is the product of the state after it with its gradient from there on.

    The exponents up to a step multiply all that comes out at it or later and divide all that went in: the gradient of
    a step's exponent is the sum of the one over what is to come less the sum of the other.
    """
    group, head, last_head, begin, stop = place
    width = stop - begin
    num_states = len(grad_h)
    low, high = group * num_states, (group + 1) * num_states
    for k in range(steps - 1, -1, -1):
        t = begin_step + k
        _reverse_step(
            grad_h, decays[k], drives[k], grads[k], row(B, sample, t, low, high), row(C, sample, t, low, high),
            grad_drive, sums,
        )  # fmt: skip
        _add_up(sums, row(grad_B, of_part, t, low, high))
        step_x, step_gain = row(x, sample, t, begin, stop), row(gain, sample, t, head, last_head)
        _reverse_inputs(row(grad_x, sample, t, begin, stop), grad_skip, grad_drive, grads[k], step_x, gains[k], skip)
        out_gain = row(grad_gain, of_piece, t, head, last_head)
        out_exponent = row(grad_exponent, of_piece, t, head, last_head)
        for i in range(last_head - head):
            lane, end = i * head_dim, min((i + 1) * head_dim, width)
            out_gain[i] = _dot(grad_drive[lane:end], step_x[lane:end])
            through[i] += came[k, i] - step_gain[i] * out_gain[i]
            out_exponent[i] = through[i]


@_driver
def backward(
    first, last, sizes, blocks, x, gain, exponent, B, C, skip, starts, grad_y, grad_end,
    grad_x, grad_gain, grad_exponent, grad_B, grad_C, grad_skip, grad_state,
):  # fmt: skip
    """Runs tasks first to last: sets the gradients, of the shapes of what they are of, from the `starts` of `forward`.

    There is one of gain and exponent per piece of a head, one of B and C per part and piece, and one of skip "channels"
    per group of samples, each along the first axis and still to be summed.
    """
    batch, time, heads, head_dim, groups, num_states = sizes
    num_blocks, _, most_heads, pieces, _, lanes = blocks
    num_groups, dtype = len(grad_skip), skip.dtype
    h, grad_h = np.zeros((num_states, lanes), dtype), np.zeros((num_states, lanes), dtype)
    gains, decays = np.zeros((CHUNK, lanes), dtype), np.zeros((CHUNK, lanes), dtype)
    drives, grads = np.zeros((CHUNK, lanes), dtype), np.zeros((CHUNK, lanes), dtype)
    came, through = np.zeros((CHUNK, most_heads)), np.zeros(most_heads)
    step_y, grad_drive, sums = np.zeros(lanes, dtype), np.zeros(lanes, dtype), np.zeros((num_states, LANES), dtype)
    for task in range(first, last):
        samples, block = divmod(task, num_blocks)
        group, part, piece, head, last_head, begin, stop = _place(block, blocks, heads, head_dim, groups)
        place = group, head, last_head, begin, stop
        drives[:] = 0
        grads[:] = 0
        for sample in range(batch * samples // num_groups, batch * (samples + 1) // num_groups):
            of_piece = piece * batch + sample
            of_part = part * pieces * batch + of_piece
            grad_h[:] = 0
            grad_h[:, : stop - begin] = grad_end[sample, begin:stop].T
            for chunk in range((time - 1) // CHUNK, -1, -1):
                steps = min(CHUNK, time - chunk * CHUNK)
                h[:] = starts[sample, block, chunk]
                _again(
                    h, sample, chunk * CHUNK, steps, place, head_dim, x, gain, exponent, B, C, grad_y, grad_C,
                    gains, decays, drives, grads, came, step_y, sums, of_part,
                )  # fmt: skip
                through[:] = 0
                for n in range(num_states):
                    for i in range(last_head - head):
                        lane, end = i * head_dim, min((i + 1) * head_dim, stop - begin)
                        through[i] += _dot(grad_h[n, lane:end], h[n, lane:end])
                _reverse(
                    grad_h, through, sample, chunk * CHUNK, steps, place, head_dim, x, gain, B, C, skip[begin:stop],
                    gains, decays, drives, grads, came, grad_drive, sums, of_part, of_piece,
                    grad_x, grad_gain, grad_exponent, grad_B, grad_skip[samples, begin:stop],
                )  # fmt: skip
            grad_state[sample, begin:stop] = grad_h[:, : stop - begin].T
