"""A part in float64 computes nothing in float32 on the way, which would leave an error of 1e-7 that no test expects."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from slotbench import registry
from slotbench.interfaces import SlotSpec, TokenSpec, VideoBatch, VideoSpec

FRAME = VideoSpec(3, 32, 32)
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


def frames(time: int = 2) -> VideoBatch:
    pixels, steps = torch.rand(1, time, 3, 32, 32, dtype=torch.float64), torch.arange(time)[None]
    ids = torch.randint(3, (1, time, 32, 32))
    return VideoBatch(pixels, steps, target=ids, target_time=steps, codes=ids[..., :2, :2])


@pytest.mark.parametrize("name", registry.names("encoders"))
def test_encoder_in_float64_rounds_nothing_to_float32(name):
    coded = replace(FRAME, codes=VideoSpec(3, 2, 2))
    encoder, batch = registry.load("encoders", name)(coded).double(), frames()
    with Rounding() as rounding:
        encoder(batch)
    assert not rounding.found


@pytest.mark.parametrize("name", registry.names("cores"))
def test_core_in_float64_rounds_nothing_to_float32(name):
    core = registry.load("cores", name)(TokenSpec(12, 4, (2, 2))).double()
    tokens = torch.randn(2, 4, 4, 12, dtype=torch.float64)
    with Rounding() as rounding:
        core(tokens).slots.sum().backward()
    assert not rounding.found


@pytest.mark.parametrize("name", registry.names("decoders"))
def test_decoder_in_float64_rounds_nothing_to_float32(name):
    decoder = registry.load("decoders", name)(SlotSpec(64, 8, (8, 8)), FRAME).double()
    slots = torch.randn(1, 1, 64, 8, dtype=torch.float64)
    with Rounding() as rounding:
        decoder(slots, frames(1)).reconstruction.sum().backward()
    assert not rounding.found
