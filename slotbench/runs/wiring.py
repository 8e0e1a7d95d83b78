"""What the command line plugs into a trainer so that a run is recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers.logger import Logger

from slotbench.runs.folder import RunFolder
from slotbench.runs.logger import RunFolderLogger

__all__ = ["evaluation_parts", "run_parts"]


def run_parts(
    folder: RunFolder, *, wandb: str, wandb_project: str, config: dict[str, Any]
) -> tuple[list[Logger], list[Callback]]:
    """Loggers and callbacks of a training run."""
    return [RunFolderLogger(folder)], []


def evaluation_parts(run_path: str | Path, subcommand: str) -> tuple[list[Logger], list[Callback]]:
    """Loggers and callbacks for `validate`, `test` and `predict` on a run that exists."""
    RunFolder.open(run_path)
    return [], []
