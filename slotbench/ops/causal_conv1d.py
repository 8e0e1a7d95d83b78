"""Causal depthwise convolution over time, with the window that carries over from one call to the next."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from einops import rearrange
from torch import Tensor
from torch.nn import functional

from slotbench.ops._cuda_packages import causal_conv1d_convolution
from slotbench.ops.dispatch import choose_kernel

__all__ = ["causal_conv1d", "causal_conv1d_reference"]


def causal_conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    state: Tensor | None = None,
    activation: str | None = None,
    *,
    kernel: str = "auto",
) -> tuple[Tensor, Tensor]:
    """Convolves every channel with its own filter; no output sees a later input.

        y_t[d] = activation( bias[d] + sum_k weight[d, k] x_{t - width + 1 + k}[d] )

    It computes in float32, also under autocast and for half inputs, in float64 if any input is float64. Kernels:
    `reference` is the equation as shifted products; `torch` is torch's grouped convolution; `numba` is compiled for the
    CPU, bias and activation included, and reads x where it lies (a part of a wider projection is not copied);
    `causal_conv1d` calls the CUDA kernel of the package causal-conv1d, which takes 2, 3 or 4 taps, in float32.

    Source: Mamba (Gu and Dao, 2023), section 3.4: the short convolution before the scan.

    Args:
        x: input, "batch time dim", time >= 1.
        weight: filters, oldest input first, "dim width".
        bias: "dim".
        state: the last width - 1 inputs of the call before, oldest first, "batch width-1 dim"; zeros if None.
        activation: None or "silu".
        kernel: "auto" (the fastest that runs here) or the name of a kernel.

    Returns:
        y "batch time dim", and the last width - 1 inputs "batch width-1 dim", both in the dtype of x.
    """
    _check(x, weight, bias, state, activation)
    inputs = (x, weight, bias, state)
    dtype = torch.float64 if any(a is not None and a.dtype == torch.float64 for a in inputs) else torch.float32
    width = weight.shape[1]
    excluded = {}
    if dtype == torch.float64:
        excluded["causal_conv1d"] = "computes in float32 and an input is float64: use kernel='torch'"
    elif not 2 <= width <= 4:
        excluded["causal_conv1d"] = f"takes filters of 2, 3 or 4 taps and these have {width}: use kernel='torch'"
    name = choose_kernel("causal_conv1d", kernel, x.device, excluded)
    if state is None:
        state = x.new_zeros(x.shape[0], width - 1, x.shape[2])
    if name == "numba":
        from slotbench.ops._causal_conv1d_numba import CausalConv1d

        offset = None if bias is None else bias.to(dtype)
        before = state.to(x.dtype).to(dtype)
        y, last = CausalConv1d.apply(x.to(dtype), weight.to(dtype), offset, before, activation == "silu")
        return y.to(x.dtype), last.to(x.dtype)
    window = torch.cat([state.to(x.dtype), x], dim=1)
    # a copy: a view would keep the whole clip in memory for as long as the state lives
    last = window[:, x.shape[1] :].clone()
    window, weight = window.to(dtype), weight.to(dtype)
    bias = None if bias is None else bias.to(dtype)
    if name == "reference":
        y = causal_conv1d_reference(window, weight, bias, activation)
    else:
        convolve = _with_torch if name == "torch" else _with_causal_conv1d
        y = convolve(rearrange(window, "batch time dim -> batch dim time"), weight, bias, activation)
        y = rearrange(y, "batch dim time -> batch time dim")
    return y.to(x.dtype), last


def causal_conv1d_reference(window: Tensor, weight: Tensor, bias: Tensor | None, activation: str | None) -> Tensor:
    """The equation of `causal_conv1d` on the inputs with their width - 1 predecessors in front."""
    width = weight.shape[1]
    time = window.shape[1] - width + 1
    y = weight[:, 0] * window[:, :time]
    for k in range(1, width):
        y = y + weight[:, k] * window[:, k : k + time]
    if bias is not None:
        y = y + bias
    return functional.silu(y) if activation == "silu" else y


def _with_torch(window: Tensor, weight: Tensor, bias: Tensor | None, activation: str | None) -> Tensor:
    autocast = torch.amp.is_autocast_available(window.device.type)
    with torch.autocast(window.device.type, enabled=False) if autocast else nullcontext():
        y = functional.conv1d(window, weight[:, None, :], bias, groups=len(weight))
    return functional.silu(y) if activation == "silu" else y


def _with_causal_conv1d(window: Tensor, weight: Tensor, bias: Tensor | None, activation: str | None) -> Tensor:
    # The package's own arguments for the window need a layout with dim innermost and a multiple of 8. Convolving the
    # window as a part of the sequence, and dropping the outputs that saw less than a whole filter, needs neither.
    convolve = causal_conv1d_convolution()
    y: Tensor = convolve(window.contiguous(), weight.contiguous(), bias, activation=activation)
    return y[..., weight.shape[1] - 1 :]


def _check(x: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor | None, activation: str | None) -> None:
    if x.ndim != 3:
        raise ValueError(f"causal_conv1d takes x as (batch, time, dim) and got the shape {tuple(x.shape)}")
    batch, time, dim = x.shape
    if time == 0:
        raise ValueError(
            "causal_conv1d needs at least one time step and x has none: leave the call out for an empty clip"
        )
    if weight.ndim != 2 or weight.shape[0] != dim or weight.shape[1] == 0:
        raise ValueError(
            f"causal_conv1d takes weight as (dim, width) = ({dim}, width) beside x {tuple(x.shape)}, "
            f"and got the shape {tuple(weight.shape)}"
        )
    if bias is not None and tuple(bias.shape) != (dim,):
        raise ValueError(f"causal_conv1d takes bias as (dim,) = ({dim},) and got the shape {tuple(bias.shape)}")
    expected = (batch, weight.shape[1] - 1, dim)
    if state is not None and tuple(state.shape) != expected:
        raise ValueError(
            f"causal_conv1d takes state as (batch, width - 1, dim) = {expected} beside x {tuple(x.shape)} and weight "
            f"{tuple(weight.shape)}, and got the shape {tuple(state.shape)}"
        )
    if activation not in (None, "silu"):
        raise ValueError(f"causal_conv1d takes activation None or 'silu', and got '{activation}'")
