"""Its folder is where the tests below it find the writers of files; decoded movies go to a folder of the tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _movies_are_kept_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SLOTBENCH_CACHE", os.environ.get("SLOTBENCH_CACHE") or str(tmp_path_factory.mktemp("kept")))
        yield
