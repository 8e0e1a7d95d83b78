"""Attention in which slots compete for tokens: one op, a readable reference, and faster kernels chosen by size."""

from slotbench.ops.inverted_attention.attention import (
    Attended,
    cumulative_attention,
    inverted_attention,
    keys_cost_more,
    read_frames,
    read_tokens,
    supports_cumulative,
)
from slotbench.ops.inverted_attention.memory import (
    AttentionMaps,
    FrameMemory,
    KeyValueMemory,
    Memory,
    StepSums,
    TokenMemory,
)

__all__ = [
    "Attended",
    "AttentionMaps",
    "FrameMemory",
    "KeyValueMemory",
    "Memory",
    "StepSums",
    "TokenMemory",
    "cumulative_attention",
    "inverted_attention",
    "keys_cost_more",
    "read_frames",
    "read_tokens",
    "supports_cumulative",
]
