"""Runs that train in a moment: their components, configurations, and fixtures that put the process back afterwards."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from slotbench import registry

__all__ = [
    "COMPONENTS",
    "components_in",
    "no_curves",
    "tiny_components",
    "tiny_config",
    "workspace",
]

COMPONENTS = Path(__file__).with_name("cli_components.py")
"""A plugin file with the smallest components there can be, and some that draw random numbers."""


def tiny_config() -> dict:
    return {
        "model": {
            "class_path": "TinyTask",
            "init_args": {
                "encoder": {"class_path": "TinyEncoder"},
                "core": {"class_path": "TinyCore", "init_args": {"num_slots": 3, "depth": 2}},
                "decoder": {"class_path": "TinyDecoder"},
            },
        },
        "data": {"class_path": "TinyData"},
        "trainer": {"max_epochs": 1, "accelerator": "cpu", "enable_progress_bar": False},
    }


@contextlib.contextmanager
def components_in(folder: Path) -> Iterator[Path]:
    """A working directory, the components registered, and everything put back afterwards."""
    with _registry_put_back(), pytest.MonkeyPatch.context() as patch:
        registry.load_file(COMPONENTS)
        patch.chdir(folder)
        # the command sets it, for processes that it starts
        patch.setenv("SLOTBENCH_RUN_DIR", "")
        yield folder


@contextlib.contextmanager
def _registry_put_back() -> Iterator[None]:
    registered = dict(registry._registered)
    yield
    registry._registered.clear()
    registry._registered.update(registered)
    sys.modules.pop(COMPONENTS.stem, None)


@pytest.fixture(scope="module")
def tiny_components() -> Iterator[Path]:
    """The file of the tiny components, for `--plugin`; they leave the registry with the last test of the module."""
    with _registry_put_back():
        yield COMPONENTS


@pytest.fixture(scope="module", autouse=True)
def no_curves() -> Iterator[None]:
    """Drawing its curves is a third of a training of two steps; tests/callbacks looks at them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("slotbench.callbacks.curves.draw_curves", lambda folder: [])
        yield


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
