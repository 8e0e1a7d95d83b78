"""The scan of Mamba-2: one decay per head, so that a chunk of steps is a product of matrices (state space duality)."""

from __future__ import annotations

import torch
from einops import einsum, repeat
from torch import Tensor

from slotbench.ops._arguments import check_shapes, compute_dtype, without_autocast
from slotbench.ops._ssd_mamba_ssm import ssd_mamba_ssm
from slotbench.ops._ssd_torch import ChunkedSSD
from slotbench.ops.dispatch import choose_kernel

__all__ = ["ssd", "ssd_reference"]

_SHORT_CLIP = 32
"""Steps up to which "auto" takes `torch` in the place of mamba-ssm: one chunk of matrix products."""


def ssd(
    x: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    state: Tensor | None = None,
    *,
    exact_zoh: bool = False,
    kernel: str = "auto",
) -> tuple[Tensor, Tensor]:
    """Runs one state space model per head, whose decay is a number and whose state is a matrix.

        h_t = exp(delta_t A) h_{t-1} + delta_t x_t B_t^T        y_t = h_t C_t + D x_t

    The channels of a head share delta, A and D; the heads of a group share B and C. With one channel per head and one
    group it is `selective_scan` with the same rate for every state of a channel.

    The returned state is an output like y: gradient that comes in through it counts, so a clip can be cut anywhere. It
    computes in float32 under autocast and for half inputs, in float64 if any input is float64.

    Kernels: `reference` is the equation as a loop under plain autograd (the only one that can be differentiated twice);
    `torch` takes a chunk of steps at once as matrix products, exactly, with a backward that recomputes, on every
    device; `numba` is that of `selective_scan`, on the CPU, with the numbers of a head repeated for its channels;
    `mamba_ssm` calls the Triton kernels of the package mamba-ssm, on CUDA, whose products of float32 are of the
    precision TF32. `auto` takes `numba` on a CPU; on CUDA `mamba_ssm` where that is installed, for more than 32 steps,
    which are one chunk of `torch`: on an H200 `torch` is faster at 24 steps, and exact, and slower at 300.

    Source: Mamba-2 (Dao and Gu, 2024), section 5 and Listing 1; SlotSSM (Jiang et al., NeurIPS 2024), Eq. 1-5.

    Args:
        x: input, "batch time heads head_dim", time >= 1.
        delta: step size after its softplus, >= 0, "batch time heads".
        A: rate of every head, < 0, "heads".
        B: input map, "batch time groups state", where groups divides heads: group i serves the i-th heads in a row.
        C: output map, "batch time groups state".
        D: share of the input that skips the state, "heads".
        state: h before the first step, "batch heads head_dim state"; zeros if None.
        exact_zoh: takes (exp(delta A) - 1) / A in place of delta as the factor of x B, the exact solution for an input
            that is held over the step (zero-order hold); `numba` and `mamba_ssm` cannot, and no entry of A may be 0.
        kernel: "auto" (as above) or the name of a kernel.

    Returns:
        y "batch time heads head_dim" in the dtype of x, and h after the last step "batch heads head_dim state" in the
        dtype it computes in.
    """
    _check(x, delta, A, B, C, D, state)
    dtype = compute_dtype((x, delta, A, B, C, D, state))
    excluded = {}
    if exact_zoh:
        excluded = dict.fromkeys(("numba", "mamba_ssm"), "has no exact zero-order hold: use kernel='torch'")
    elif dtype == torch.float64:
        excluded = {"mamba_ssm": "computes in float32 and an input is float64: use kernel='torch'"}
    elif kernel == "auto" and x.shape[1] <= _SHORT_CLIP:
        excluded = {"mamba_ssm": f"is slower than 'torch' for clips of up to {_SHORT_CLIP} steps"}
    name = choose_kernel("ssd", kernel, x.device, excluded)

    with without_autocast(x.device):
        x_, delta_, A_, B_, C_ = (value.to(dtype) for value in (x, delta, A, B, C))
        state_ = None if state is None else state.to(dtype)
        if name == "mamba_ssm":
            y, last = ssd_mamba_ssm(x_, delta_, A_, B_, C_, state_)
        else:
            if state_ is None:
                state_ = x_.new_zeros(x.shape[0], *x.shape[2:], B.shape[-1])
            if name == "numba":
                y, last = _as_selective_scans(x_, delta_, A_, B_, C_, None if D is None else D.to(dtype), state_)
                return y.to(x.dtype), last
            exponent = delta_ * A_
            gain = torch.expm1(exponent) / A_ if exact_zoh else delta_
            drive = gain[..., None] * x_
            if name == "reference":
                y, last = ssd_reference(drive, exponent, B_, C_, state_)
            else:
                y, last = ChunkedSSD.apply(drive, exponent, B_, C_, state_)
        if D is not None:
            y = y + D.to(dtype)[:, None] * x_
    return y.to(x.dtype), last


