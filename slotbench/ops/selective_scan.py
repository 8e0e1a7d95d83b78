"""The selective scan of state space models: one op, a readable reference, and the faster kernels beside it."""

from __future__ import annotations

import torch
from einops import einsum
from torch import Tensor
from torch.nn import functional

from slotbench.ops._arguments import check_shapes, compute_dtype, without_autocast
from slotbench.ops._selective_scan_mamba_ssm import MAX_STATES, selective_scan_mamba_ssm
from slotbench.ops.dispatch import choose_kernel

__all__ = ["selective_scan", "selective_scan_reference"]

_MAX_STATES = {"mamba_ssm": MAX_STATES, "triton": 1024}


def selective_scan(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    state: Tensor | None = None,
    *,
    exact_zoh: bool = False,
    kernel: str = "auto",
) -> tuple[Tensor, Tensor]:
    """Runs a diagonal state space model whose step size and input and output maps change with the input.

        h_t = exp(delta_t A) h_{t-1} + delta_t B_t u_t        y_t = (C_t . h_t + D u_t) * silu(z_t)

    The returned state is an output like y: gradient that comes in through it counts, so a clip can be cut anywhere. It
    computes in float32 under autocast and for half inputs, in float64 if any input is float64.

    Kernels: `reference` is the equation as a loop under plain autograd (the only one that can be differentiated twice);
    `torch` the same with a backward that recomputes, on every device; `numba` the same compiled, on the CPU, on
    `torch.get_num_threads()` threads, its gradients the same bits whatever that number; `triton` the same compiled for
    CUDA, in float32, its results the same bits every time on one type of GPU, few sequences of many steps in spans of
    time side by side; `mamba_ssm` calls the CUDA kernel of the package mamba-ssm, in float32; that kernel knows neither
    an initial state nor a gradient of the last one, so both are honoured by extra steps (see
    `slotbench.ops._selective_scan_mamba_ssm`).

    Source: SlotSSM (Jiang et al., NeurIPS 2024), Eq. 1-5 and Alg. 1; Mamba (Gu and Dao, 2023), Eq. 2 and Alg. 2.

    Args:
        u: input, "batch time dim", time >= 1.
        delta: step size after its softplus, >= 0, "batch time dim".
        A: rate of every state, < 0, "dim state".
        B: input map, "batch time state".
        C: output map, "batch time state".
        D: share of the input that skips the state, "dim".
        z: gate before its SiLU, "batch time dim".
        state: h before the first step, "batch dim state"; zeros if None.
        exact_zoh: takes (exp(delta A) - 1) / A in place of delta as the factor of B u, the exact solution for an input
            that is held over the step (zero-order hold); only `reference` and `torch` can, and no entry of A may be 0.
        kernel: "auto" (the fastest that runs here) or the name of a kernel.

    Returns:
        y "batch time dim" in the dtype of u, and h after the last step "batch dim state" in the dtype it computes in.
    """
    _check(u, delta, A, B, C, D, z, state)
    dtype = compute_dtype((u, delta, A, B, C, D, z, state))
    excluded = {}
    if exact_zoh:
        excluded = dict.fromkeys(("numba", "mamba_ssm", "triton"), "has no exact zero-order hold: use kernel='torch'")
    elif dtype == torch.float64:
        reason = "computes in float32 and an input is float64: use kernel='torch'"
        excluded = dict.fromkeys(("mamba_ssm", "triton"), reason)
    else:
        for name, most in _MAX_STATES.items():
            if A.shape[1] > most:
                excluded[name] = f"takes at most {most} states and A has {A.shape[1]}: use kernel='torch'"
    name = choose_kernel("selective_scan", kernel, u.device, excluded)
    if name == "triton":
        from slotbench.ops._cuda.triton_selective_scan import selective_scan_triton

        return selective_scan_triton(u, delta, A, B, C, D, z, state)

    with without_autocast(u.device):
        u_, delta_, A_, B_, C_ = (x.to(dtype) for x in (u, delta, A, B, C))
        D_, z_, state_ = (None if x is None else x.to(dtype) for x in (D, z, state))
        if name == "mamba_ssm":
            y, last = selective_scan_mamba_ssm(u_, delta_, A_, B_, C_, state_)
            return _skip_and_gate(y, u_, D_, z_).to(u.dtype), last
        if state_ is None:
            state_ = u_.new_zeros(u.shape[0], *A.shape)
        if name == "reference":
            y, last = selective_scan_reference(u_, delta_, A_, B_, C_, D_, z_, state_, exact_zoh=exact_zoh)
        elif name == "numba":
            from slotbench.ops._selective_scan_numba import SelectiveScan as NumbaScan

            y, last = NumbaScan.apply(u_, delta_, A_, B_, C_, D_, z_, state_)
        else:
            from slotbench.ops._selective_scan_torch import SelectiveScan

            y, last = SelectiveScan.apply(u_, delta_, A_, B_, C_, state_, exact_zoh)
            y = _skip_and_gate(y, u_, D_, z_)
    return y.to(u.dtype), last


def selective_scan_reference(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    z: Tensor | None,
    state: Tensor,
    *,
    exact_zoh: bool = False,
) -> tuple[Tensor, Tensor]:
    """The equations of `selective_scan`, to read and to check against; the arguments are the same, and of one dtype."""
    exponent = delta[..., None] * A
    gain = torch.expm1(exponent) / A if exact_zoh else delta[..., None]
    decay = torch.exp(exponent)
    drive = gain * B[:, :, None, :] * u[..., None]
    ys = []
    # unbind once: indexing decay[:, t] in a differentiated loop costs O(T^2) in the backward pass
    for decay_t, drive_t, C_t in zip(decay.unbind(1), drive.unbind(1), C.unbind(1), strict=True):
        state = decay_t * state + drive_t
        ys.append(einsum(state, C_t, "batch dim state, batch state -> batch dim"))
    return _skip_and_gate(torch.stack(ys, dim=1), u, D, z), state


def _skip_and_gate(y: Tensor, u: Tensor, D: Tensor | None, z: Tensor | None) -> Tensor:
    if D is not None:
        y = y + D * u
    return y if z is None else y * functional.silu(z)


def _check(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None, z: Tensor | None, state: Tensor | None
) -> None:
    if u.ndim != 3:
        raise ValueError(f"selective_scan takes u as (batch, time, dim) and got the shape {tuple(u.shape)}")
    if A.ndim != 2:
        raise ValueError(f"selective_scan takes A as (dim, state) and got the shape {tuple(A.shape)}")
    batch, time, dim = u.shape
    if time == 0:
        raise ValueError(
            "selective_scan needs at least one time step and u has none: leave the call out for an empty clip"
        )
    num_states = A.shape[1]
    expected = {
        "delta": (delta, (batch, time, dim), "(batch, time, dim)"),
        "A": (A, (dim, num_states), "(dim, state)"),
        "B": (B, (batch, time, num_states), "(batch, time, state)"),
        "C": (C, (batch, time, num_states), "(batch, time, state)"),
        "D": (D, (dim,), "(dim,)"),
        "z": (z, (batch, time, dim), "(batch, time, dim)"),
        "state": (state, (batch, dim, num_states), "(batch, dim, state)"),
    }
    check_shapes("selective_scan", {"u": u, "A": A}, expected)
