"""The scripts of docs/scripts as modules, for the tests of them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

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


def loaded_tables() -> ModuleType:
    """docs/tables.py, which is no module."""
    spec = importlib.util.spec_from_file_location("tables", SCRIPTS.parent / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def assert_tables_are_made_again(page: str, runs_dir: Path) -> None:
    """The text of a page is what docs/tables.py makes of it once its tables are emptied."""
    tables = loaded_tables()
    emptied = tables.TABLE.sub(lambda match: f"{match[1]}nothing\n{match[5]}", page)
    assert emptied != page
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(SCRIPTS.parents[1])
        assert tables.remade(emptied, str(runs_dir)) == page
