"""A single-file plugin with cores that are small, greedy, slow, broken or silent, for the tests of the bench."""

from __future__ import annotations

import os
import time

import torch
from torch import nn

from slotbench.interfaces import CoreOutput, SlotSpec, TemporalCore, TokenSpec
from slotbench.registry import register

LONG = 16


class Linear(TemporalCore):
    def __init__(self, spec: TokenSpec, num_slots: int = 3, dim: int = 8) -> None:
        super().__init__()
        self.slot_spec = SlotSpec(num_slots=num_slots, dim=dim)
        self.linear = nn.Linear(spec.dim, dim)

    def forward(self, tokens, state=None):
        slots = self.linear(tokens.mean(2, keepdim=True)).expand(-1, -1, self.slot_spec.num_slots, -1)
        total = slots.sum(1) if state is None else state + slots.sum(1)
        return CoreOutput(slots, None, total)


@register("cores")
class Plain(Linear):
    """Works."""


@register("cores")
class Fixed(TemporalCore):
    """Takes neither a width nor a number of slots."""

    def __init__(self, spec: TokenSpec, width: int = 5) -> None:
        super().__init__()
        self.slot_spec = SlotSpec(num_slots=1, dim=width)
        self.linear = nn.Linear(spec.dim, width)

    def forward(self, tokens, state=None):
        return CoreOutput(self.linear(tokens[:, :, :1]), None, None)


@register("cores")
class Greedy(Linear):
    """Asks for hundreds of gigabytes when it trains on a long clip."""

    def forward(self, tokens, state=None):
        if tokens.shape[1] >= LONG and torch.is_grad_enabled():
            torch.empty(2**37, dtype=torch.float32)
        return super().forward(tokens, state)


@register("cores")
class Slow(Linear):
    """Sleeps on a long clip."""

    def forward(self, tokens, state=None):
        if tokens.shape[1] >= LONG:
            time.sleep(600)
        return super().forward(tokens, state)


@register("cores")
class Broken(Linear):
    """Fails on a long clip."""

    def forward(self, tokens, state=None):
        if tokens.shape[1] >= LONG:
            raise RuntimeError("no such shape\nsecond line")
        return super().forward(tokens, state)


@register("cores")
class Silent(Linear):
    """Ends the process on a long clip."""

    def forward(self, tokens, state=None):
        if tokens.shape[1] >= LONG:
            print("a core may speak to the terminal", flush=True)
            os._exit(3)
        return super().forward(tokens, state)


@register("cores")
class Unbuildable(Linear):
    """Cannot be built."""

    def __init__(self, spec: TokenSpec) -> None:
        raise ValueError("not with these tokens")
