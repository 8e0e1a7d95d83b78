"""Kernels of `slotbench.ops` and layers in turns: the fast ways against the plain ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.autograd import grad
from torch.nn import functional

from slotbench import ops
from slotbench.bench.contests import Contest, Way, by_shape
from slotbench.bench.gpu.kernels import Call, inputs_of
from slotbench.interfaces import TokenSpec
from slotbench.nn.attention import CrossAttention, split_heads
from slotbench.nn.inverted_attention import InvertedAttention
from slotbench.nn.resnet_blocks import ResNetBlock
from slotbench.nn.slot_attention import SlotCorrector
from slotbench.nn.temporal_attention import TemporalAttention
from slotbench.ops.gated_norm import gated_rms_norm
from slotbench.ops.inverted_attention import TokenMemory
from slotbench.registry import load

SELECTIVE_SCAN = [(96, 20, 256, 16), (96, 100, 256, 16), (32, 320, 256, 16), (8, 1280, 256, 16), (4, 2560, 256, 16)]
LARGE_SCAN = (128, 320, 128, 64)
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
    """Kernels by shape, on the inputs that a GPU day has too; then one large call, forward alone and with backward."""
    shapes = [(8, 20, 64, 16), (2, 160, 64, 16)] if quick else SELECTIVE_SCAN
    memory = tuple(_kernels("selective_scan"))
    contests = by_shape(shapes, _scan_ways, "reference", lambda *shape: (2, 4, *shape[2:]), memory=memory)
    large = [(4, 20, 64, 16) if quick else LARGE_SCAN]
    for group, way in (("forward alone", Call.forward), ("a large call", Call.both)):
        contests += by_shape(large, partial(_large_scan_ways, way), "reference", group=group)
    return contests


def _scan_ways(batch: int, steps: int, inner: int, states: int) -> dict[str, Way]:
    call = inputs_of("selective_scan", batch, steps, inner, "cpu", states)
    return {kernel: partial(call.both, kernel) for kernel in _kernels("selective_scan")}


def _large_scan_ways(
    way: Callable[[Call, str], Any], batch: int, steps: int, inner: int, states: int
) -> dict[str, Way]:
    """The reference has four quarters of the batch, one after the other: of all, autograd would keep some 10 GB."""
    call = inputs_of("selective_scan", batch, steps, inner, "cpu", states)
    quarter = call.head(batch // 4, torch.float32)

    def reference() -> None:
        for _ in range(4):
            way(quarter, "reference")

    others = [kernel for kernel in _kernels("selective_scan") if kernel != "reference"]
    return {"reference": reference} | {kernel: partial(way, call, kernel) for kernel in others}


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


# --- attention

HEADS = 4


def temporal_attention(quick: bool) -> list[Contest]:
    """TemporalAttention of width 64, 4 heads, forward and backward, against all weights under one mask."""
    shapes = [(2, 20, 6), (2, 80, 6)] if quick else [(6, 80, 6), (6, 320, 6)]
    ways = ("written out", "TemporalAttention")
    return by_shape(shapes, _temporal_ways, ways[0], lambda batch, steps, slots: (2, 4, slots), memory=ways)


def _temporal_ways(batch: int, steps: int, slots: int) -> dict[str, Way]:
    torch.manual_seed(0)
    attention = TemporalAttention(64, HEADS)
    x, outer = torch.randn(batch, steps, slots, 64, requires_grad=True), torch.randn(batch, steps, slots, 64)

    def both(attended: Tensor) -> tuple[Tensor, ...]:
        return grad(attended, [x, *attention.parameters()], outer)

    def written_out() -> Tensor:
        """The weights of all pairs of tokens, under one mask of (steps * slots)^2."""
        pattern = "batch time slots (part heads dim) -> part batch heads (time slots) dim"
        query, key, value = rearrange(attention.query_key_value(x), pattern, part=3, heads=HEADS)
        step = torch.arange(steps).repeat_interleave(slots)
        logits = (query * query.shape[-1] ** -0.5 @ key.mT).masked_fill(step[None, :] > step[:, None], -torch.inf)
        pattern = "batch heads (time slots) dim -> batch time slots (heads dim)"
        joined: Tensor = attention.output(rearrange(logits.softmax(dim=-1) @ value, pattern, slots=slots))
        return joined

    return {"written out": lambda: both(written_out()), "TemporalAttention": lambda: both(attention(x)[0])}


def cross_attention(quick: bool) -> list[Contest]:
    """A few shared queries read tokens with 4 heads, forward and backward."""
    full = [(1000, 5, 6, 64), (240, 64, 6, 64), (64, 256, 7, 128), (16, 1024, 11, 192)]
    shapes, ways = [(8, 64, 6, 64), (2, 256, 7, 128)] if quick else full, ("keys and values", "without")
    return by_shape(shapes, _cross_ways, ways[0], lambda *shape: (2, 16, *shape[2:]), memory=ways)


def _cross_ways(frames: int, tokens: int, slots: int, width: int) -> dict[str, Way]:
    torch.manual_seed(0)
    attention = CrossAttention(width, num_heads=HEADS)
    queries = torch.randn(1, slots, width, requires_grad=True)
    context = torch.randn(frames, tokens, width, requires_grad=True)
    outer = torch.randn(frames, HEADS, slots, width // HEADS)

    def both(path: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> tuple[Tensor, ...]:
        read, _ = path(split_heads(queries, HEADS), context)
        return grad(read, [queries, context, attention.key_value.weight, attention.key_value.bias], outer)

    return {"keys and values": partial(both, attention.reference), "without": partial(both, attention.few_queries)}


# --- inverted attention

DIM, SLOTS, LAYERS, ITERATIONS = 192, 11, 3, 3
KERNELS = ("reference", "auto", "streamed")


def inverted_attention(quick: bool) -> Iterator[Contest]:
    """One contest per work and (batch, steps, tokens), and one per length of what can be summed over time.

    The corrector has 3 iterations, PSB 3 layers. Except by `reference`, PSB's first layer is summed over time. The
    gradient of the tokens is part of every memory.
    """
    for shape in [(1, 3, 64)] if quick else [(4, 6, 1024), (1, 6, 16384)]:
        for name, ways in (("layer", _layer), ("corrector", _corrector), ("PSB", _psb)):
            label, small = f"{name}, {', '.join(map(str, shape))}", partial(ways, 1, 2, 8)
            yield Contest(label, partial(ways, *shape), "reference", KERNELS, small, group="ways")
    for length in [10, 20] if quick else [40, 80, 160, 320, 640]:
        ways, base = partial(_first_layer, length), "each step's own competition"
        yield Contest(f"first layer, 1, {length}, 64", ways, base, size=float(length), group="against length")


def _attention() -> InvertedAttention:
    return InvertedAttention(DIM, aggregation=load("aggregations", "WeightedMean")(DIM), bias=False)


def _inputs(*shape: int) -> Tensor:
    return torch.randn(*shape, requires_grad=True)


def _by_each_kernel(module: nn.Module, outcome: Way, kernels: tuple[str, ...] = KERNELS) -> dict[str, Way]:
    """The gradients of the parameters and whatever `outcome` depends on, by kernel."""
    attentions = [part for part in module.modules() if isinstance(part, InvertedAttention)]

    def run(kernel: str) -> None:
        for attention in attentions:
            attention.kernel = kernel
        outcome().square().mean().backward()
        module.zero_grad()

    return {kernel: partial(run, kernel) for kernel in kernels}


def _layer(batch: int, time: int, num_tokens: int) -> dict[str, Way]:
    torch.manual_seed(0)
    attention, slots = _attention(), _inputs(batch, time, SLOTS, DIM)
    tokens = _inputs(batch, time, num_tokens, DIM)
    return _by_each_kernel(attention, lambda: attention(slots, tokens, causal=True).updates)


def _corrector(batch: int, time: int, num_tokens: int) -> dict[str, Way]:
    torch.manual_seed(0)
    corrector = SlotCorrector(DIM, aggregation=load("aggregations", "WeightedMean")(DIM))
    slots, tokens = _inputs(batch * time, SLOTS, DIM), _inputs(batch * time, num_tokens, DIM)
    return _by_each_kernel(corrector, lambda: corrector(slots, tokens, ITERATIONS).slots)


def _psb(batch: int, time: int, num_tokens: int) -> dict[str, Way]:
    torch.manual_seed(0)
    core: Any = load("cores", "PSB")(TokenSpec(DIM, num_tokens), SLOTS, DIM, LAYERS)
    tokens = _inputs(batch, time, num_tokens, DIM)
    return _by_each_kernel(core, lambda: core(tokens).slots)


def _first_layer(time: int) -> dict[str, Way]:
    torch.manual_seed(0)
    attention, slots, tokens = _attention(), _inputs(1, SLOTS, DIM), _inputs(1, time, 64, DIM)
    attention.kernel = "streamed"

    def run(updates: Tensor) -> tuple[Tensor, ...]:
        return grad(updates.square().mean(), [slots, tokens, *attention.parameters()])

    every = slots[:, None].expand(-1, time, -1, -1)
    return {
        "each step's own competition": lambda: run(
            attention(every, TokenMemory(tokens), causal=True, shares=False).updates
        ),
        "summed over time": lambda: run(attention.cumulative(slots, TokenMemory(tokens), shares=False)[0]),
    }


def slot_attention(quick: bool) -> list[Contest]:
    """SAVi's step on 4 random clips of 6 frames, 3 iterations each, by the kernel that its size chooses and by others.

    The core alone: forward and backward of the mean square of the slots.
    """
    return by_shape([(16, 16, 4), (256, 64, 9), (1024, 192, 11)][: 1 if quick else None], _savi_ways, "reference")


def _savi_ways(num_tokens: int, dim: int, num_slots: int) -> dict[str, Way]:
    torch.manual_seed(0)
    core: Any = load("cores", "SAVi")(TokenSpec(dim, num_tokens), num_slots, dim, num_iterations=3)
    tokens = torch.randn(4, 6, num_tokens, dim)
    return _by_each_kernel(core, lambda: core(tokens).slots, ("reference", "streamed", "auto"))
