"""Kernels of `slotbench.ops` in turns, forward plus backward; and a residual block prepared for many calls."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from slotbench.bench.subjects import Subject, by_shape
from slotbench.bench.timing import Contest, Way
from slotbench.nn.resnet_blocks import ResNetBlock
from slotbench.ops import available_kernels, group_norm_activation, linear_scan, selective_scan, ssd
from slotbench.ops.gated_norm import gated_rms_norm

__all__ = ["SUBJECTS"]

Shape = tuple[int, ...]


def _kernels(op: str) -> list[str]:
    return [name for name, reason in available_kernels(op, "cpu").items() if reason is None]


# batch, time, inner, state
SELECTIVE_SCAN = [(96, 20, 256, 16), (96, 100, 256, 16), (32, 320, 256, 16), (8, 1280, 256, 16), (4, 2560, 256, 16)]


def _selective_scan(quick: bool) -> list[Contest]:
    shapes = [(8, 20, 64, 16), (2, 160, 64, 16)] if quick else SELECTIVE_SCAN
    kernels = _kernels("selective_scan")
    ways = partial(_scan_ways, kernels)
    return by_shape(shapes, ways, "reference", lambda shape: (2, 4, *shape[2:]), memory=tuple(kernels))


def _scan_ways(kernels: list[str], shape: Shape) -> dict[str, Way]:
    """Through the outputs and through the last state."""
    batch, steps, inner, state = shape
    torch.manual_seed(0)
    inputs: dict[str, Any] = {
        "u": torch.randn(batch, steps, inner),
        "delta": functional.softplus(torch.randn(batch, steps, inner) - 3),
        "A": -torch.arange(1.0, state + 1).repeat(inner, 1),
        "B": torch.randn(batch, steps, state),
        "C": torch.randn(batch, steps, state),
        "D": torch.randn(inner),
        "z": torch.randn(batch, steps, inner),
        "state": torch.randn(batch, inner, state),
    }
    for value in inputs.values():
        value.requires_grad_()
    gradients = (torch.randn(batch, steps, inner), torch.randn(batch, inner, state))

    def run(kernel: str) -> tuple[Tensor, ...]:
        return torch.autograd.grad(selective_scan(**inputs, kernel=kernel), list(inputs.values()), gradients)

    return {kernel: partial(run, kernel) for kernel in kernels}


# batch, time, heads, channels of a head, states: first those of a block of width 64
SSD = [(96, 6, 4, 20, 16), (96, 20, 4, 20, 16), (32, 320, 4, 20, 16), (8, 1280, 4, 20, 16), (4, 2560, 4, 20, 16)]
SSD += [(96, 20, 4, 20, 64), (96, 20, 4, 20, 128), (12, 80, 4, 64, 64), (12, 80, 4, 64, 128), (12, 6, 4, 64, 128)]
# batch, time, channels
GATED_NORM = [(96, 6, 80), (36, 80, 80), (4, 1280, 80), (36, 80, 512)]


def _ssd(quick: bool) -> list[Contest]:
    shapes = [(8, 20, 4, 20, 16), (2, 160, 4, 20, 16)] if quick else SSD
    norms = [(2, 3, 8)] if quick else GATED_NORM
    return by_shape(shapes, _ssd_ways, "ssd torch") + by_shape(norms, _norm_ways, "torch", group="gate and norm")


def _ssd_ways(shape: Shape) -> dict[str, Way]:
    batch, steps, num_heads, head_dim, num_states = shape
    torch.manual_seed(0)
    inner = num_heads * head_dim
    x = torch.randn(batch, steps, inner).requires_grad_()
    delta = functional.softplus(torch.randn(batch, steps, num_heads) - 3).requires_grad_()
    A = (-torch.rand(num_heads) * 15 - 1).requires_grad_()
    B, C = (torch.randn(batch, steps, num_states).requires_grad_() for _ in range(2))

    def run(op: str, kernel: str) -> tuple[Tensor, ...]:
        if op == "ssd":
            heads = x.unflatten(-1, (num_heads, head_dim))
            outputs = ssd(heads, delta, A, B[:, :, None], C[:, :, None], kernel=kernel)
        else:
            decay = A.repeat_interleave(head_dim)[:, None].expand(inner, num_states)
            outputs = selective_scan(x, delta.repeat_interleave(head_dim, dim=-1), decay, B, C, kernel=kernel)
        return torch.autograd.grad(outputs, [x, delta, A, B, C], [torch.ones_like(output) for output in outputs])

    pairs = [(op, kernel) for op in ("ssd", "selective_scan") for kernel in _kernels(op)]
    slow = (("selective_scan", "reference"), ("selective_scan", "torch"))
    return {f"{op} {kernel}": partial(run, op, kernel) for op, kernel in pairs if (op, kernel) not in slow}


def _norm_ways(shape: Shape) -> dict[str, Way]:
    """Five gated norms; the gate is a part of wider rows, as in the block."""
    batch, steps, dim = shape
    x, weight = torch.randn(batch, steps, dim, requires_grad=True), torch.ones(dim, requires_grad=True)
    gate = torch.randn(batch, steps, 3 * dim)[..., :dim].requires_grad_()
    outer = torch.randn(batch, steps, dim)

    def run(kernel: str) -> None:
        for _ in range(5):
            torch.autograd.grad(gated_rms_norm(x, gate, weight, kernel=kernel), (x, gate, weight), outer)

    return {kernel: partial(run, kernel) for kernel in ("torch", "numba")}


# batch, time, rows, cols, states
LINEAR_SCAN = [(1, 100, 16, 16, 128), (1, 300, 16, 16, 128)]
BOUND, FRESH, INDEXED = "copy", "copy, fresh", "indexed"


def _linear_scan(quick: bool) -> list[Contest]:
    shapes, kernels = [(1, 20, 8, 8, 32)] if quick else LINEAR_SCAN, _kernels("linear_scan")
    small, ways = lambda shape: (1, 4, *shape[2:]), partial(_linear_ways, kernels)
    return by_shape(shapes, ways, BOUND, small, memory=tuple(kernels), rare=(INDEXED,))


def _linear_ways(kernels: list[str], shape: Shape) -> dict[str, Way]:
    """The kernels beside the memory traffic that bounds them.

    Any scan reads the drive and writes the states going forward, and reads the gradient of the states and the states
    and writes the gradient of the drive going back: five times the size S of the drive. `copy` is torch's copy of 2.5
    S, which reads and writes 2.5 S, between buffers that were touched before; `copy, fresh` copies as much, of which
    2 S go to buffers just allocated, as in a training step. `indexed` is a loop over `drive[:, t]` under autograd,
    whose backward is quadratic in T.
    """
    torch.manual_seed(0)
    batch, _, *frame = shape
    drive, state = torch.randn(shape, dtype=torch.complex64), torch.randn(batch, *frame, dtype=torch.complex64)
    # the decay of a fresh ConvS5: memory of 20 to 2,000 steps
    step = torch.exp(torch.empty(frame[-1]).uniform_(math.log(0.001), math.log(0.1)))
    decay = torch.polar(torch.exp(-step / 2), step * torch.linspace(-300, -0.3, frame[-1]))
    inputs = [value.requires_grad_() for value in (drive, decay, state)]
    gradients = [torch.randn_like(drive), torch.randn_like(state)]
    source, half = drive.detach(), torch.randn(drive.numel() // 2, dtype=torch.complex64)
    goals = [torch.randn_like(source), torch.randn_like(source), torch.randn_like(half)]

    def both_passes(scan: Callable[..., tuple[Tensor, Tensor]]) -> tuple[Tensor, ...]:
        return torch.autograd.grad(scan(drive, decay, state), inputs, gradients)

    return {
        BOUND: lambda: [goal.copy_(x) for goal, x in zip(goals, (source, source, half), strict=True)],
        FRESH: lambda: (source.clone(), source.clone(), goals[2].copy_(half)),
        **{kernel: partial(both_passes, partial(linear_scan, kernel=kernel)) for kernel in kernels},
        INDEXED: partial(both_passes, _indexed_loop),
    }


def _indexed_loop(drive: Tensor, decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    states = []
    for t in range(drive.shape[1]):
        state = decay * state + drive[:, t]
        states.append(state)
    return torch.stack(states, dim=1), state


# frames, channels, rows, columns: ConvS5 and its encoder over a clip, the paper's width, one frame of a roll-out
GROUP_NORM = [(74, 64, 8, 8), (74, 8, 32, 32), (74, 16, 16, 16), (16, 256, 16, 16), (1, 64, 8, 8), (1, 8, 32, 32)]


def _group_norm(quick: bool) -> Iterator[Contest]:
    """By size, activation and dtype, channels-last; forward and backward, then forward alone."""
    sizes, times = ([(3, 8, 4, 4)], 1) if quick else (GROUP_NORM, 20)
    passes, dtypes = (("forward and backward", True), ("forward", False)), (torch.float32, torch.bfloat16)
    for (name, gradient), dtype in itertools.product(passes, dtypes):
        for size, activation in itertools.product(sizes, ("gelu_tanh", "elu")):
            ways = partial(_group_norm_ways, size, activation, dtype, gradient, times)
            label, group = f"{' x '.join(map(str, size))} {activation}", f"{name}, {str(dtype)[6:]}"
            yield Contest(label, ways, "torch", group=group)


def _group_norm_ways(size: Shape, activation: str, dtype: torch.dtype, gradient: bool, times: int) -> dict[str, Way]:
    channels = size[1]
    x, outer = (torch.randn(size).to(dtype).contiguous(memory_format=torch.channels_last) for _ in range(2))
    weight, bias = torch.randn(channels), torch.randn(channels)
    for value in (x, weight, bias):
        value.requires_grad_(gradient)

    def run(kernel: str) -> None:
        for _ in range(times):
            y = group_norm_activation(x, min(32, channels), weight, bias, 1e-6, activation, kernel=kernel)
            if gradient:
                torch.autograd.grad(y, (x, weight, bias), outer)

    return {kernel: partial(run, kernel) for kernel in _kernels("group_norm_activation") if kernel != "reference"}


# frames, channels in and out, side: the blocks of a roll-out of one clip, and of more
FRAME_CONV = [(1, 64, 64, 8), (1, 16, 64, 8), (1, 64, 16, 16), (1, 8, 8, 32), (8, 64, 64, 8), (32, 64, 64, 8)]


def _frame_conv(quick: bool) -> Iterator[Contest]:
    """One residual block per size, without gradient."""
    for size in [(2, 4, 8, 4)] if quick else FRAME_CONV:
        yield Contest(" x ".join(map(str, size)), partial(_block_ways, size, 1 if quick else 20), "torch")


def _block_ways(size: Shape, times: int) -> dict[str, Way]:
    frames, inputs, outputs, side = size
    block = ResNetBlock(inputs, outputs).eval()
    images = torch.randn(frames, inputs, side, side).contiguous(memory_format=torch.channels_last)

    @torch.no_grad()
    def run(way: Callable[[Tensor], Tensor]) -> None:
        for _ in range(times):
            way(images)

    return {"torch": partial(run, block), "prepared": partial(run, block.prepared())}


SUBJECTS = {
    "selective_scan": Subject(
        "selective_scan, forward + backward, float32", "batch, time, inner, state", _selective_scan, rounds=5
    ),
    "ssd": Subject("ssd, forward + backward, float32", "batch, time, heads, head_dim, state", _ssd, rounds=5),
    "linear_scan": Subject(
        "linear_scan, forward + backward, complex64", "batch, time, rows, cols, states", _linear_scan
    ),
    "group_norm": Subject(
        "GroupNorm and activation, channels-last; a turn is 20 calls", "frames x channels x rows x columns", _group_norm
    ),
    "frame_conv": Subject(
        "a residual block without gradient, channels-last, float32; a turn is 20 calls",
        "frames x in x out x side",
        _frame_conv,
    ),
}