def ssd_reference(drive: Tensor, exponent: Tensor, B: Tensor, C: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """The recurrence of `ssd` without its skip, to read and to check against, on tensors of one dtype.

    `drive` is delta x (in that order of axes), `exponent` is delta A; the others are as there.
    """
    decay = torch.exp(exponent)
    per_group = drive.shape[2] // B.shape[2]
    B, C = (repeat(x, "batch time group state -> batch time (group n) state", n=per_group) for x in (B, C))
    ys = []
    # unbind once: indexing decay[:, t] in a differentiated loop costs O(T^2) in the backward pass
    for decay_t, drive_t, B_t, C_t in zip(*(x.unbind(1) for x in (decay, drive, B, C)), strict=True):
        state = decay_t[..., None, None] * state + drive_t[..., None] * B_t[..., None, :]
        ys.append(einsum(state, C_t, "batch head channel state, batch head state -> batch head channel"))
    return torch.stack(ys, dim=1), state


def _as_selective_scans(
    x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None, state: Tensor
) -> tuple[Tensor, Tensor]:
    """One compiled selective scan per group of heads: the channels of a head have its step size, rate and skip."""
    from slotbench.ops._selective_scan_numba import SelectiveScan

    head_dim, num_states = x.shape[-1], B.shape[-1]
    per_group = x.shape[2] // B.shape[2]
    ys, lasts = [], []
    for group in range(B.shape[2]):
        heads = slice(group * per_group, (group + 1) * per_group)
        y, last = SelectiveScan.apply(
            x[:, :, heads].flatten(2),
            delta[:, :, heads].repeat_interleave(head_dim, dim=2),
            A[heads].repeat_interleave(head_dim)[:, None].expand(-1, num_states).contiguous(),
            B[:, :, group],
            C[:, :, group],
            None if D is None else D[heads].repeat_interleave(head_dim),
            None,
            state[:, heads].flatten(1, 2),
        )
        ys.append(y.unflatten(2, (per_group, head_dim)))
        lasts.append(last.unflatten(1, (per_group, head_dim)))
    return torch.cat(ys, dim=2), torch.cat(lasts, dim=1)


def _check(x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None, state: Tensor | None) -> None:
    if x.ndim != 4:
        raise ValueError(f"ssd takes x as (batch, time, heads, head_dim) and got the shape {tuple(x.shape)}")
    if B.ndim != 4:
        raise ValueError(f"ssd takes B as (batch, time, groups, state) and got the shape {tuple(B.shape)}")
    batch, time, heads, head_dim = x.shape
    groups, num_states = B.shape[2:]
    if time == 0:
        raise ValueError("ssd needs at least one time step and x has none: leave the call out for an empty clip")
    if groups == 0 or heads % groups:
        raise ValueError(
            f"ssd shares B and C among the heads of a group, and {groups} groups do not divide {heads} heads: "
            f"choose a number of groups that does"
        )
    maps = (batch, time, groups, num_states)
    expected = {
        "delta": (delta, (batch, time, heads), "(batch, time, heads)"),
        "A": (A, (heads,), "(heads,)"),
        "B": (B, maps, "(batch, time, groups, state)"),
        "C": (C, maps, "(batch, time, groups, state)"),
        "D": (D, (heads,), "(heads,)"),
        "state": (state, (batch, heads, head_dim, num_states), "(batch, heads, head_dim, state)"),
    }
    check_shapes("ssd", {"x": x, "B": B}, expected)
