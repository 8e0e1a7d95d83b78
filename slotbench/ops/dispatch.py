"""Which kernel runs an op: `auto` picks by device and by what is installed, a name is taken at its word or refused."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType

import torch
from torch import nn

from slotbench.ops import _cuda_packages

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
        "causal_conv1d": ("reference", "torch", "numba", "causal_conv1d"),
        "linear_scan": ("reference", "torch", "numba", "triton"),
        "group_norm_activation": ("reference", "torch", "numba"),
        "inverted_attention": ("reference", "dense", "streamed"),
    }
)
"""The kernels of every op, by name."""

_NUMBA_MODULES = (
    "_selective_scan_numba",
    "_causal_conv1d_numba",
    "_linear_scan_numba",
    "group_norm._numba",
    "code_sampling._numba",
)
_OPS_OF_MODULES = ("selective_scan", "ssd", "linear_scan", "group_norm_activation")
"""The ops that a module has a `kernel` of its own for."""

# On an H200 `triton` takes 0.57 to 0.84 of the time of mamba-ssm's selective scan at seven of eight sizes
# (docs/benchmarks.md).
_PREFERENCE = {"cpu": ("numba", "torch"), "cuda": ("triton", "mamba_ssm", "causal_conv1d", "torch")}
"""What `auto` tries, first to last, by type of device; `torch` alone on every other device."""

_NO_EXCLUSIONS: Mapping[str, str] = MappingProxyType({})

_chosen: dict[str, list[str]] = {}


@cache
def _import_failure(op: str, kernel: str) -> str | None:
    """Why a kernel for CUDA cannot be imported, or None."""
    if kernel == "causal_conv1d":
        return _cuda_packages.causal_conv1d_failure()
    if kernel == "mamba_ssm":
        return _cuda_packages.mamba_ssm_ssd_failure() if op == "ssd" else _cuda_packages.mamba_ssm_failure()
    try:
        import_module(f"slotbench.ops._cuda.triton_{op}")
    except Exception as error:  # a Triton that does not go with this torch may raise anything
        why = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        return f"needs triton, whose import failed ({why}): torch for CUDA on Linux brings it, or pip install triton"
    return None


@cache
def _numba_failure() -> str | None:
    try:
        for module in _NUMBA_MODULES:
            import_module(f"slotbench.ops.{module}")
    except (ImportError, OSError, RuntimeError) as error:  # RuntimeError: numba finds no folder for its cache
        return f"needs numba, which fails ({error}): pip install numba, or set NUMBA_CACHE_DIR to a folder to write to"
    return None


def numba_works() -> bool:
    """Whether the kernels that numba compiles for the CPU can be used; what is not among `KERNELS` asks here."""
    return _numba_failure() is None


def _interprets_triton() -> bool:
    """Whether Triton's kernels are run step by step in Python, on the CPU; only tests want that."""
    return os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "yes", "on", "y")


def _why_not(op: str, kernel: str, device: torch.device) -> str | None:
    """None if `kernel` of `op` works on `device`, otherwise the reason."""
    if kernel == "numba":
        if device.type != "cpu":
            return f"runs on the CPU and the tensors are on '{device.type}': use kernel='torch'"
        return _numba_failure()
    if kernel not in ("mamba_ssm", "causal_conv1d", "triton"):
        return None
    if device.type != "cuda" and not (kernel == "triton" and device.type == "cpu" and _interprets_triton()):
        return f"runs on CUDA and the tensors are on '{device.type}': move them with .to('cuda'), or use kernel='auto'"
    return _import_failure(op, kernel)


def _kernels_of(op: str) -> tuple[str, ...]:
    if op not in KERNELS:
        raise ValueError(f"no op named '{op}'; slotbench.ops has {', '.join(KERNELS)}")
    return KERNELS[op]


def kernels_of_modules(op: str) -> tuple[str, ...]:
    """The kernels of `op` that `set_kernel` gives to modules: those that run every call."""
    # the others of this op take some sizes and arguments alone; it chooses by itself
    return ("reference",) if op == "inverted_attention" else _kernels_of(op)


def available_kernels(op: str, device: torch.device | str = "cpu") -> dict[str, str | None]:
    """The kernels of `op` by name: None where it works on `device`, otherwise the reason why it does not.

    Args:
        op: a key of `KERNELS`.
        device: where the tensors would be.
    """
    return {kernel: _why_not(op, kernel, torch.device(device)) for kernel in _kernels_of(op)}


def automatic_kernel(
    op: str, device: torch.device | str = "cpu", excluded: Mapping[str, str] = _NO_EXCLUSIONS
) -> tuple[str, dict[str, str]]:
    """What `auto` takes for `op` on `device`, and why not those that it would rather have taken, by name.

    Args:
        op: name of the op.
        device: where the tensors would be.
        excluded: kernels that cannot do a particular call, with the reason.
    """
    device, names = torch.device(device), _kernels_of(op)
    refused: dict[str, str] = {}
    for candidate in _PREFERENCE.get(device.type, ()):
        if candidate in names:
            reason = excluded.get(candidate) or _why_not(op, candidate, device)
            if reason is None:
                return candidate, refused
            refused[candidate] = reason
    return "torch" if "torch" in names else "streamed", refused


def choose_kernel(op: str, kernel: str, device: torch.device, excluded: Mapping[str, str] = _NO_EXCLUSIONS) -> str:
    """Name of the kernel that runs this call; the first time that `op` gets it, the choice is logged and noted.

    Args:
        op: name of the op.
        kernel: what the caller asked for: "auto" or a name.
        device: where the tensors are.
        excluded: kernels that cannot do this particular call, with the reason.
    """
    names = _kernels_of(op)
    refused: Mapping[str, str] = _NO_EXCLUSIONS
    if kernel == "auto":
        kernel, refused = automatic_kernel(op, device, excluded)
    elif kernel not in names:
        raise ValueError(f"{op} has no kernel named '{kernel}'; use 'auto' or one of {', '.join(names)}")
    elif (reason := excluded.get(kernel) or _why_not(op, kernel, device)) is not None:
        raise KernelError(f"kernel '{kernel}' of {op} cannot run: it {reason}")
    used = _chosen.setdefault(op, [])
    if kernel not in used:
        used.append(kernel)
        instead = "".join(f"; not {name}: it {reason}" for name, reason in refused.items())
        logger.info("%s on %s runs kernel '%s'%s", op, device.type, kernel, instead)
    return kernel


# What torch.compiler.assume_constant_result does, without its import of all that compiles: torch.compile calls the
# function once, while it traces, in place of tracing through imports and logging.
choose_kernel._dynamo_marked_constant = True  # type: ignore[attr-defined]


def chosen_kernels() -> dict[str, str]:
    """The kernel that each op has run in this process, for the run record; several are joined in order of first use."""
    return {op: ", ".join(kernels) for op, kernels in _chosen.items()}


def set_kernel(module: nn.Module, name: str) -> int:
    """Sets `.kernel` of every submodule that can have it (the module itself included), returns how many that were.

    A submodule that runs another op than the selective scan names it in `.kernel_op`. Where that op has no kernel of
    the name, the submodule keeps what it has.

    Args:
        module: a model.
        name: "auto" or a kernel of an op that modules run; whether it runs here is found out at the next call.
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
