"""Lightning's logger interface over a run folder."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.utilities import rank_zero_only

from slotbench.runs.folder import RunFolder

__all__ = ["RunFolderLogger"]


class RunFolderLogger(Logger):
    """Writes every logging call as one line of `metrics.jsonl`: step, epoch, seconds since the start, and the values.

    Lightning's own CSVLogger rewrites its file when a new column turns up and erases it when a run is taken up again;
    here a line that was written stays. Hyper-parameters are not logged: `config.yaml` has all of them.

    Args:
        folder: the run to write into.
    """

    def __init__(self, folder: RunFolder) -> None:
        super().__init__()
        self._folder = folder
        rows = folder.history()
        # a run that goes on counts on
        before = float(rows[-1].get("seconds") or 0) if rows else 0.0
        self._start = time.monotonic() - before

    @property
    def name(self) -> str:
        """Name of the experiment."""
        return self._folder.path.parent.name

    @property
    def version(self) -> str:
        """Id of the run."""
        return self._folder.path.name

    @property
    def save_dir(self) -> str:
        """The run folder."""
        return str(self._folder.path)

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Appends one line; without a step it is that of the folder's record."""
        values: dict[str, Any] = {"epoch": None, "seconds": round(time.monotonic() - self._start, 3), **metrics}
        values["epoch"] = None if values["epoch"] is None else int(values["epoch"])
        self._folder.append(self._folder.info["step"] if step is None else step, values)

    @rank_zero_only
    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing: the complete configuration is in `config.yaml`."""
