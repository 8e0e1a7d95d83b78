"""Makes the tiny task of tests/runs importable here."""

import sys
from pathlib import Path

import pytest

from slotbench.runs.folder import RunFolder

sys.path.insert(0, str(Path(__file__).parents[1] / "runs"))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "runs", "tiny")
