"""A part in float64 computes nothing in float32 on the way, which would leave an error of 1e-7 that no test expects."""

from __future__ import annotations

import pytest
import torch
from any_part import PARTS, any_part
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

HALVES = (torch.float32, torch.complex64, torch.float16, torch.bfloat16)


class Rounding(TorchDispatchMode):
    """Notes the operations that give fewer bits than float64 for a value that needs them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for value in out if isinstance(out, tuple | list) else [out]:
            if isinstance(value, Tensor) and value.dtype in HALVES and not torch.equal(value, value.round()):
                self.found.add(str(function))
        return out


@pytest.mark.parametrize(("kind", "name"), [part for part in PARTS if part[0] in ("encoders", "cores", "decoders")])
def test_a_part_in_float64_rounds_nothing_to_float32(kind, name):
    part, given = any_part(kind, name)
    with Rounding() as rounding:
        found = part(*given)
        loss = found.slots if kind == "cores" else found.reconstruction if kind == "decoders" else found
        loss.sum().backward()
    assert not rounding.found
