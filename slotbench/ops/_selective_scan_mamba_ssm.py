"""Selective scan by mamba-ssm's kernel, which has no initial state and drops the gradient of the last one.

Both states are therefore written and read inside the scan, by extra steps that the kernel takes like any other:

- As many steps as there are states come first. Step n has delta = 2^-40, the n-th unit vector as B, and 2^40 h[:, n] as
  u: it adds exactly h[:, n] to state n, and its decay exp(2^-40 A) rounds to 1 in float32 for every |A| < 2^15.
- As many come last. Step n has delta = 0, so nothing moves, and the n-th unit vector as C: its output is state n.

The price is `state` steps for the one, and `state` for the other; the gradient of both states is then the kernel's own.
"""

from __future__ import annotations

import torch
from einops import rearrange
from torch import Tensor
from torch.nn import functional

from slotbench.ops._cuda_packages import mamba_ssm_scan

MAX_STATES = 256
"""The kernel of mamba-ssm refuses more."""

_SMALL = 2.0**-40


def selective_scan_mamba_ssm(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The recurrence alone, without the D and z terms, in float32; `state` None stands for zeros and costs no steps."""
    time, num_states = u.shape[1], A.shape[1]
    u, delta = (rearrange(x, "batch time dim -> batch dim time") for x in (u, delta))
    B, C = (rearrange(x, "batch time state -> batch state time") for x in (B, C))
    unit = torch.eye(num_states, dtype=u.dtype, device=u.device).expand(len(u), -1, -1)
    before = 0
    if state is not None:
        before = num_states
        u = torch.cat([state / _SMALL, u], dim=-1)
        delta = functional.pad(delta, (before, 0), value=_SMALL)
        B = torch.cat([unit, B], dim=-1)
        C = functional.pad(C, (before, 0))
    u, delta, B = (functional.pad(x, (0, num_states)) for x in (u, delta, B))
    C = torch.cat([C, unit], dim=-1)
    y = mamba_ssm_scan()(*(x.contiguous() for x in (u, delta, A, B, C)))
    _, y, last = y.split([before, time, num_states], dim=-1)
    return rearrange(y, "batch dim time -> batch time dim"), last
