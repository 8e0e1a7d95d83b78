"""The one place that imports mamba-ssm and causal-conv1d, when a kernel of theirs is wanted and not before.

Of mamba-ssm only the compiled module `selective_scan_cuda` and the Triton kernels of Mamba-2 are imported. The package
around them imports language models and with them transformers and huggingface_hub, so a release of those can break it,
and a scan needs none of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_HOW_TO_INSTALL = "see docs/install_cuda.md, or use kernel='torch'"


@cache
def _load(package: str, module: str, *names: str) -> tuple[list[Callable[..., Any]], str | None]:
    """(the functions of those names, None) or ([], the reason why they cannot be had)."""
    try:
        imported = _import_without_package(module) if "." in module else import_module(module)
        return [getattr(imported, name) for name in names], None
    # OSError: built for another torch or CUDA. RuntimeError: what they import in turn finds no driver. A compiled
    # module may raise anything else: ValueError ("vector::reserve") has been seen.
    except Exception as error:
        why = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        return [], f"needs {package}, whose import failed ({why}): {_HOW_TO_INSTALL}"


def _import_without_package(module: str) -> ModuleType:
    """Imports `module` without running the `__init__` of the package that it lies in, if that has not been imported."""
    package = module.partition(".")[0]
    spec = None if package in sys.modules else find_spec(package)
    if spec is None:
        return import_module(module)
    # A package that was found and not run stands in for as long as the import looks for what lies below it.
    sys.modules[package] = module_from_spec(spec)
    try:
        return import_module(module)
    finally:
        del sys.modules[package]


def _load_mamba_ssm() -> tuple[list[Callable[..., Any]], str | None]:
    return _load("mamba-ssm", "selective_scan_cuda", "fwd", "bwd")


def _load_mamba_ssm_ssd() -> tuple[list[Callable[..., Any]], str | None]:
    return _load("mamba-ssm", "mamba_ssm.ops.triton.ssd_combined", "mamba_chunk_scan_combined")


def _load_causal_conv1d() -> tuple[list[Callable[..., Any]], str | None]:
    return _load("causal-conv1d", "causal_conv1d", "causal_conv1d_fn")


def mamba_ssm_failure() -> str | None:
    """Why mamba-ssm's selective scan cannot be imported, or None."""
    return _load_mamba_ssm()[1]


def mamba_ssm_ssd_failure() -> str | None:
    """Why mamba-ssm's scan of Mamba-2 cannot be imported, or None."""
    return _load_mamba_ssm_ssd()[1]


def causal_conv1d_failure() -> str | None:
    """Why causal-conv1d's convolution cannot be imported, or None."""
    return _load_causal_conv1d()[1]


def mamba_ssm_scan() -> Callable[..., Tensor]:
    """mamba-ssm's scan from h_0 = 0: contiguous float32 (u, delta, A, B, C) -> y. Ask `mamba_ssm_failure` first.

    u, delta and y are "batch dim time", A "dim state", B and C "batch state time".
    """
    kernels, failure = _load_mamba_ssm()
    if failure is not None:
        raise ImportError(f"kernel 'mamba_ssm' {failure}")

    def scan(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
        y: Tensor = _ScanFromZero.apply(*kernels, u, delta, A, B, C)
        return y

    return scan


def mamba_ssm_ssd() -> Callable[..., Any]:
    """mamba-ssm's `mamba_chunk_scan_combined`. Ask `mamba_ssm_ssd_failure` first."""
    kernels, failure = _load_mamba_ssm_ssd()
    if failure is not None:
        raise ImportError(f"kernel 'mamba_ssm' {failure}")
    return kernels[0]


def causal_conv1d_convolution() -> Callable[..., Any]:
    """causal-conv1d's `causal_conv1d_fn`. Ask `causal_conv1d_failure` first."""
    kernels, failure = _load_causal_conv1d()
    if failure is not None:
        raise ImportError(f"kernel 'causal_conv1d' {failure}")
    return kernels[0]


class _ScanFromZero(torch.autograd.Function):
    """mamba-ssm's two compiled functions as one differentiable: (forward, backward, u, delta, A, B, C) -> y."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        forward_kernel: Callable[..., Any],
        backward_kernel: Callable[..., Any],
        u: Tensor,
        delta: Tensor,
        A: Tensor,
        B: Tensor,
        C: Tensor,
    ) -> Tensor:
        # "batch group state time": channels of one group share B and C, and here all channels do
        B, C = B[:, None], C[:, None]
        skip = gate = delta_bias = None
        y, states, *_ = forward_kernel(u, delta, A, B, C, skip, gate, delta_bias, False)
        ctx.save_for_backward(u, delta, A, B, C, states)
        ctx.backward_kernel = backward_kernel
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        u, delta, A, B, C, states = ctx.saved_tensors
        skip = gate = delta_bias = ungated = grad_gate = None
        grad_u, grad_delta, grad_A, grad_B, grad_C, *_ = ctx.backward_kernel(
            *(u, delta, A, B, C, skip, gate, delta_bias),
            *(grad_y.contiguous(), states, ungated, grad_gate),
            *(False, False),  # no softplus of delta, no second gated output
        )
        return None, None, grad_u, grad_delta, grad_A, grad_B.squeeze(1), grad_C.squeeze(1)
