"""What `slotbench doctor` looks at. Nothing here imports torch before a check is run that needs it."""
