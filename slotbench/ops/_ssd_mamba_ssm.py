"""The scan of Mamba-2 by mamba-ssm's Triton kernels, which know an initial state and the gradient of the last one."""

from __future__ import annotations

from torch import Tensor

from slotbench.ops._cuda_packages import mamba_ssm_ssd

# Steps of a chunk, a power of two. The package's default of 256 suits long texts; clips are often a few dozen steps.
_CHUNK = 64


def ssd_mamba_ssm(
    x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The recurrence alone, without the D term, in float32; `state` None stands for zeros."""
    scan = mamba_ssm_ssd()
    x, delta, B, C = (value.contiguous() for value in (x, delta, B, C))
    initial = None if state is None else state.contiguous()
    y, last = scan(x, delta, A.contiguous(), B, C, _CHUNK, initial_states=initial, return_final_states=True)
    return y, last
