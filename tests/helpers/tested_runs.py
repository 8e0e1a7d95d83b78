"""A run that is trained and tested by command, for tests of what it leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from slotbench.cli import run

__all__ = ["train_and_test"]


def train_and_test(folder: Path, experiment: dict[str, Any]) -> None:
    """Trains an experiment on the data of `folder/videos` and tests it; the run is `folder/run`."""
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump(experiment))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLOTBENCH_RUN_DIR", "")
        data = ["--data.path", str(folder / "videos"), "--run_dir", str(folder / "run")]
        assert run(["fit", "--config", str(path), *data]) == 0
        assert run(["test", str(folder / "run")]) == 0
