"""A part of any kind, built small and in double precision, with what it is called with."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from slotbench import registry
from slotbench.interfaces import AutoregressiveDecoder, TokenSpec
from slotbench.testing.code_laws import CODES, coded_batch
from slotbench.testing.frame_laws import CELLS, INPUT, SLOTS, random_batch, random_slots

__all__ = ["LIGHT", "PARTS", "any_part", "light"]

LIGHT = {
    "SlotNeRF": {"dim": 8, "num_points": 3},
    "SLSREncoder": {"dim": 8, "blocks": 1, "num_layers": 1},
    "SlotMixerDecoder": {"dim": 8, "num_layers": 1, "num_blocks": 1},
}
"""Arguments of parts that take too long with their defaults for tests of every part."""

PARTS = [
    (kind, name)
    for kind in ("encoders", "cores", "decoders", "tokenizers", "aggregations")
    for name in registry.names(kind)
]


def light(kind: str, name: str) -> Any:
    """What builds a part, with the arguments of `LIGHT`."""
    build = registry.load(kind, name)
    return partial(build, **LIGHT[name]) if name in LIGHT else build


def any_part(kind: str, name: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """The part, and the arguments of a call."""
    build = light(kind, name)
    if kind == "encoders":
        return build(INPUT).double(), (random_batch(INPUT),)
    if kind == "cores":
        return build(TokenSpec(16, 16, (4, 4))).double(), (torch.randn(2, 3, 16, 16, dtype=torch.float64),)
    if kind == "tokenizers":
        return build(INPUT).double(), (random_batch(INPUT).frames,)
    if kind == "aggregations":
        assignment = torch.rand(2, 3, 4, 5, dtype=torch.float64).softmax(-2)
        return build(8).double(), (assignment, torch.randn(2, 3, 5, 8, dtype=torch.float64))
    of_codes = issubclass(registry.load(kind, name), AutoregressiveDecoder)
    target, batch = (CODES, coded_batch(CODES)) if of_codes else (INPUT, random_batch(INPUT))
    try:
        return build(SLOTS, target).double(), (random_slots(SLOTS), batch)
    except ValueError:  # it asks for cells of a grid
        return build(CELLS, target).double(), (random_slots(CELLS), batch)
