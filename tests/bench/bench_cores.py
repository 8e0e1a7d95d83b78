"""A single-file plugin with cores that are small, greedy, slow or broken, for the tests of the bench."""

from __future__ import annotations

import time

import torch
from torch import nn

from slotbench.interfaces import CoreOutput, SlotSpec, TemporalCore, TokenSpec
from slotbench.registry import register

LONG = 16


@register("cores")
class Plain(TemporalCore):
    """Works."""

    def __init__(self, spec: TokenSpec, num_slots: int = 3, dim: int = 8) -> None:
        super().__init__()
        self.slot_spec = SlotSpec(num_slots=num_slots, dim=dim)
        self.linear = nn.Linear(spec.dim, dim)

    def forward(self, tokens, state=None):
        if tokens.shape[1] >= LONG:
            self.spoil()
        slots = self.linear(tokens.mean(2, keepdim=True)).expand(-1, -1, self.slot_spec.num_slots, -1)
        total = slots.sum(1) if state is None else state + slots.sum(1)
        return CoreOutput(slots, None, total)

    def spoil(self) -> None:
        """What goes wrong on a long clip."""


@register("cores")
class Fixed(Plain):
    """Takes neither a width nor a number of slots."""

    def __init__(self, spec: TokenSpec, width: int = 5) -> None:
        super().__init__(spec, 1, width)


@register("cores")
class Greedy(Plain):
    """Asks for hundreds of gigabytes when it trains."""

    def spoil(self) -> None:
        if torch.is_grad_enabled():
            torch.empty(2**37, dtype=torch.float32)


@register("cores")
class Slow(Plain):
    """Sleeps when it trains."""

    def spoil(self) -> None:
        if torch.is_grad_enabled():
            time.sleep(600)


@register("cores")
class Broken(Plain):
    """Fails."""

    def spoil(self) -> None:
        raise RuntimeError("no such shape\nsecond line")
