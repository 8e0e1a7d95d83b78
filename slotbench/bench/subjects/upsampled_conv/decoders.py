"""Decoders of the RIM thesis with both ways of their convolutions, whole, forward plus backward down to the slots."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from slotbench.bench.contest import Contest, Way
from slotbench.bench.subjects import Subject
from slotbench.interfaces import SlotSpec, VideoSpec
from slotbench.registry import load

__all__ = ["SUBJECT"]

# decoder, frames, modules, width, side of the image, channels
SETTINGS: dict[str, tuple[str, int, int, int, int, tuple[int, ...]]] = {
    "components, moving_sprites": ("ComponentDecoder", 160, 4, 64, 32, (16, 8, 8)),
    "one image, moving_sprites": ("ConcatenationDecoder", 160, 4, 64, 32, (32, 16, 8)),
    "components, the thesis": ("ComponentDecoder", 20, 6, 100, 64, (64, 32, 16)),
    "one image, the thesis": ("ConcatenationDecoder", 20, 6, 100, 64, (64, 32, 16)),
}
STEP_BY_STEP, SMALL = "step by step", "at the small size"


def contests(quick: bool) -> Iterator[Contest]:
    """One contest per decoder and size."""
    for name in list(SETTINGS)[: 1 if quick else None]:
        kind, _, _, width, side, channels = SETTINGS[name]
        yield Contest(
            name,
            partial(_ways, *SETTINGS[name]),
            STEP_BY_STEP,
            memory=(STEP_BY_STEP, SMALL),
            small=partial(_ways, kind, 1, 1, width, side, channels),
        )


def _ways(kind: str, frames: int, modules: int, width: int, side: int, channels: tuple[int, ...]) -> dict[str, Way]:
    slots = torch.randn(1, frames, modules, width, generator=torch.Generator().manual_seed(0)).requires_grad_()

    def build() -> Any:
        torch.manual_seed(0)
        return load("decoders", kind)(SlotSpec(modules, width), VideoSpec(3, side, side), channels=channels)

    def run(decoder: Any) -> tuple[Tensor, ...]:
        loss = decoder(slots).reconstruction.square().mean()
        return torch.autograd.grad(loss, [slots, *decoder.parameters()])

    plain, fast = build(), build()
    for conv in plain.layers.convs:
        conv.forward = conv.reference
    return {STEP_BY_STEP: partial(run, plain), SMALL: partial(run, fast)}


SUBJECT = Subject("decoders of the RIM thesis, forward + backward, float32", "decoder, setting", contests, rounds=15)
