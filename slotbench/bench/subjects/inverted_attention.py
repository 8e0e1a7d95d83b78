"""Inverted attention with keys and values, without, and without weights; what is summed over time against length."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from slotbench import registry
from slotbench.bench.subjects import Subject
from slotbench.bench.timing import Contest, Way
from slotbench.interfaces import TemporalCore, TokenSpec
from slotbench.nn.inverted_attention import InvertedAttention
from slotbench.nn.slot_attention import SlotCorrector
from slotbench.ops.inverted_attention import TokenMemory

__all__ = ["SUBJECTS"]

DIM, SLOTS, LAYERS, ITERATIONS = 192, 11, 3, 3
SHAPES = [(4, 6, 1024), (1, 6, 16384)]
QUICK_SHAPES = [(1, 3, 64)]
LENGTHS, QUICK_LENGTHS = [40, 80, 160, 320, 640], [10, 20]
KERNELS = ("reference", "auto", "streamed")
STEP_BY_STEP, SUMMED = "each step's own competition", "summed over time"


def contests(quick: bool) -> Iterator[Contest]:
    """One contest per work and (batch, steps, tokens), and one per length of what can be summed."""
    for shape in QUICK_SHAPES if quick else SHAPES:
        for name, make in (("layer", _layer), ("corrector", _corrector), ("PSB", _psb)):
            yield Contest(
                f"{name}, {', '.join(map(str, shape))}",
                lambda make=make, shape=shape: make(*shape),  # type: ignore[misc]
                "reference",
                memory=KERNELS,
                small=lambda make=make: make(1, 2, 8),  # type: ignore[misc]
                group="ways",
            )
    for length in QUICK_LENGTHS if quick else LENGTHS:
        yield Contest(
            f"first layer, 1, {length}, 64",
            lambda length=length: _first_layer(length),  # type: ignore[misc]
            STEP_BY_STEP,
            size=float(length),
            group="against length",
        )


def _attention(aggregation: str = "WeightedMean") -> InvertedAttention:
    return InvertedAttention(DIM, aggregation=registry.load("aggregations", aggregation)(DIM), bias=False)


def _inputs(*shape: int) -> Tensor:
    return torch.randn(*shape, requires_grad=True)


def _by_each_kernel(module: nn.Module, outcome: Way) -> dict[str, Way]:
    """The gradients of the parameters and whatever `outcome` depends on, by kernel."""
    attentions = [part for part in module.modules() if isinstance(part, InvertedAttention)]

    def run(kernel: str) -> None:
        for attention in attentions:
            attention.kernel = kernel
        outcome().square().mean().backward()
        module.zero_grad()

    return {kernel: lambda kernel=kernel: run(kernel) for kernel in KERNELS}  # type: ignore[misc]


def _layer(batch: int, time: int, num_tokens: int) -> dict[str, Way]:
    torch.manual_seed(0)
    attention, slots = _attention(), _inputs(batch, time, SLOTS, DIM)
    tokens = _inputs(batch, time, num_tokens, DIM)
    return _by_each_kernel(attention, lambda: attention(slots, tokens, causal=True).updates)


def _corrector(batch: int, time: int, num_tokens: int) -> dict[str, Way]:
    torch.manual_seed(0)
    corrector = SlotCorrector(DIM, aggregation=registry.load("aggregations", "WeightedMean")(DIM))
    slots, tokens = _inputs(batch * time, SLOTS, DIM), _inputs(batch * time, num_tokens, DIM)
    return _by_each_kernel(corrector, lambda: corrector(slots, tokens, ITERATIONS).slots)


def _psb(batch: int, time: int, num_tokens: int) -> dict[str, Way]:
    torch.manual_seed(0)
    core: TemporalCore = registry.load("cores", "PSB")(TokenSpec(DIM, num_tokens), SLOTS, DIM, LAYERS)
    tokens = _inputs(batch, time, num_tokens, DIM)
    return _by_each_kernel(core, lambda: core(tokens).slots)


def _first_layer(time: int) -> dict[str, Way]:
    torch.manual_seed(0)
    attention, slots, tokens = _attention(), _inputs(1, SLOTS, DIM), _inputs(1, time, 64, DIM)
    attention.kernel = "streamed"

    def run(updates: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(updates.square().mean(), [slots, tokens, *attention.parameters()])

    every = slots[:, None].expand(-1, time, -1, -1)
    return {
        STEP_BY_STEP: lambda: run(attention(every, TokenMemory(tokens), causal=True, shares=False).updates),
        SUMMED: lambda: run(attention.cumulative(slots, TokenMemory(tokens), shares=False)[0]),
    }


SUBJECT = Subject(
    f"inverted attention, forward + backward, float32, {SLOTS} slots of width {DIM}",
    "work, batch, steps, tokens",
    contests,
    note=(
        f"The corrector has {ITERATIONS} iterations, PSB {LAYERS} layers. Except by `reference`, PSB's first layer is "
        "summed over time. The gradient of the tokens is part of every memory."
    ),
)

SUBJECTS = {"inverted_attention": SUBJECT}
