"""Tasks, which wire the parts together for one question, by name: `from slotbench.tasks import SlotAutoencoding`.

Importing the package imports no module, and so no torch: a name does, when it is asked for. Configurations name a
task's own module.
"""

from __future__ import annotations

from slotbench.components import names_of

__getattr__, __dir__ = names_of("tasks", refuse=False)
