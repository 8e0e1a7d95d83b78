"""Runs every kernel that can run here on a small input, and compares it with the reference in double precision."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from slotbench.health.findings import Finding, broken, first_line, note, ok

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["OPS", "kernels", "numba_cache"]

OPS = ("selective_scan", "ssd", "causal_conv1d", "linear_scan", "group_norm_activation", "inverted_attention")
"""As in `slotbench.ops`, whose import takes that of torch."""
_TOLERANCE = 2e-3  # relative; mamba-ssm's products of float32 are of the precision TF32
_TIME = 20


def kernels() -> Iterator[Finding]:
    """A finding per op and kernel, run on every device that takes it, and per op one of the kernel of `auto`."""
    import torch

    devices = [torch.device(name) for name in ("cpu", *(["cuda"] if torch.cuda.is_available() else []))]
    for op in OPS:
        yield from _kernels_of(op, devices)
        yield _choice(op, devices)


def numba_cache() -> Finding:
    """The folder of compiled kernels; without one every process compiles for itself."""
    fix = "set NUMBA_CACHE_DIR to a folder that you can write"
    try:
        from slotbench.ops import _linear_scan_numba
    except Exception as error:
        return broken(first_line(error), fix)
    folder = Path(_linear_scan_numba._forward.stats.cache_path)
    # it is made when something is first written to it
    there = next((parent for parent in (folder, *folder.parents) if parent.exists()), folder)
    if os.access(there, os.W_OK):
        return ok(f"{folder}")
    return note(f"{folder} cannot be written: each process compiles anew", fix)


def _kernels_of(op: str, devices: list[torch.device]) -> Iterator[Finding]:
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
            text = f"off the reference by, or failed with: {'; '.join(wrong)}"
            fix = "name another kernel in the configuration, and please report it"
            yield broken(text, fix, name, essential=True)
        elif ran:
            yield ok(", ".join(ran), name)
        else:
            why = str(refusals[devices[-1]][kernel])
            yield note("runs on CUDA only" if len(devices) == 1 and why.startswith("runs on CUDA") else why, name=name)


def _choice(op: str, devices: list[torch.device]) -> Finding:
    """The kernel of `auto` on every device, and why none that it prefers."""
    from slotbench.ops.dispatch import automatic_kernel

    chosen = []
    for device in devices:
        kernel, refused = automatic_kernel(op, device)
        why = (f"not {one}: it {reason}" for one, reason in refused.items())
        # the sizes of a call make this op take others, which depend on no device
        unless = " where there are many weights" if op == "inverted_attention" else ""
        chosen.append("; ".join([f"{kernel} on {device.type}{unless}", *why]))
    return ok(". ".join(chosen), f"{op}/auto")


def _error(op: str, kernel: str, device: torch.device) -> float:
    """Largest difference from the reference in float64 on the CPU, relative to its largest value."""
    inputs = _inputs(op)
    expected = _call(op, [value.to(_double(value)) for value in inputs], "reference")
    got = _call(op, [value.to(device) for value in inputs], kernel)
    scale = max(value.abs().max().item() for value in expected)
    pairs = zip(got, expected, strict=True)
    return max((value.cpu().to(other.dtype) - other).abs().max().item() for value, other in pairs) / scale


def _double(value: Tensor) -> torch.dtype:
    import torch

    return torch.complex128 if value.is_complex() else torch.float64


def _call(op: str, inputs: list[Tensor], kernel: str) -> tuple[Tensor, ...]:
    from slotbench import ops

    if op == "group_norm_activation":
        frames, weight, bias = inputs
        return (ops.group_norm_activation(frames, 2, weight, bias, kernel=kernel),)
    if op == "inverted_attention":
        return _attend(inputs, kernel)
    outputs: tuple[Tensor, ...] = getattr(ops, op)(*inputs, kernel=kernel)
    return outputs


def _attend(inputs: list[Tensor], kernel: str) -> tuple[Tensor, ...]:
    """(updates, assignment) of inverted attention with these maps."""
    from torch import nn

    from slotbench.ops.inverted_attention import AttentionMaps, inverted_attention
    from slotbench.registry import load

    slots, tokens, *weights = inputs
    query, key_value = (nn.Linear(weight.shape[1], weight.shape[0], bias=False) for weight in weights)
    query.weight, key_value.weight = (nn.Parameter(weight) for weight in weights)
    aggregation = load("aggregations", "WeightedMean")(slots.shape[-1])
    updates, shares, _ = inverted_attention(slots, tokens, AttentionMaps(query, key_value), aggregation, kernel=kernel)
    assert shares is not None
    return updates, shares


def _inputs(op: str) -> list[Tensor]:
    """Small inputs of an op in single precision."""
    import torch

    noise = torch.Generator().manual_seed(0)

    def randn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=noise)

    if op == "selective_scan":
        steps = (randn(2, _TIME, 8), randn(2, _TIME, 8).exp(), -randn(8, 4).exp())
        return [*steps, randn(2, _TIME, 4), randn(2, _TIME, 4)]
    if op == "ssd":
        # a head as wide, and as many states, as the kernels for CUDA take
        heads = (randn(2, _TIME, 2, 16), randn(2, _TIME, 2).exp(), -randn(2).exp())
        return [*heads, randn(2, _TIME, 1, 16), randn(2, _TIME, 1, 16)]
    if op == "causal_conv1d":
        return [randn(2, _TIME, 8), randn(8, 4), randn(8)]
    if op == "group_norm_activation":
        return [randn(2, 8, 4, 4), randn(8), randn(8)]
    if op == "inverted_attention":
        return [randn(2, 5, 8), randn(2, 10 * _TIME, 6), randn(8, 8), randn(16, 6)]
    decay = torch.polar(torch.sigmoid(randn(4)), randn(4))
    return [torch.complex(randn(2, _TIME, 3, 4), randn(2, _TIME, 3, 4)), decay]
