"""What `slotbench bench` measures: cores against the length of clips, and the kernels of `slotbench.ops`."""
