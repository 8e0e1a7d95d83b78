"""Slots that read tokens: a key and a value of every token against none, forward and backward."""

from slotbench.bench.subjects.cross_attention.reading import SUBJECT

__all__ = ["SUBJECT"]
