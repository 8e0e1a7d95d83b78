"""The Triton kernels compiled for NVIDIA's GPUs as they are launched, without a GPU.

Shows what the interpreter cannot: that types fit, that registers suffice, that barriers stand. Left out without Triton,
and under its interpreter; `nox -s triton` runs it.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from triton_machine_code import Launches, machine_code

if find_spec("triton") is None or os.environ.get("TRITON_INTERPRET"):
    pytest.skip("needs triton, without TRITON_INTERPRET: nox -s triton", allow_module_level=True)

AMPERE, HOPPER = 80, 90
SHARED_MEMORY = 99 * 1024  # bytes of a block of threads that every GPU since Ampere has
HALVES = (torch.float32, torch.bfloat16, torch.float16)


def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(*shape, dtype=dtype)


def selective_scan(
    time: int, dim: int, num_states: int, dtype: torch.dtype, spans: int = 1
) -> dict[str, Callable[[], Any]]:
    """The launches of a call like that of a Mamba block, in which half inputs meet float32 parameters."""
    module = import_module("slotbench.ops._cuda.triton_selective_scan")
    u, z = zeros(2, time, 2 * dim, dtype=dtype).chunk(2, dim=-1)
    B = zeros(2, time, num_states, dtype=dtype)
    given = (u, zeros(2, time, dim), zeros(dim, num_states), B, B, zeros(dim), z)
    _, last, starts = module._scan_shapes(*given, None, True, spans)
    there = lambda: module._scan(*given, None, True, spans)  # noqa: E731
    back = lambda: module._gradients(*given, starts, u, last, spans)  # noqa: E731
    ends = {"end_of_span": there, "end_of_span, back": back} if spans > 1 else {}
    return {"forward": there, "backward": back, **ends}


def linear_scan(time: int, pixels: int, num_states: int, decay_steps: int) -> dict[str, Callable[[], Any]]:
    module = import_module("slotbench.ops._cuda.triton_linear_scan")
    drive, decay = (
        zeros(2, time, pixels, num_states, dtype=torch.complex64),
        zeros(1, decay_steps, num_states, dtype=torch.complex64),
    )
    given = (drive, decay, drive[:, 0])
    return {
        "_forward": lambda: module._scan(*given),
        "_backward": lambda: module._gradients(*given, drive, drive[:, 0], True),
    }


CALLS = {
    **{f"selective_scan, {dtype}": ("selective_scan", selective_scan, (24, 80, 16, dtype)) for dtype in HALVES},
    "selective_scan, all sizes 1": ("selective_scan", selective_scan, (1, 1, 1, torch.float32)),
    "selective_scan, most states": ("selective_scan", selective_scan, (30, 128, 1024, torch.float32)),
    **{
        f"selective_scan, spans, {dtype}": ("selective_scan", selective_scan, (40, 80, 16, dtype, 3))
        for dtype in HALVES
    },
    "selective_scan, spans, most states": ("selective_scan", selective_scan, (40, 128, 1024, torch.float32, 3)),
    "linear_scan": ("linear_scan", linear_scan, (24, 64, 256, 1)),
    "linear_scan, a decay per step": ("linear_scan", linear_scan, (24, 6, 7, 24)),
    "linear_scan, all sizes 1": ("linear_scan", linear_scan, (1, 1, 1, 1)),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("capability", [AMPERE, HOPPER])
def test_every_kernel_compiles_and_its_numbers_fit_into_registers(monkeypatch, tmp_path, call, capability):
    op, launches, sizes = CALLS[call]
    for kernel, compiled in compiled_kernels(monkeypatch, op, launches(*sizes), capability):
        assert bytes_of_stack(compiled.asm["cubin"], tmp_path) == 0, kernel


@pytest.mark.parametrize("spans", [1, 3])
def test_barriers_stand_between_the_writing_and_the_reading_of_the_scratch_buffer(monkeypatch, spans):
    calls = selective_scan(40, 80, 16, torch.float32, spans)
    compiled = dict(compiled_kernels(monkeypatch, "selective_scan", calls, HOPPER))["backward"]
    lines = compiled.asm["ttir"].splitlines()
    barriers = [number for number, line in enumerate(lines) if re.match(r"\s*\S*barrier\b", line)]
    loops = [number for number, line in enumerate(lines) if "scf.for" in line]
    assert len(barriers) == 2
    assert len(loops) == 3 + (spans > 1)  # the first joins spans
    # the loop over chunks, the one that writes, a barrier, the one that reads, a barrier
    assert loops[-3] < loops[-2] < barriers[0] < loops[-1] < barriers[1]
    assert compiled.metadata.num_stages == 1


def compiled_kernels(
    monkeypatch: pytest.MonkeyPatch, op: str, calls: dict[str, Callable[[], Any]], capability: int
) -> Iterator[tuple[str, Any]]:
    """What Triton makes of the first launch of each kernel in a call of its own; no kernel is launched."""
    module = import_module(f"slotbench.ops._cuda.triton_{op}")
    names = {name.partition(",")[0] for name in calls}
    for name, call in calls.items():
        kernel = name.partition(",")[0]
        with monkeypatch.context() as patch:
            for other in names - {kernel}:
                patch.setattr(module, other, Launches(getattr(module, other)))
            yield name, machine_code(patch, module, kernel, call, capability)


def bytes_of_stack(cubin: bytes, folder: Path) -> int:
    """Where numbers go that have found no register."""
    from triton.backends import nvidia

    file = folder / "kernel.cubin"
    file.write_bytes(cubin)
    tool = Path(nvidia.__path__[0]) / "bin" / "cuobjdump"
    shown = subprocess.run([tool, "--dump-resource-usage", file], capture_output=True, text=True, check=True).stdout
    return int(re.search(r"STACK:(\d+)", shown)[1])
