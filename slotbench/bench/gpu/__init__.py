"""What `slotbench bench gpu` does: one run over everything that wants a GPU, in stages that can be stopped and resumed.

The driver (`driver`) starts each stage (`plan.STAGES`) as a process of its own with a time limit, and imports no torch
itself: it holds no memory on the device, and outlives whatever a kernel does to it. A stage writes what it has after
every piece of work (`records`). All end in one page (`report`).
"""
