"""Terms of the loss, by name: `from slotbench.objectives import SlotContrast`; each is imported on demand."""

from __future__ import annotations

from slotbench.components import names_of

__getattr__, __dir__ = names_of("objectives", refuse=False)
