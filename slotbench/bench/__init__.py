"""What `slotbench bench` measures, each measurement in a process of its own."""
