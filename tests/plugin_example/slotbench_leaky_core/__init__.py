"""A stranger's package: one core for slotbench, found through its entry point."""
