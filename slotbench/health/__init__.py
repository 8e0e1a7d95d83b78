"""The checks of `slotbench doctor`. Nothing here imports torch before a check runs that needs it."""
