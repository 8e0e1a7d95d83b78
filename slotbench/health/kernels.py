"""Runs every kernel that can run here on a small input, and compares it with the reference in double precision."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from slotbench.health.findings import Finding, first_line

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["OPS", "kernel_names", "kernels"]

OPS = ("selective_scan", "ssd", "causal_conv1d", "linear_scan", "group_norm_activation")
"""As in `slotbench.ops`, whose import takes that of torch."""
_TOLERANCE = 2e-3  # relative; mamba-ssm's products of float32 are of the precision TF32
_TIME = 20


def kernel_names() -> list[str]:
    """The ops, and the folder of compiled kernels; a single kernel is OP/KERNEL, what is taken by itself OP/auto."""
    return [*OPS, "numba cache"]


def kernels() -> Iterator[Finding]:
    """One finding per op and kernel, which is run on every device that it can run on, and the choice among them."""
    import torch

    devices = [torch.device(name) for name in ("cpu", *(["cuda"] if torch.cuda.is_available() else []))]
    for op in OPS:
        yield from _op(op, devices)
        yield _choice(op, devices)
    yield _numba_cache()


def _op(op: str, devices: list[torch.device]) -> Iterator[Finding]:
    from slotbench.ops import available_kernels

    refusals = {device: available_kernels(op, device) for device in devices}
    for kernel in refusals[devices[0]]:
        ran: list[str] = []
        wrong: list[str] = []
        for device in (device for device in devices if refusals[device][kernel] is None):
            on = f" on {device.type}" if len(devices) > 1 else ""
            try:
                error = _error(op, kernel, device)
            except Exception as failure:
                wrong.append(f"{first_line(failure)}{on}")
                continue
            (ran if error <= _TOLERANCE else wrong).append(f"{error:.0e}{on}")
        name = f"{op}/{kernel}"
        if wrong:
            fix = "name another kernel in the configuration, and please report it"
            text = f"off the reference by, or failed with: {'; '.join(wrong)}"
            yield Finding("kernels", name, "broken", text, fix, essential=True)
        elif ran:
            yield Finding("kernels", name, "ok", ", ".join(ran))
        else:
            why = str(refusals[devices[-1]][kernel])
            if len(devices) == 1 and why.startswith("runs on CUDA"):
                why = "runs on CUDA only"
            yield Finding("kernels", name, "note", why)


def _choice(op: str, devices: list[torch.device]) -> Finding:
    """Which kernel `auto` takes on every device, and why none that it would rather have taken."""
    from slotbench.ops.dispatch import automatic_kernel

    said = []
    for device in devices:
        kernel, refused = automatic_kernel(op, device)
        said.append(
            "; ".join([f"{kernel} on {device.type}", *(f"not {one}: it {why}" for one, why in refused.items())])
        )
    return Finding("kernels", f"{op}/auto", "ok", ". ".join(said))


def _error(op: str, kernel: str, device: torch.device) -> float:
    """Largest difference from the reference in float64 on the CPU, relative to its largest value."""
    call, inputs = _example(op)
    expected = call([value.to(_double(value)) for value in inputs], "reference")
    got = call([value.to(device) for value in inputs], kernel)
    scale = max(value.abs().max().item() for value in expected)
    pairs = zip(got, expected, strict=True)
    return max((value.cpu().to(other.dtype) - other).abs().max().item() for value, other in pairs) / scale


def _double(value: Tensor) -> torch.dtype:
    import torch

    return torch.complex128 if value.is_complex() else torch.float64


def _example(op: str) -> tuple[Callable[[list[Tensor], str], tuple[Tensor, ...]], list[Tensor]]:
    """The op, and small inputs in single precision for it."""
    import torch

    from slotbench import ops

    noise = torch.Generator().manual_seed(0)

    def randn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=noise)

    if op == "selective_scan":
        inputs = [randn(2, _TIME, 8), randn(2, _TIME, 8).exp(), -randn(8, 4).exp(), randn(2, _TIME, 4)]
        inputs += [randn(2, _TIME, 4)]
        return lambda given, kernel: ops.selective_scan(*given, kernel=kernel), inputs
    if op == "ssd":
        # a head as wide, and as many states, as the kernels for CUDA take
        inputs = [randn(2, _TIME, 2, 16), randn(2, _TIME, 2).exp(), -randn(2).exp(), randn(2, _TIME, 1, 16)]
        inputs += [randn(2, _TIME, 1, 16)]
        return lambda given, kernel: ops.ssd(*given, kernel=kernel), inputs
    if op == "causal_conv1d":
        inputs = [randn(2, _TIME, 8), randn(8, 4), randn(8)]
        return lambda given, kernel: ops.causal_conv1d(given[0], given[1], given[2], kernel=kernel), inputs
    if op == "group_norm_activation":
        inputs = [randn(2, 8, 4, 4), randn(8), randn(8)]
        return lambda given, kernel: (ops.group_norm_activation(given[0], 2, *given[1:], kernel=kernel),), inputs
    decay = torch.polar(torch.sigmoid(randn(4)), randn(4))
    return lambda given, kernel: ops.linear_scan(*given, kernel=kernel), [
        torch.complex(randn(2, _TIME, 3, 4), randn(2, _TIME, 3, 4)),
        decay,
    ]


def _numba_cache() -> Finding:
    """Where the compiled kernels are kept; without such a folder every process compiles for itself."""
    fix = "set NUMBA_CACHE_DIR to a folder that you can write"
    try:
        from slotbench.ops import _linear_scan_numba
    except Exception as error:
        return Finding("kernels", "numba cache", "broken", first_line(error), fix)
    folder = Path(_linear_scan_numba._forward.stats.cache_path)
    # it is made when something is first written to it
    there = next((parent for parent in (folder, *folder.parents) if parent.exists()), folder)
    if os.access(there, os.W_OK):
        return Finding("kernels", "numba cache", "ok", f"{folder}")
    return Finding("kernels", "numba cache", "note", f"{folder} cannot be written: each process compiles anew", fix)
