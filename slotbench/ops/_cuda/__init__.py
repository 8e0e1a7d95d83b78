"""Kernels in Triton, which torch's CUDA wheels bring along."""
