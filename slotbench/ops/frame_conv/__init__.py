"""Convolutions of a few frames whose weights stay as they are: norm, activation, convolution and residual in one."""

from slotbench.ops.frame_conv.prepared import NormBefore, PreparedConv

__all__ = ["NormBefore", "PreparedConv"]
