"""GroupNorm and an activation in one pass over images: one op, a readable reference, and faster kernels."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional

from slotbench.ops._arguments import check_shapes, compute_dtype
from slotbench.ops.dispatch import choose_kernel

__all__ = ["Activation", "group_norm_activation", "group_norm_activation_reference"]

Activation = Literal["gelu_tanh", "elu"]
"""GELU in its tanh form, or ELU."""

_ACTIVATIONS = get_args(Activation)
_COMPILED = (torch.float32, torch.float64, torch.bfloat16)


def group_norm_activation(
    x: Tensor,
    num_groups: int,
    weight: Tensor,
    bias: Tensor,
    eps: float = 1e-5,
    activation: str = "gelu_tanh",
    *,
    kernel: str = "auto",
) -> Tensor:
    """Normalises every image over groups of its channels, scales and shifts every channel, and applies an activation.

        y = activation( weight (x - mean) / sqrt(variance + eps) + bias )

    Mean and variance are those of an image's group: consecutive channels at all places. The compiled kernel reads and
    writes images in the memory layout that they have, keeps nothing but x and two numbers per group for the backward
    pass, and computes bfloat16 images in float32. Its gradients are the same bits whatever the number of threads.

    Kernels: `reference` is the equation under plain autograd; `torch` is torch's two operations, on every device;
    `numba` is compiled for the CPU, on `torch.get_num_threads()` threads, and can be differentiated once. Where there
    is a gradient and images are few, "auto" takes `torch`, whose calls cost less.

    Source: Wu and He, "Group Normalization", ECCV 2018, Eq. 1-6.

    Args:
        x: images, "frames channels *space"; float32, float64, or bfloat16, any for `torch`.
        num_groups: groups of channels; must divide their number.
        weight: scale of every channel, "channels".
        bias: offset of every channel, "channels".
        eps: added to the variance.
        activation: "gelu_tanh" or "elu".
        kernel: "auto" (the fastest that runs here) or the name of a kernel.

    Returns:
        y, of the shape, dtype and memory layout of x.
    """
    _check(x, num_groups, weight, bias, activation)
    excluded = {}
    if x.dtype not in _COMPILED or (x.dtype != torch.float64 and weight.dtype == torch.float64):
        excluded = {"numba": f"has no code for x in {x.dtype} beside weight in {weight.dtype}: use kernel='torch'"}
    if kernel == "auto" and x.device.type == "cpu" and _is_small(x, weight, bias):
        kernel = "torch"
    name = choose_kernel("group_norm_activation", kernel, x.device, excluded)
    if name == "reference":
        return group_norm_activation_reference(x, num_groups, weight, bias, eps, activation)
    if name == "numba":
        from slotbench.ops.group_norm._numba import norm_and_activate

        return norm_and_activate(x, num_groups, weight, bias, eps, activation)
    normal = torch.group_norm(x, num_groups, weight, bias, eps)
    # in place: the backward of ELU reads its output, which the next layer keeps anyway
    return functional.elu(normal, inplace=True) if activation == "elu" else functional.gelu(normal, approximate="tanh")


def group_norm_activation_reference(
    x: Tensor, num_groups: int, weight: Tensor, bias: Tensor, eps: float, activation: str
) -> Tensor:
    """The equation of `group_norm_activation`, to read and to check against, in float32 for half precision."""
    dtype = compute_dtype((x,))
    groups = x.to(dtype).reshape(len(x), num_groups, -1)
    variance, mean = torch.var_mean(groups, dim=-1, correction=0, keepdim=True)
    normal = ((groups - mean) / torch.sqrt(variance + eps)).reshape(x.shape)
    of_channel = (-1, *(1,) * (x.ndim - 2))
    z = weight.to(dtype).reshape(of_channel) * normal + bias.to(dtype).reshape(of_channel)
    if activation == "elu":
        y = torch.where(z > 0, z, torch.expm1(z.clamp(max=0)))
    else:
        y = 0.5 * z * (1 + torch.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
    return y.to(x.dtype)


def _is_small(x: Tensor, weight: Tensor, bias: Tensor) -> bool:
    if not torch.is_grad_enabled() or not (x.requires_grad or weight.requires_grad or bias.requires_grad):
        return False
    return x.numel() < (4_096 if x.dtype == torch.bfloat16 else 16_384)


def _check(x: Tensor, num_groups: int, weight: Tensor, bias: Tensor, activation: str) -> None:
    if x.ndim < 2 or x.numel() == 0:
        raise ValueError(
            f"group_norm_activation takes x as (frames, channels, *space), none of them 0, and got the shape "
            f"{tuple(x.shape)}"
        )
    channels = x.shape[1]
    if num_groups < 1 or channels % num_groups:
        raise ValueError(
            f"group_norm_activation cannot cut {channels} channels into {num_groups} groups: give a number that "
            f"divides {channels}"
        )
    if activation not in _ACTIVATIONS:
        raise ValueError(f"group_norm_activation has no activation '{activation}': use 'gelu_tanh' or 'elu'")
    if weight.shape != (channels,) or bias.shape != (channels,) or not weight.device == bias.device == x.device:
        expected = {name: (value, (channels,), "(channels,)") for name, value in (("weight", weight), ("bias", bias))}
        check_shapes("group_norm_activation", {"x": x}, expected)
