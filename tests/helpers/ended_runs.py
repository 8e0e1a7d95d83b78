"""Runs that are trained to their end, damaged, and resumed: the fixtures of the tests of both."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tiny_configs import components_in

from slotbench.cli import run
from slotbench.runs.folder import RunFolder

__all__ = ["copy", "fit", "here", "interrupt_before_the_result", "place", "validated", "whole"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory with the configuration `c.yaml`, and the components registered."""
    folder = tmp_path_factory.mktemp("ended")
    trainer = {
        "accelerator": "cpu",
        "enable_progress_bar": False,
        "log_every_n_steps": 1,
        "max_steps": 6,
        "max_epochs": -1,
        "val_check_interval": 4,
        "check_val_every_n_epoch": None,
    }
    config = {"model": {"class_path": "ScoredTask"}, "data": {"class_path": "NoiseData"}, "trainer": trainer}
    (folder / "c.yaml").write_text(yaml.safe_dump(config))
    with components_in(folder):
        yield folder


@pytest.fixture
def here(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test is in that directory, wherever the one before it went."""
    monkeypatch.chdir(place)


def fit(folder: str, *more: str) -> int:
    return run(["fit", "--config", "c.yaml", "--run_dir", folder, *more])


def validated(folder: str) -> list[int]:
    """The steps after which there was a validation."""
    return [row["step"] + 1 for row in RunFolder(Path(folder)).history() if "val/loss" in row]


@pytest.fixture(scope="module")
def whole(place: Path) -> str:
    assert fit("whole") == 0
    return "whole"


def copy(run_folder: str, name: str) -> str:
    shutil.copytree(run_folder, name)
    return name


def interrupt_before_the_result(folder: str) -> None:
    """What a kill after the last checkpoint, and before anything else, leaves."""
    opened = RunFolder.open(folder)
    (opened.path / "result.json").unlink()
    for picture in opened.media.glob("*.png"):
        picture.unlink()
    opened.update(state="running", host="another machine")
