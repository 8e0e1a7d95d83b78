"""Gate, then RMSNorm, as Mamba-2 ends: a readable reference, and a kernel compiled for the CPU."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from slotbench.ops._arguments import check_shapes
from slotbench.ops.dispatch import numba_works

__all__ = ["gated_rms_norm", "gated_rms_norm_reference"]


def gated_rms_norm(
    x: Tensor, gate: Tensor, weight: Tensor, num_groups: int = 1, eps: float = 1e-5, *, kernel: str = "auto"
) -> Tensor:
    """Multiplies x by silu(gate), and scales every group of channels to a mean square of one.

        h = x gate sigmoid(gate)        y = weight h / sqrt(mean(h^2) + eps)

    On a CPU, inputs of one dtype, float32 or float64, go through a compiled kernel that keeps nothing but x, gate and a
    number per group for the backward pass, and can be differentiated once; `gate` may be a part of wider rows. All else
    is computed in float32 by the equation.

    Source: Mamba-2 (Dao and Gu, 2024), section 7.1.

    Args:
        x: "*batch dim".
        gate: "*batch dim".
        weight: "dim".
        num_groups: groups of consecutive channels; must divide `dim`.
        eps: added to the mean square.
        kernel: "auto" and "numba" take the compiled kernel where it can run, any other name the equation.

    Returns:
        y, of the shape and dtype of x.

    Raises:
        ValueError: shapes that do not fit.
    """
    dim = x.shape[-1]
    if num_groups < 1 or dim % num_groups:
        raise ValueError(f"gated_rms_norm cannot cut {dim} channels into {num_groups} groups: give a divisor of {dim}")
    if gate.shape != x.shape or weight.shape != (dim,):
        expected = {"gate": (gate, tuple(x.shape), "(*batch, dim)"), "weight": (weight, (dim,), "(dim,)")}
        check_shapes("gated_rms_norm", {"x": x}, expected)
    if kernel in ("auto", "numba") and _is_compiled(x, gate, weight):
        from slotbench.ops.gated_norm._numba import GatedRMSNorm

        y: Tensor = GatedRMSNorm.apply(x, gate, weight, num_groups, eps)
        return y
    return gated_rms_norm_reference(x, gate, weight, num_groups, eps)


def gated_rms_norm_reference(x: Tensor, gate: Tensor, weight: Tensor, num_groups: int, eps: float) -> Tensor:
    """The equation of `gated_rms_norm`, to read and to check against, in float32 for half precision."""
    wide_x, wide_gate = (value if value.dtype == torch.float64 else value.float() for value in (x, gate))
    groups = (wide_x * functional.silu(wide_gate)).unflatten(-1, (num_groups, -1))
    scale = torch.rsqrt(groups.square().mean(dim=-1, keepdim=True) + eps)
    return ((groups * scale).flatten(-2) * weight).to(x.dtype)


def _is_compiled(x: Tensor, gate: Tensor, weight: Tensor) -> bool:
    alike = x.dtype == gate.dtype == weight.dtype and x.device == gate.device == weight.device
    fits = x.dtype in (torch.float32, torch.float64) and x.device.type == "cpu" and x.numel() > 0
    return alike and fits and numba_works()
