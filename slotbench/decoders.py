"""The installed decoders, `from slotbench.decoders import NAME`; each is imported when it is asked for."""

from __future__ import annotations

from slotbench.components import names_of

__getattr__, __dir__ = names_of("decoders")
