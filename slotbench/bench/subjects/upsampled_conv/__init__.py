"""The decoders of the RIM thesis: convolutions of an upsampled image, or of the small one, forward and backward."""

from slotbench.bench.subjects.upsampled_conv.decoders import SUBJECT

__all__ = ["SUBJECT"]
