"""The Mamba-2 block: one projection for all, short causal convolution, scan with one decay per head, gated norm.

Parameters carry the names and shapes of mamba-ssm's `Mamba2` module, so its `state_dict` loads into this one unchanged.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from slotbench.nn.mamba import CONVOLUTION_BESIDE, at_least_float32, initial_step_bias
from slotbench.ops import causal_conv1d, split_channels, ssd
from slotbench.ops.dispatch import choose_kernel

__all__ = ["GatedRMSNorm", "Mamba2Block", "Mamba2State"]


class Mamba2State(NamedTuple):
    """What a `Mamba2Block` remembers: the last inputs of its convolution, and the state of its scan."""

    conv: Float[Tensor, "batch width-1 channels"]
    ssm: Float[Tensor, "batch heads head_dim state"]


class GatedRMSNorm(nn.Module):
    """Gates, then scales every group of channels to a mean square of one; in float32 under autocast.

    Source: Mamba-2 (Dao and Gu, 2024), section 7.1; mamba-ssm's default order, gate before norm.

    Args:
        dim: channels.
        num_groups: groups that are scaled each on their own; must divide `dim`.
    """

    epsilon: ClassVar[float] = 1e-5

    def __init__(self, dim: int, num_groups: int = 1) -> None:
        super().__init__()
        self.num_groups = num_groups
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Float[Tensor, "*batch dim"], gate: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """`gate` is the argument of a SiLU."""
        wide = at_least_float32(x) * functional.silu(at_least_float32(gate))
        groups = wide.unflatten(-1, (self.num_groups, -1))
        scale = torch.rsqrt(groups.square().mean(dim=-1, keepdim=True) + self.epsilon)
        return ((groups * scale).flatten(-2) * self.weight).to(x.dtype)


class Mamba2Block(nn.Module):
    """Maps a sequence to a sequence of the same width in linear time, with a state of constant size.

    Against `MambaBlock`: the step size, its decay and the skip are one number per head instead of one per channel (and
    state), so that the scan is made of matrix products; the input and output maps B and C come from the block's input
    and pass the convolution; a norm follows the gate. No residual: the caller writes `x + block(norm(x))`.

    A_log, D, the bias of the step size, the scan and the norm stay in float32 under autocast. A_log, D, the biases and
    the filters of the convolution carry `_no_weight_decay = True`.

    Source: Mamba-2 (Dao and Gu, 2024), section 7.1 and Figure 6; SlotSSM (Jiang et al., NeurIPS 2024), whose public
    code uses it by default. The default sizes are those of `MambaBlock`, in which the paper's are.

    Args:
        dim: width of the sequence.
        state_dim: states per inner channel.
        expand: the inner width is int(expand * dim).
        conv_width: taps of the convolution, in time steps.
        head_dim: channels of a head, which must divide the inner width.
        num_groups: groups of heads that share B and C; must divide the number of heads.
        exact_zoh: takes the exact zero-order hold of the input map in place of delta B.
        kernel: kernel of the scan (`slotbench.ops.ssd`); the convolution takes the one that belongs to it.
            `slotbench.ops.set_kernel` changes it.
    """

    kernel_op: ClassVar[str] = "ssd"

    def __init__(
        self,
        dim: int,
        state_dim: int = 16,
        expand: float = 1.25,
        conv_width: int = 4,
        head_dim: int = 20,
        num_groups: int = 1,
        *,
        exact_zoh: bool = False,
        kernel: str = "auto",
    ) -> None:
        super().__init__()
        self.inner_dim = int(expand * dim)
        _check_heads(dim, expand, self.inner_dim, head_dim, num_groups)
        self.head_dim = head_dim
        self.num_heads = self.inner_dim // head_dim
        self.num_groups = num_groups
        self.state_dim = state_dim
        self.exact_zoh = exact_zoh
        self.kernel = kernel

        conv_dim = self.inner_dim + 2 * num_groups * state_dim
        self.in_proj = nn.Linear(dim, self.inner_dim + conv_dim + self.num_heads, bias=False)
        # holds the filters under mamba-ssm's name; the op that runs them is `causal_conv1d`
        self.conv1d = nn.Conv1d(conv_dim, conv_dim, conv_width, groups=conv_dim)
        self.dt_bias = nn.Parameter(initial_step_bias(self.num_heads))
        self.A_log = nn.Parameter(torch.empty(self.num_heads).uniform_(1, 16).log())
        self.D = nn.Parameter(torch.ones(self.num_heads))
        self.norm = GatedRMSNorm(self.inner_dim, num_groups)
        self.out_proj = nn.Linear(self.inner_dim, dim, bias=False)
        for parameter in (self.A_log, self.D, self.dt_bias, self.conv1d.weight, self.conv1d.bias):
            parameter._no_weight_decay = True  # type: ignore[union-attr]

    def forward(
        self, x: Float[Tensor, "batch time dim"], state: Mamba2State | None = None
    ) -> tuple[Float[Tensor, "batch time dim"], Mamba2State]:
        """The sequence of outputs, and the state after the last step; `state` is that of the call before."""
        conv_state, ssm_state = (None, None) if state is None else state
        maps_dim = self.num_groups * self.state_dim
        gate, convolved, step = self.in_proj(x).split(
            [self.inner_dim, self.inner_dim + 2 * maps_dim, self.num_heads], dim=-1
        )
        filters = rearrange(self.conv1d.weight, "channels 1 width -> channels width")
        if self.kernel == "mamba_ssm":
            # before the convolution: a refusal should name the kernel that was asked for
            choose_kernel("ssd", self.kernel, x.device)
        kernel = CONVOLUTION_BESIDE.get(self.kernel, self.kernel)
        convolved, conv_state = causal_conv1d(convolved, filters, self.conv1d.bias, conv_state, "silu", kernel=kernel)
        u, B, C = split_channels(convolved, [self.inner_dim, maps_dim, maps_dim])
        delta = functional.softplus(at_least_float32(step) + at_least_float32(self.dt_bias))
        y, ssm_state = ssd(
            u.unflatten(-1, (self.num_heads, self.head_dim)),
            delta,
            -torch.exp(at_least_float32(self.A_log)),
            B.unflatten(-1, (self.num_groups, self.state_dim)),
            C.unflatten(-1, (self.num_groups, self.state_dim)),
            self.D,
            ssm_state,
            exact_zoh=self.exact_zoh,
            kernel=self.kernel,
        )
        return self.out_proj(self.norm(y.flatten(-2), gate)), Mamba2State(conv_state, ssm_state)


def _check_heads(dim: int, expand: float, inner_dim: int, head_dim: int, num_groups: int) -> None:
    if head_dim < 1 or inner_dim < 1 or inner_dim % head_dim:
        fitting = [width for width in range(1, inner_dim + 1) if inner_dim % width == 0]
        raise ValueError(
            f"Mamba-2 splits its inner width int(expand * dim) = int({expand} * {dim}) = {inner_dim} into heads of "
            f"head_dim={head_dim} channels, which does not come out even: set head_dim to one of "
            f"{', '.join(map(str, fitting))}, or change dim or expand"
        )
    num_heads = inner_dim // head_dim
    if num_groups < 1 or num_heads % num_groups:
        raise ValueError(
            f"num_groups={num_groups} does not divide the {num_heads} heads of {head_dim} channels: "
            f"choose a number of groups that does"
        )
