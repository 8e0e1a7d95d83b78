"""A RIM small enough for exact tests, and what it is fed with."""

from __future__ import annotations

import pytest
import torch
from slotbench_plugins.cores.rim import RIM
from torch import Tensor

from slotbench.interfaces import TokenSpec

SPEC = TokenSpec(dim=5, num_tokens=3)
MODULES, DIM = 4, 6
CELLS = pytest.mark.parametrize("cell_type", ["gru", "lstm"])
PLAIN = {"input_dropout": 0.0, "communication_dropout": 0.0, "communication_output": "linear"}


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def tokens(batch: int = 2, time: int = 6) -> Tensor:
    return noise(batch, time, SPEC.num_tokens, SPEC.dim)


def small(top_k: int = 2, num_inputs: int | str | None = None, **arguments) -> RIM:
    torch.manual_seed(0)
    core = RIM(SPEC, MODULES, DIM, top_k, num_inputs, num_heads=2, encoder_layers=1, **(PLAIN | arguments))
    return core.double()
