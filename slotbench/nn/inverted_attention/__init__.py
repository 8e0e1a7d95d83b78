"""Attention in which slots compete for tokens, on ways that all agree: plain, projected, streamed, summed over time."""

from slotbench.nn.inverted_attention.layer import InvertedAttention, keys_cost_more
from slotbench.nn.inverted_attention.memory import KeyValueMemory, Memory, StepSums, TokenMemory

__all__ = ["InvertedAttention", "KeyValueMemory", "Memory", "StepSums", "TokenMemory", "keys_cost_more"]
