"""The GPU day of `slotbench bench gpu`: everything that wants a GPU, in stages that can be stopped and resumed."""
