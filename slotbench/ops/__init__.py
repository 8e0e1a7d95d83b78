"""Operations with a readable reference, the fast kernels beside it, and one dispatcher."""

from slotbench.ops._memory import split_channels
from slotbench.ops.causal_conv1d import causal_conv1d
from slotbench.ops.dispatch import KernelError, available_kernels, chosen_kernels, set_kernel
from slotbench.ops.group_norm import group_norm_activation
from slotbench.ops.linear_scan import linear_scan
from slotbench.ops.selective_scan import selective_scan
from slotbench.ops.ssd import ssd

__all__ = [
    "KernelError",
    "available_kernels",
    "causal_conv1d",
    "chosen_kernels",
    "group_norm_activation",
    "linear_scan",
    "selective_scan",
    "set_kernel",
    "split_channels",
    "ssd",
]
