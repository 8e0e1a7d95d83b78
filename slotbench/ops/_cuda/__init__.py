"""Kernels in Triton, which torch's CUDA wheels bring along, and the trial of every kernel for CUDA before its use."""
