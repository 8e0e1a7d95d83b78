"""One cell of an autoregressive transformer, all layers at once, for sampling the codes of few frames on a CPU."""

from slotbench.ops.code_sampling.cell import CellDecoder, CellWeights, can_decode

__all__ = ["CellDecoder", "CellWeights", "can_decode"]
