"""Matching cores by the number of their parameters: what `slotbench match` does."""
