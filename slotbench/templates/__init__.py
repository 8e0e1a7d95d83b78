"""The files that `slotbench new` writes; `@name@` in them is replaced."""
