"""Training steps of the RIM family against a GRU whose state is as wide as all modules together, on the same tokens.

One thread, 20 steps, forward and backward of the core alone, float32. With one token per step the tokens are what a
flat encoder hands over, otherwise a feature map, which the GRU reads as one long vector.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from slotbench.bench.contest import Contest, Way
from slotbench.bench.subjects import Subject
from slotbench.interfaces import TokenSpec
from slotbench.registry import load

__all__ = ["SUBJECT"]

MODULES, STEPS, WIDTH = 6, 20, 64
FULL = ((32, 1, 100), (32, 36, 100), (8, 1, 64), (8, 36, 64))
QUICK = ((2, 1, 8), (2, 4, 8))


def contests(quick: bool) -> Iterator[Contest]:
    """One contest per size."""
    for batch, tokens, dim in QUICK if quick else FULL:
        case = f"{batch}, {tokens}, {dim}"
        yield Contest(case, lambda batch=batch, tokens=tokens, dim=dim: _ways(batch, tokens, dim), "GRU")  # type: ignore[misc]


def _ways(batch: int, num_tokens: int, dim: int) -> dict[str, Way]:
    torch.manual_seed(0)
    spec = TokenSpec(WIDTH, num_tokens)
    classes: dict[str, Any] = {name: load("cores", name) for name in ("GRU", "RIM", "OCRIM", "SCOFF", "ALTSCOFF")}
    rim, oc, scoff, alt = (classes[name] for name in ("RIM", "OCRIM", "SCOFF", "ALTSCOFF"))
    cores: dict[str, Any] = {"GRU": classes["GRU"](spec, MODULES * dim)}
    if num_tokens == 1:
        cores |= {
            "RIM.thesis": rim.thesis(spec, MODULES, MODULES, dim),
            "RIM.thesis, cell by cell": _cell_by_cell(rim.thesis(spec, MODULES, MODULES, dim)),
            "RIM.thesis, 4 of 6 active": rim.thesis(spec, MODULES, 4, dim),
            "RIM.thesis, no communication": _quiet(rim.thesis(spec, MODULES, MODULES, dim)),
            "SCOFF.thesis": scoff.thesis(spec, MODULES, dim=dim),
            "ALTSCOFF.thesis": alt.thesis(spec, MODULES, dim=dim),
        }
    else:
        cores |= {
            "OCRIM.thesis": oc.thesis(spec, MODULES, dim=dim),
            "OCRIM, past slots": oc(spec, MODULES, dim, past_slots=True),
            "OCRIM, past slots, cell by cell": _cell_by_cell(oc(spec, MODULES, dim, past_slots=True)),
            "OCRIM.feature_flow": oc.feature_flow(spec, MODULES, dim=dim),
            "slot attention of OCRIM.thesis alone": _FrameSlots(oc.thesis(spec, MODULES, dim=dim)),
            "SCOFF.thesis, with slots": scoff.thesis(spec, MODULES, 3, dim),
        }
    x = torch.randn(batch, STEPS, num_tokens, WIDTH)
    return {name: lambda core=core: _step(core.train(), x) for name, core in cores.items()}  # type: ignore[misc]


def _quiet(core: Any) -> Any:
    core.communication_mode = "off"
    return core


def _cell_by_cell(core: Any) -> Any:
    core.path = "cell"
    return core


class _FrameSlots(nn.Module):
    """What a core does before its recurrence."""

    def __init__(self, core: Any):
        super().__init__()
        self.core = core

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = self.core.per_step(tokens).values
        return values


def _step(core: nn.Module, tokens: torch.Tensor) -> None:
    for parameter in core.parameters():
        parameter.grad = None
    output = core(tokens)
    (output if isinstance(output, torch.Tensor) else output.slots).square().mean().backward()


SUBJECT = Subject("modular cores, forward + backward, float32", "batch, tokens, width of a module", contests)
