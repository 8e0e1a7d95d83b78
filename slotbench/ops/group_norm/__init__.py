"""GroupNorm and the activation after it as one operation."""

from slotbench.ops.group_norm.activation import Activation, group_norm_activation

__all__ = ["Activation", "group_norm_activation"]
