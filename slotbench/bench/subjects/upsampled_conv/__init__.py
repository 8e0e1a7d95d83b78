"""The convolutions of the RIM thesis' decoders: of an upsampled image, or of the small one, forward and backward."""

from slotbench.bench.subjects.upsampled_conv.layers import SUBJECT

__all__ = ["SUBJECT"]
