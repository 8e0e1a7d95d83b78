"""SAVi's step with the kernel of inverted attention that its size chooses, beside the streamed one and the reference.

Random tokens, core alone: forward and backward of the mean square of the slots, three iterations per frame.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from slotbench.bench.subjects import Subject
from slotbench.bench.timing import Contest, Way
from slotbench.interfaces import TokenSpec
from slotbench.registry import load

__all__ = ["SUBJECTS"]

CLIPS, FRAMES = 4, 6
SIZES = ((16, 16, 4), (256, 64, 9), (1024, 192, 11))
"""Tokens of a frame, width of tokens and slots, slots."""


def contests(quick: bool) -> Iterator[Contest]:
    """One contest per size."""
    for size in SIZES[: 1 if quick else None]:
        yield Contest(", ".join(map(str, size)), partial(_ways, *size), "reference")


def _ways(num_tokens: int, dim: int, num_slots: int) -> dict[str, Way]:
    torch.manual_seed(0)
    core: Any = load("cores", "SAVi")(TokenSpec(dim, num_tokens), num_slots, dim, num_iterations=3)
    tokens = torch.randn(CLIPS, FRAMES, num_tokens, dim)

    def step(kernel: str) -> None:
        core.corrector.attention.kernel = kernel
        core.zero_grad(set_to_none=True)
        core(tokens).slots.square().mean().backward()

    return {kernel: partial(step, kernel) for kernel in ("reference", "streamed", "auto")}


SUBJECT = Subject(
    f"SAVi, {CLIPS} clips of {FRAMES} frames, forward + backward, float32", "tokens, width, slots", contests, rounds=11
)

SUBJECTS = {"slot_attention": SUBJECT}
