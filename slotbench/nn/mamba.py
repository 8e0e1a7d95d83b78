"""The Mamba block: projection, short causal convolution, selective scan, gate, projection.

Parameters carry the names and shapes of mamba-ssm's `Mamba` module, so its `state_dict` loads into this one unchanged.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from einops import rearrange, repeat
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from slotbench.ops import causal_conv1d, selective_scan, split_channels
from slotbench.ops.dispatch import choose_kernel

__all__ = ["MambaBlock", "MambaState"]


CONVOLUTION_BESIDE = {"mamba_ssm": "causal_conv1d", "triton": "auto"}
"""The kernel of the convolution beside that of a scan, where it has another name."""


class MambaState(NamedTuple):
    """What a `MambaBlock` remembers: the last inputs of its convolution, and the state of its scan."""

    conv: Float[Tensor, "batch width-1 inner"]
    ssm: Float[Tensor, "batch inner state"]


class MambaBlock(nn.Module):
    """Maps a sequence to a sequence of the same width in linear time, with a state of constant size.

    No normalisation and no residual: the caller writes `x + block(norm(x))`. A_log, D, the bias of the step size and
    the scan stay in float32 under autocast. A_log, D, the biases and the filters of the convolution carry
    `_no_weight_decay = True`; `dt_proj.bias` carries `_no_reinit = True`, because zeroing it would undo the spread of
    time scales.

    Source: SlotSSM (Jiang et al., NeurIPS 2024), Alg. 1 and Table 2; Mamba (Gu and Dao, 2023), section 3.4 and 3.6.

    Args:
        dim: width of the sequence.
        state_dim: states per inner channel.
        expand: the inner width is int(expand * dim).
        conv_width: taps of the convolution, in time steps.
        exact_zoh: takes the exact zero-order hold of the input map in place of delta B.
        kernel: kernel of the scan; the convolution takes the one that belongs to it. `slotbench.ops.set_kernel`
            changes it.
    """

    def __init__(
        self,
        dim: int,
        state_dim: int = 16,
        expand: float = 1.25,
        conv_width: int = 4,
        *,
        exact_zoh: bool = False,
        kernel: str = "auto",
    ) -> None:
        super().__init__()
        self.inner_dim = int(expand * dim)
        self.state_dim = state_dim
        self.rank = math.ceil(dim / 16)
        self.exact_zoh = exact_zoh
        self.kernel = kernel

        self.in_proj = nn.Linear(dim, 2 * self.inner_dim, bias=False)
        # holds the filters under mamba-ssm's name; the op that runs them is `causal_conv1d`
        self.conv1d = nn.Conv1d(self.inner_dim, self.inner_dim, conv_width, groups=self.inner_dim)
        self.x_proj = nn.Linear(self.inner_dim, self.rank + 2 * state_dim, bias=False)
        self.dt_proj = nn.Linear(self.rank, self.inner_dim)
        self.A_log = nn.Parameter(torch.empty(self.inner_dim, state_dim))
        self.D = nn.Parameter(torch.empty(self.inner_dim))
        self.out_proj = nn.Linear(self.inner_dim, dim, bias=False)
        self._initialise_scan()
        for parameter in (self.A_log, self.D, self.conv1d.weight, self.conv1d.bias, self.dt_proj.bias):
            parameter._no_weight_decay = True  # type: ignore[union-attr]
        self.dt_proj.bias._no_reinit = True  # type: ignore[attr-defined]

    @torch.no_grad()
    def _initialise_scan(self) -> None:
        rates = torch.arange(1, self.state_dim + 1, dtype=self.A_log.dtype)
        self.A_log.copy_(repeat(rates.log(), "state -> inner state", inner=self.inner_dim))
        self.D.fill_(1.0)
        nn.init.uniform_(self.dt_proj.weight, -(self.rank**-0.5), self.rank**-0.5)
        self.dt_proj.bias.copy_(initial_step_bias(self.inner_dim))

    def forward(
        self, x: Float[Tensor, "batch time dim"], state: MambaState | None = None
    ) -> tuple[Float[Tensor, "batch time dim"], MambaState]:
        """The sequence of outputs, and the state after the last step; `state` is that of the call before."""
        conv_state, ssm_state = (None, None) if state is None else state
        u, z = self.in_proj(x).chunk(2, dim=-1)
        filters = rearrange(self.conv1d.weight, "inner 1 width -> inner width")
        if self.kernel == "mamba_ssm":
            # before the convolution: a refusal should name the kernel that was asked for
            choose_kernel("selective_scan", self.kernel, x.device)
        kernel = CONVOLUTION_BESIDE.get(self.kernel, self.kernel)
        u, conv_state = causal_conv1d(u, filters, self.conv1d.bias, conv_state, "silu", kernel=kernel)
        low_rank, maps = self.x_proj(u).split([self.rank, 2 * self.state_dim], dim=-1)
        B, C = split_channels(maps, [self.state_dim, self.state_dim])
        delta = functional.softplus(_step(low_rank, self.dt_proj))
        A = -torch.exp(at_least_float32(self.A_log))
        y, ssm_state = selective_scan(
            u, delta, A, B, C, self.D, z, ssm_state, exact_zoh=self.exact_zoh, kernel=self.kernel
        )
        return self.out_proj(y), MambaState(conv_state, ssm_state)


def _step(low_rank: Tensor, projection: nn.Linear) -> Tensor:
    """The step size before its softplus; its bias, which has the time scales, is added in float32 at least."""
    is_full = low_rank.dtype == projection.bias.dtype and low_rank.dtype in (torch.float32, torch.float64)
    if is_full and not torch.is_autocast_enabled(low_rank.device.type):
        # one call; autocast would round its result
        return functional.linear(low_rank, projection.weight, projection.bias)
    step = functional.linear(low_rank, projection.weight)
    return at_least_float32(step) + at_least_float32(projection.bias)


def initial_step_bias(count: int) -> Float[Tensor, " count"]:
    """What goes into softplus for `count` step sizes drawn log-uniformly from 1e-3 to 1e-1."""
    low, high = math.log(1e-3), math.log(1e-1)
    step = torch.exp(low + (high - low) * torch.rand(count)).clamp(min=1e-4)
    return step + torch.log(-torch.expm1(-step))


def at_least_float32(x: Tensor) -> Tensor:
    """`x` in float32, or in float64 if it is that already."""
    return x if x.dtype == torch.float64 else x.float()
