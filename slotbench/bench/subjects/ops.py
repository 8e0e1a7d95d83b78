"""Kernels of `slotbench.ops` in turns, and a residual block prepared for many calls."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.autograd import grad
from torch.nn import functional

from slotbench import ops
from slotbench.bench.contests import Contest, Way, by_shape
from slotbench.bench.gpu.kernels import inputs_of
from slotbench.nn.resnet_blocks import ResNetBlock
from slotbench.ops.gated_norm import gated_rms_norm

SELECTIVE_SCAN = [(96, 20, 256, 16), (96, 100, 256, 16), (32, 320, 256, 16), (8, 1280, 256, 16), (4, 2560, 256, 16)]
# first those of a block of width 64
SSD = [(96, 6, 4, 20, 16), (96, 20, 4, 20, 16), (32, 320, 4, 20, 16), (8, 1280, 4, 20, 16), (4, 2560, 4, 20, 16)]
SSD += [(96, 20, 4, 20, 64), (96, 20, 4, 20, 128), (12, 80, 4, 64, 64), (12, 80, 4, 64, 128), (12, 6, 4, 64, 128)]
# batch, time, channels
GATED_NORM = [(96, 6, 80), (36, 80, 80), (4, 1280, 80), (36, 80, 512)]
LINEAR_SCAN = [(1, 100, 16, 16, 128), (1, 300, 16, 16, 128)]
# ConvS5 and its encoder over a clip, the paper's width, one frame of a roll-out
GROUP_NORM = [(74, 64, 8, 8), (74, 8, 32, 32), (74, 16, 16, 16), (16, 256, 16, 16), (1, 64, 8, 8), (1, 8, 32, 32)]
# the blocks of a roll-out of one clip, and of more
FRAME_CONV = [(1, 64, 64, 8), (1, 16, 64, 8), (1, 64, 16, 16), (1, 8, 8, 32), (8, 64, 64, 8), (32, 64, 64, 8)]


def _kernels(op: str) -> list[str]:
    return [name for name, reason in ops.available_kernels(op, "cpu").items() if reason is None]


def _rate(*shape: int) -> Tensor:
    """Step sizes of a state space model."""
    return functional.softplus(torch.randn(shape) - 3)


def selective_scan(quick: bool) -> list[Contest]:
    """Kernels by shape, on the inputs that a GPU day has too."""
    shapes = [(8, 20, 64, 16), (2, 160, 64, 16)] if quick else SELECTIVE_SCAN
    memory = tuple(_kernels("selective_scan"))
    return by_shape(shapes, _scan_ways, "reference", lambda *shape: (2, 4, *shape[2:]), memory=memory)


def _scan_ways(batch: int, steps: int, inner: int, states: int) -> dict[str, Way]:
    call = inputs_of("selective_scan", batch, steps, inner, "cpu", states)
    return {kernel: partial(call.both, kernel) for kernel in _kernels("selective_scan")}


def ssd(quick: bool) -> list[Contest]:
    """Kernels of both scans by shape; then gate and RMSNorm after a scan."""
    shapes, norms = ([(8, 20, 4, 20, 16), (2, 160, 4, 20, 16)], [(2, 3, 8)]) if quick else (SSD, GATED_NORM)
    return by_shape(shapes, _ssd_ways, "ssd torch") + by_shape(norms, _norm_ways, "torch", group="gate and norm")


def _ssd_ways(batch: int, steps: int, num_heads: int, head_dim: int, num_states: int) -> dict[str, Way]:
    torch.manual_seed(0)
    inner = num_heads * head_dim
    x, delta = torch.randn(batch, steps, inner).requires_grad_(), _rate(batch, steps, num_heads).requires_grad_()
    A = (-torch.rand(num_heads) * 15 - 1).requires_grad_()
    B, C = (torch.randn(batch, steps, num_states).requires_grad_() for _ in range(2))

    def both(outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return grad(outputs, [x, delta, A, B, C], [torch.ones_like(output) for output in outputs])

    def mamba2(kernel: str) -> tuple[Tensor, ...]:
        heads = x.unflatten(-1, (num_heads, head_dim))
        return both(ops.ssd(heads, delta, A, B[:, :, None], C[:, :, None], kernel=kernel))

    def mamba(kernel: str) -> tuple[Tensor, ...]:
        decay = A.repeat_interleave(head_dim)[:, None].expand(inner, num_states)
        return both(ops.selective_scan(x, delta.repeat_interleave(head_dim, dim=-1), decay, B, C, kernel=kernel))

    slow = ("reference", "torch")
    ways: dict[str, Way] = {f"ssd {kernel}": partial(mamba2, kernel) for kernel in _kernels("ssd")}
    fast = [kernel for kernel in _kernels("selective_scan") if kernel not in slow]
    return ways | {f"selective_scan {kernel}": partial(mamba, kernel) for kernel in fast}


def _norm_ways(batch: int, steps: int, dim: int) -> dict[str, Way]:
    """Five gated norms; the gate is a part of wider rows, as in the block."""
    x, weight = torch.randn(batch, steps, dim, requires_grad=True), torch.ones(dim, requires_grad=True)
    gate = torch.randn(batch, steps, 3 * dim)[..., :dim].requires_grad_()
    outer = torch.randn(batch, steps, dim)

    def run(kernel: str) -> None:
        for _ in range(5):
            grad(gated_rms_norm(x, gate, weight, kernel=kernel), (x, gate, weight), outer)

    return {kernel: partial(run, kernel) for kernel in ("torch", "numba")}


def linear_scan(quick: bool) -> list[Contest]:
    """The kernels beside the memory traffic that bounds them.

    Any scan reads the drive and writes the states going forward, and reads the gradient of the states and the states
    and writes the gradient of the drive going back: five times the size S of the drive. `copy` is torch's copy of 2.5
    S, which reads and writes 2.5 S, between buffers that were touched before; `copy, fresh` copies as much, of which
    2 S go to buffers just allocated, as in a training step. `indexed` is a loop over `drive[:, t]` under autograd,
    whose backward is quadratic in T.
    """
    shapes, memory = [(1, 20, 8, 8, 32)] if quick else LINEAR_SCAN, tuple(_kernels("linear_scan"))
    small = lambda batch, steps, *frame: (1, 4, *frame)  # noqa: E731
    return by_shape(shapes, _linear_ways, "copy", small, memory=memory, rare=("indexed",))


def _linear_ways(batch: int, steps: int, *frame: int) -> dict[str, Way]:
    torch.manual_seed(0)
    drive = torch.randn(batch, steps, *frame, dtype=torch.complex64)
    state = torch.randn(batch, *frame, dtype=torch.complex64)
    # the decay of a fresh ConvS5: memory of 20 to 2,000 steps
    step = torch.exp(torch.empty(frame[-1]).uniform_(math.log(0.001), math.log(0.1)))
    decay = torch.polar(torch.exp(-step / 2), step * torch.linspace(-300, -0.3, frame[-1]))
    inputs = [value.requires_grad_() for value in (drive, decay, state)]
    outer = [torch.randn_like(drive), torch.randn_like(state)]
    source, half = drive.detach(), torch.randn(drive.numel() // 2, dtype=torch.complex64)
    goals = [torch.randn_like(source), torch.randn_like(source), torch.randn_like(half)]

    def both(scan: Callable[..., tuple[Tensor, Tensor]]) -> tuple[Tensor, ...]:
        return grad(scan(drive, decay, state), inputs, outer)

    return {
        "copy": lambda: [goal.copy_(x) for goal, x in zip(goals, (source, source, half), strict=True)],
        "copy, fresh": lambda: (source.clone(), source.clone(), goals[2].copy_(half)),
        **{kernel: partial(both, partial(ops.linear_scan, kernel=kernel)) for kernel in _kernels("linear_scan")},
        "indexed": partial(both, _indexed_loop),
    }


def _indexed_loop(drive: Tensor, decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    states = []
    for t in range(drive.shape[1]):
        state = decay * state + drive[:, t]
        states.append(state)
    return torch.stack(states, dim=1), state


def group_norm(quick: bool) -> list[Contest]:
    """By size, activation and dtype; forward and backward, then forward alone."""
    sizes, times = ([(3, 8, 4, 4)], 1) if quick else (GROUP_NORM, 20)
    passes, dtypes = (("forward and backward", True), ("forward", False)), (torch.float32, torch.bfloat16)
    return [
        Contest(
            f"{' x '.join(map(str, size))} {activation}",
            partial(_group_norm_ways, size, activation, dtype, gradient, times),
            "torch",
            group=f"{name}, {str(dtype)[6:]}",
        )
        for (name, gradient), dtype in itertools.product(passes, dtypes)
        for size, activation in itertools.product(sizes, ("gelu_tanh", "elu"))
    ]


def _group_norm_ways(
    size: tuple[int, ...], activation: str, dtype: torch.dtype, gradient: bool, times: int
) -> dict[str, Way]:
    channels = size[1]
    x, outer = (torch.randn(size).to(dtype).contiguous(memory_format=torch.channels_last) for _ in range(2))
    inputs = [value.requires_grad_(gradient) for value in (x, torch.randn(channels), torch.randn(channels))]

    def run(kernel: str) -> None:
        for _ in range(times):
            y = ops.group_norm_activation(x, min(32, channels), inputs[1], inputs[2], 1e-6, activation, kernel=kernel)
            if gradient:
                grad(y, inputs, outer)

    return {kernel: partial(run, kernel) for kernel in _kernels("group_norm_activation") if kernel != "reference"}


def frame_conv(quick: bool) -> list[Contest]:
    """One residual block per size, without gradient."""
    sizes, times = ([(2, 4, 8, 4)], 1) if quick else (FRAME_CONV, 20)
    return [Contest(" x ".join(map(str, size)), partial(_block_ways, *size, times), "torch") for size in sizes]


def _block_ways(frames: int, inputs: int, outputs: int, side: int, times: int) -> dict[str, Way]:
    block = ResNetBlock(inputs, outputs).eval()
    images = torch.randn(frames, inputs, side, side).contiguous(memory_format=torch.channels_last)

    @torch.no_grad()
    def run(way: Callable[[Tensor], Tensor]) -> None:
        for _ in range(times):
            way(images)

    return {"torch": partial(run, block), "prepared": partial(run, block.prepared())}
