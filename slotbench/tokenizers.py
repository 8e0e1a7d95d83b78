"""The installed tokenizers, `from slotbench.tokenizers import NAME`; each is imported when it is asked for."""

from __future__ import annotations

from slotbench.components import names_of

__getattr__, __dir__ = names_of("tokenizers")
