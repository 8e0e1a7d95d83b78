"""The codes of a frame sampled one by one: kept keys and values against a pass over all codes so far for each."""

from slotbench.bench.subjects.code_sampling.sampling import SUBJECT

__all__ = ["SUBJECT"]
