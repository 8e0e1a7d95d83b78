"""A gate and the RMSNorm after it as one operation."""

from slotbench.ops.gated_norm.norm import gated_rms_norm

__all__ = ["gated_rms_norm"]
