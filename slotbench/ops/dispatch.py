"""Which kernel runs an op: `auto` picks by device and by what is installed, a name is taken at its word or refused."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from slotbench.ops import _cuda_packages
from slotbench.ops._cuda.trial import trial_failure

__all__ = [
    "KERNELS",
    "KernelError",
    "automatic_kernel",
    "available_kernels",
    "choose_kernel",
    "chosen_kernels",
    "kernels_of_modules",
    "numba_works",
    "set_kernel",
]

logger = logging.getLogger("slotbench.ops")


class KernelError(RuntimeError):
    """A kernel that was asked for by name cannot run here; there is no silent fallback."""


KERNELS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "selective_scan": ("reference", "torch", "numba", "mamba_ssm", "triton"),
        "ssd": ("reference", "torch", "numba", "mamba_ssm"),
        "causal_conv1d": ("reference", "torch", "numba", "causal_conv1d", "triton"),
        "linear_scan": ("reference", "torch", "numba", "associative", "triton"),
        "group_norm_activation": ("reference", "torch", "numba"),
        "inverted_attention": ("reference", "dense", "streamed", "triton"),
    }
)
"""The kernels of every op, by name."""

_NUMBA_MODULES = (
    "_selective_scan_numba",
    "_causal_conv1d_numba",
    "_linear_scan_numba",
    "_ssd_numba.kernels",
    "group_norm._numba",
    "gated_norm._numba",
    "frame_conv._numba",
    "code_sampling._numba",
)

_KERNELS_OF_EVERY_CALL: Mapping[str, tuple[str, ...]] = MappingProxyType({"inverted_attention": ("reference",)})
"""Of an op whose other kernels take some sizes and arguments alone: those that run every call. It chooses by itself."""

_LAST_RESORT: Mapping[str, str] = MappingProxyType({"inverted_attention": "streamed"})
"""What `auto` takes where nothing that it prefers can run; `torch` for other ops."""

_OPS_OF_MODULES = ("selective_scan", "ssd", "linear_scan", "group_norm_activation")
"""The ops that a module has a `kernel` of its own for."""

_PREFERENCE = {
    "cpu": ("numba", "torch"),
    "cuda": ("triton", "mamba_ssm", "causal_conv1d", "associative", "torch"),
}
"""What `auto` tries, first to last, by type of device; `torch` alone on every other device.

On an H200 `triton` takes 0.57 to 0.84 of the time of mamba-ssm's selective scan at seven of eight sizes, and 1.7 times
as long at 32 sequences of 2,560 steps and 128 channels (docs/benchmarks.md), which it then ran in one span of time.
"""

_NO_EXCLUSIONS: Mapping[str, str] = MappingProxyType({})

_chosen: dict[str, list[str]] = {}


def _needs_numba(device: torch.device) -> str | None:
    if device.type != "cpu":
        return f"runs on the CPU and the tensors are on '{device.type}': use kernel='torch'"
    return _numba_failure()


def _needs_cuda(op: str, kernel: str, device: torch.device) -> str | None:
    if device.type != "cuda":
        return f"runs on CUDA and the tensors are on '{device.type}': move them with .to('cuda'), or use kernel='auto'"
    failure = _import_failure(op, kernel)
    # without a GPU only the import can be looked at
    return failure if failure is not None or not torch.cuda.is_available() else _trial_failure(op, kernel, device)


def _import_failure(op: str, kernel: str) -> str | None:
    if kernel == "triton":
        return _triton_failure(op)
    if kernel == "causal_conv1d":
        return _cuda_packages.causal_conv1d_failure()
    return _cuda_packages.mamba_ssm_ssd_failure() if op == "ssd" else _cuda_packages.mamba_ssm_failure()


@cache
def _triton_failure(op: str) -> str | None:
    try:
        import_module(f"slotbench.ops._cuda.triton_{op}")
    except Exception as error:  # a Triton that does not go with this torch may raise anything
        why = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        return f"needs triton, whose import failed ({why}): torch for CUDA on Linux brings it, or pip install triton"
    return None


@cache
def _trial_failure(op: str, kernel: str, device: torch.device) -> str | None:
    """What happened when the kernel ran for the first time in this process, on a small input."""
    failure = trial_failure(op, _kernel_function(op, kernel), device)
    return None if failure is None else f"{failure}: use kernel='torch'"


def _kernel_function(op: str, kernel: str) -> Callable[..., Any]:
    """A kernel for CUDA as `trial_failure` calls it."""
    if kernel == "causal_conv1d":
        convolve = _cuda_packages.causal_conv1d_convolution()
        return lambda x, weight, bias: (convolve(x.mT.contiguous(), weight, bias, activation="silu").mT,)
    module = f"slotbench.ops._{op}_mamba_ssm" if kernel == "mamba_ssm" else f"slotbench.ops._cuda.triton_{op}"
    function: Callable[..., Any] = getattr(import_module(module), f"{op}_{kernel}")
    if kernel == "triton" and op == "causal_conv1d":
        return lambda x, weight, bias: (function(x, weight, bias, None, "silu"),)
    if kernel == "triton" and op == "selective_scan":
        return lambda u, delta, A, B, C, state: function(u, delta, A, B, C, None, None, state, spans=2)
    if op == "inverted_attention":
        return lambda query, bias, tokens: function(query, bias, tokens, share_offset=0.1, across_heads=False)
    return function


def _interprets_triton() -> bool:
    """Whether Triton's kernels are run step by step in Python, on the CPU; only tests want that."""
    return os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "yes", "on", "y")


