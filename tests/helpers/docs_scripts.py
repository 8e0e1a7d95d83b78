"""The scripts of docs/scripts as modules, for the tests of them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

SCRIPTS = Path(__file__).parents[2] / "docs" / "scripts"


@contextmanager
def docs_script(name: str) -> Iterator[ModuleType]:
    """A script by its name, which finds its neighbours; afterwards none of them is imported any more."""
    sys.path.insert(0, str(SCRIPTS))
    try:
        yield importlib.import_module(name)
    finally:
        sys.path.remove(str(SCRIPTS))
        for path in SCRIPTS.glob("*.py"):
            sys.modules.pop(path.stem, None)
