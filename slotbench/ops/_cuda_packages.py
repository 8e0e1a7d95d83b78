"""The one place that imports mamba-ssm and causal-conv1d, when a kernel of theirs is wanted and not before."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

_HOW_TO_INSTALL = "see docs/install_cuda.md, or use kernel='torch'"


@cache
def _load(module: str, name: str) -> tuple[Callable[..., Any] | None, str | None]:
    """(the function, None) or (None, the reason why it cannot be had)."""
    try:
        return getattr(import_module(module), name), None
    # OSError: built for another torch or CUDA. RuntimeError: what they import in turn finds no driver.
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        package = module.partition(".")[0].replace("_", "-")
        why = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        return None, f"needs {package}, whose import failed ({why}): {_HOW_TO_INSTALL}"


def mamba_ssm_failure() -> str | None:
    """Why mamba-ssm's selective scan cannot be imported, or None."""
    return _load("mamba_ssm.ops.selective_scan_interface", "selective_scan_fn")[1]


def causal_conv1d_failure() -> str | None:
    """Why causal-conv1d's convolution cannot be imported, or None."""
    return _load("causal_conv1d", "causal_conv1d_fn")[1]


def mamba_ssm_scan() -> Callable[..., Any]:
    """mamba-ssm's `selective_scan_fn`. Ask `mamba_ssm_failure` first."""
    function, failure = _load("mamba_ssm.ops.selective_scan_interface", "selective_scan_fn")
    if function is None:
        raise ImportError(f"kernel 'mamba_ssm' {failure}")
    return function


def causal_conv1d_convolution() -> Callable[..., Any]:
    """causal-conv1d's `causal_conv1d_fn`. Ask `causal_conv1d_failure` first."""
    function, failure = _load("causal_conv1d", "causal_conv1d_fn")
    if function is None:
        raise ImportError(f"kernel 'causal_conv1d' {failure}")
    return function
