"""A third-party package: one core for slotbench, found through its entry point."""
