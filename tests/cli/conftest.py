"""The tiny components by name, and the state of the process put back afterwards."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tiny_configs import COMPONENTS, tiny_config

from slotbench import registry


@pytest.fixture(scope="module")
def tiny_components() -> Iterator[Path]:
    """The file of the tiny components, for `--plugin`; they leave the registry with the last test of the module."""
    registered = dict(registry._registered)
    yield COMPONENTS
    registry._registered.clear()
    registry._registered.update(registered)
    sys.modules.pop("cli_components", None)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory with `tiny.yaml` in it."""
    monkeypatch.chdir(tmp_path)
    # the command sets it, for processes that it starts
    monkeypatch.setenv("SLOTBENCH_RUN_DIR", "")
    monkeypatch.delenv("SLOTBENCH_RUN_DIR")
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_config()))
    yield tmp_path
    os.environ.pop("SLOTBENCH_RUN_DIR", None)
