"""Fills the tables of components from the registry when the documentation is built."""

from __future__ import annotations

import re
from typing import Any

from slotbench import registry


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replaces `<!-- components: KIND -->` by a table of the components of that kind."""
    return re.sub(r"<!-- components: (\w+) -->", lambda match: _table(match[1]), markdown)


def _table(kind: str) -> str:
    rows = [f"| `{entry.name}` | {entry.summary} |" for entry in registry.entries(kind)]
    return "\n".join(["| name | what it is |", "| --- | --- |", *rows]) if rows else "None in this release."
