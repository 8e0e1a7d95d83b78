"""Parallelizable spatiotemporal binder, its layers, and what its ablations put in their places."""

from slotbench_plugins.cores.psb.block import DecoupledInteraction, JointInteraction, PSBBlock
from slotbench_plugins.cores.psb.psb import PSB
from slotbench_plugins.cores.psb.softmax_attention import SoftmaxAttention
from slotbench_plugins.cores.psb.time_bias import BucketTimeBias, RelativeTimeBias

__all__ = [
    "PSB",
    "BucketTimeBias",
    "DecoupledInteraction",
    "JointInteraction",
    "PSBBlock",
    "RelativeTimeBias",
    "SoftmaxAttention",
]
