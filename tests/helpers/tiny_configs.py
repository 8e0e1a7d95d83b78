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
    "DRAWING_COMPONENTS",
    "components_in",
    "no_curves",
    "tiny_components",
    "tiny_config",
    "workspace",
]

COMPONENTS = Path(__file__).with_name("cli_components.py")
DRAWING_COMPONENTS = Path(__file__).with_name("resume_components.py")
"""Components that draw random numbers wherever they can."""


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
    """A working directory, the drawing components registered, and everything put back afterwards."""
    registered = dict(registry._registered)
    registry.load_file(DRAWING_COMPONENTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        # the command sets it, for processes that it starts
        patch.setenv("SLOTBENCH_RUN_DIR", "")
        yield folder
    registry._registered.clear()
    registry._registered.update(registered)
    sys.modules.pop(DRAWING_COMPONENTS.stem, None)


@pytest.fixture(scope="module")
def tiny_components() -> Iterator[Path]:
    """The file of the tiny components, for `--plugin`; they leave the registry with the last test of the module."""
    registered = dict(registry._registered)
    yield COMPONENTS
    registry._registered.clear()
    registry._registered.update(registered)
    sys.modules.pop("cli_components", None)


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
