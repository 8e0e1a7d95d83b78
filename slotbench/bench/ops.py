"""Kernels of `slotbench.ops` in turns: time and memory of forward and backward, and the error against float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.benchmark import Timer

from slotbench import ops
from slotbench.ops.dispatch import KERNELS
from slotbench.ops.inverted_attention import AttentionMaps, inverted_attention
from slotbench.registry import load

__all__ = ["Call", "call_of", "error_of", "measure"]

SIZES = {
    "selective_scan": ((32, 320, 128), (4, 2560, 128)),
    "linear_scan": ((1, 100, 128), (1, 1000, 128)),
    "causal_conv1d": ((32, 320, 128),),
    "group_norm_activation": ((74, 64, 64),),
    "inverted_attention": ((6, 1024, 192), (6, 4096, 192)),
}
"""Sequences, steps (or tokens) and channels that are measured."""
_STATES, _TAPS, _SLOTS, _HEAD = 16, 4, 11, 16


@dataclass(frozen=True)
class Call:
    """An op with inputs.

    Attributes:
        inputs: in the order of the op's arguments.
        outputs: calls the op with inputs and the name of a kernel.
    """

    inputs: list[Tensor]
    outputs: Callable[[list[Tensor], str], tuple[Tensor, ...]]

    def on(self, device: torch.device | str, double: bool = False) -> Call:
        """The same on a device, in float32 or float64, with inputs that take gradients."""
        real = torch.float64 if double else torch.float32
        types = {False: real, True: real.to_complex()}
        moved = [value.detach().to(device, types[value.is_complex()]).requires_grad_() for value in self.inputs]
        return Call(moved, self.outputs)

    def both(self, kernel: str) -> list[Tensor]:
        """The first output, and gradients of its sum over a fixed pattern: forward and backward."""
        y = self.outputs(self.inputs, kernel)[0]
        pattern = torch.linspace(-1, 1, y.shape[-1], device=y.device).to(y.dtype).expand_as(y)
        return [y.detach(), *torch.autograd.grad(y, self.inputs, pattern)]


def call_of(op: str, sequences: int = 2, steps: int = 20, width: int = 32) -> Call:
    """Random inputs of an op, the same ones at every call.

    Args:
        op: one of `slotbench.ops.dispatch.KERNELS`.
        sequences: clips times slots; frames of inverted attention.
        steps: of each; tokens of a frame.
        width: channels.
    """
    generator = torch.Generator().manual_seed(0)

    def randn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    def rate(*shape: int) -> Tensor:
        return functional.softplus(randn(*shape) - 3)

    def plain(inputs: list[Tensor], kernel: str) -> tuple[Tensor, ...]:
        outputs: tuple[Tensor, ...] = getattr(ops, op)(*inputs, kernel=kernel)
        return outputs

    if op == "selective_scan":
        A = -torch.arange(1.0, _STATES + 1).repeat(width, 1)
        inputs = [randn(sequences, steps, width), rate(sequences, steps, width), A]
        return Call([*inputs, randn(sequences, steps, _STATES), randn(sequences, steps, _STATES)], plain)
    if op == "ssd":
        heads = width // _HEAD
        inputs = [randn(sequences, steps, heads, _HEAD), rate(sequences, steps, heads), -1 - rate(heads)]
        return Call([*inputs, randn(sequences, steps, 1, _STATES), randn(sequences, steps, 1, _STATES)], plain)
    if op == "causal_conv1d":
        return Call([randn(sequences, steps, width), randn(width, _TAPS), randn(width)], plain)
    if op == "linear_scan":
        drive = torch.complex(randn(sequences, steps, width), randn(sequences, steps, width))
        return Call([drive, torch.polar(torch.exp(-rate(width)), 3 * randn(width))], plain)
    if op == "group_norm_activation":
        side = math.isqrt(steps)
        norm = partial(_group_norm, groups=min(8, width))
        return Call([randn(sequences, width, side, side), randn(width), randn(width)], norm)
    inputs = [randn(sequences, _SLOTS, width), randn(sequences, steps, width)]
    return Call([*inputs, randn(width, width) / width**0.5, randn(2 * width, width) / width**0.5], _attend)


def _group_norm(inputs: list[Tensor], kernel: str, groups: int) -> tuple[Tensor, ...]:
    images, weight, bias = inputs
    return (ops.group_norm_activation(images, groups, weight, bias, kernel=kernel),)


def _attend(inputs: list[Tensor], kernel: str) -> tuple[Tensor, ...]:
    slots, tokens, query, key_value = inputs
    maps = AttentionMaps(_linear(query), _linear(key_value))
    updates, _, _ = inverted_attention(slots, tokens, maps, load("aggregations", "WeightedMean")(1), kernel=kernel)
    return (updates,)


def _linear(weight: Tensor) -> nn.Linear:
    """A map with this very tensor as weight, so that it takes the gradient."""
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    del made.weight
    made.weight = weight
    return made


def error_of(op: str, kernel: str, device: torch.device | str) -> float:
    """Largest difference from the reference in float64, of a value or gradient, relative to the largest of its tensor.

    Small inputs, forward and backward.
    """
    call = call_of(op)
    expected = call.on("cpu", double=True).both("reference")
    pairs = zip(call.on(device).both(kernel), expected, strict=True)
    return max(((a.cpu().to(b.dtype) - b).abs().max() / b.abs().max()).item() for a, b in pairs)


def measure(names: list[str], device: str, seconds: float = 2.0) -> Iterator[dict[str, Any]]:
    """Milliseconds of forward and backward of each kernel that runs on a device.

    Args:
        names: of ops.
        device: "cpu" or "cuda".
        seconds: that each kernel is timed for at each size.
    """
    for op in names:
        kernels = [kernel for kernel in KERNELS[op] if ops.available_kernels(op, device)[kernel] is None]
        errors = {kernel: error_of(op, kernel, device) for kernel in kernels}
        for size in SIZES.get(op, ((32, 320, 128),)):
            call = call_of(op, *size).on(device)
            for kernel in kernels:
                call.both(kernel)  # compiles
                timer = Timer("call.both(kernel)", globals={"call": call, "kernel": kernel}, num_threads=1)
                found = timer.blocked_autorange(min_run_time=seconds)
                yield {"op": op, "size": size, "kernel": kernel, "ms": 1e3 * found.median, "error": errors[kernel]}
