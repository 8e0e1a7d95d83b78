"""Parts of `cli_components` that are in no registry: a test file that imports them changes nothing for the others."""

from __future__ import annotations

import sys

from slotbench import registry

_listed = dict(registry._registered)
registry._registered.clear()
from cli_components import Grey, TinyData, TinyTask  # noqa: E402  whatever else is registered is not in its way

registry._registered.clear()
registry._registered.update(_listed)
# who names the file of components gets them registered
sys.modules.pop("cli_components")

__all__ = ["Grey", "TinyData", "TinyTask"]