@cache
def _numba_failure() -> str | None:
    try:
        for module in _NUMBA_MODULES:
            import_module(f"slotbench.ops.{module}")
    except (ImportError, OSError, RuntimeError) as error:  # RuntimeError: numba finds no folder for its cache
        return (
            f"numba does not work here ({error}): pip install numba, or set NUMBA_CACHE_DIR to a folder you can write"
        )
    return None


def numba_works() -> bool:
    """Whether the kernels that numba compiles for the CPU can be used; what is not among `KERNELS` asks here."""
    return _numba_failure() is None


def _why_not(op: str, kernel: str, device: torch.device) -> str | None:
    """None if `kernel` of `op` works on `device`, otherwise the reason."""
    if kernel == "numba":
        return _needs_numba(device)
    if kernel == "triton" and device.type == "cpu" and _interprets_triton():
        return _triton_failure(op)
    if kernel in ("mamba_ssm", "causal_conv1d", "triton"):
        return _needs_cuda(op, kernel, device)
    return None


def kernels_of_modules(op: str) -> tuple[str, ...]:
    """The kernels of `op` that `set_kernel` gives to modules: those that run every call."""
    return _KERNELS_OF_EVERY_CALL.get(op) or _kernels_of(op)


def _kernels_of(op: str) -> tuple[str, ...]:
    if op not in KERNELS:
        raise ValueError(f"no op named '{op}'; slotbench.ops has {', '.join(KERNELS)}")
    return KERNELS[op]


def available_kernels(op: str, device: torch.device | str = "cpu") -> dict[str, str | None]:
    """The kernels of `op` by name: None where it works on `device`, otherwise the reason why it does not.

    Args:
        op: "selective_scan", "ssd", "causal_conv1d", "linear_scan", "group_norm_activation" or "inverted_attention".
        device: where the tensors would be.

    Raises:
        ValueError: there is no such op.
    """
    device = torch.device(device)
    return {kernel: _why_not(op, kernel, device) for kernel in _kernels_of(op)}


def automatic_kernel(
    op: str, device: torch.device | str = "cpu", excluded: Mapping[str, str] = _NO_EXCLUSIONS
) -> tuple[str, dict[str, str]]:
    """What `auto` takes for `op` on `device`, and why not those that it would rather have taken, by name.

    Args:
        op: name of the op.
        device: where the tensors would be.
        excluded: kernels that cannot do a particular call, with the reason.

    Raises:
        ValueError: there is no such op.
    """
    device, names = torch.device(device), _kernels_of(op)
    refused: dict[str, str] = {}
    for candidate in _PREFERENCE.get(device.type, ()):
        if candidate in names:
            reason = excluded.get(candidate) or _why_not(op, candidate, device)
            if reason is None:
                return candidate, refused
            refused[candidate] = reason
    return _LAST_RESORT.get(op, "torch"), refused


def choose_kernel(op: str, kernel: str, device: torch.device, excluded: Mapping[str, str] = _NO_EXCLUSIONS) -> str:
    """Name of the kernel that runs this call; the first time that `op` gets it, the choice is logged and noted.

    Args:
        op: name of the op.
        kernel: what the caller asked for: "auto" or a name.
        device: where the tensors are.
        excluded: kernels that cannot do this particular call, with the reason.

    Raises:
        ValueError: there is no such kernel.
        KernelError: the kernel that was asked for cannot run this call here.
    """
    names = _kernels_of(op)
    if kernel == "auto":
        kernel, refused = automatic_kernel(op, device, excluded)
        _note(op, kernel, device, refused)
        return kernel
    if kernel not in names:
        raise ValueError(f"{op} has no kernel named '{kernel}'; use 'auto' or one of {', '.join(names)}")
    reason = excluded.get(kernel) or _why_not(op, kernel, device)
    if reason is not None:
        raise KernelError(f"kernel '{kernel}' of {op} cannot run: it {reason}")
    _note(op, kernel, device, {})
    return kernel


# What torch.compiler.assume_constant_result does, without its import of all that compiles: torch.compile calls the
# function once, while it traces, in place of tracing through imports, trials and logging.
choose_kernel._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _note(op: str, kernel: str, device: torch.device, refused: Mapping[str, str]) -> None:
    used = _chosen.setdefault(op, [])
    if kernel in used:
        return
    used.append(kernel)
    instead = "".join(f"; not {name}: it {reason}" for name, reason in refused.items())
    logger.info("%s on %s runs kernel '%s'%s", op, device.type, kernel, instead)


def chosen_kernels() -> dict[str, str]:
    """The kernel that each op has run in this process, for the run record; several are joined in order of first use."""
    return {op: ", ".join(kernels) for op, kernels in _chosen.items()}


def set_kernel(module: nn.Module, name: str) -> int:
    """Sets `.kernel` of every submodule that can have it (the module itself included), returns how many that were.

    A submodule that runs another op than the selective scan names it in `.kernel_op`. Where that op has no kernel of
    the name, the submodule keeps what it has: `ssd` has no kernel "associative", so that leaves Mamba-2 alone.

    Args:
        module: a model.
        name: "auto" or a kernel of an op that modules run; whether it runs here is found out at the next call.

    Raises:
        ValueError: there is no such kernel.
    """
    names = ("auto", *dict.fromkeys(name for op in _OPS_OF_MODULES for name in KERNELS[op]))
    if name not in names:
        raise ValueError(f"no kernel is named '{name}'; use one of {', '.join(names)}")
    modules = [submodule for submodule in module.modules() if _takes_kernel(submodule, name)]
    for submodule in modules:
        submodule.kernel = name  # type: ignore[assignment]
    return len(modules)


def _takes_kernel(module: nn.Module, name: str) -> bool:
    op = getattr(module, "kernel_op", "selective_scan")
    return isinstance(getattr(module, "kernel", None), str) and name in ("auto", *kernels_of_modules(op))
