"""Stored videos of the public multi-object tracking sets, with their masks of run lengths."""
