"""Where one evaluation writes: a record and a folder of its own, so that none overwrites or mixes with another."""

from __future__ import annotations

import contextlib
from datetime import datetime
from pathlib import Path

from lightning.pytorch import Trainer

from slotbench.runs.folder import RunFolder

__all__ = ["EvaluationPlace"]


class EvaluationPlace:
    """`RUN/media/<subcommand>-<date>-<time>/` for pictures and arrays, and the record of the same name beside `media`.

    Args:
        folder: the run that is evaluated.
        subcommand: "validate", "test" or "predict"; what the trainer is doing if absent.
    """

    def __init__(self, folder: RunFolder, subcommand: str | None = None) -> None:
        self._folder = folder
        self._subcommand = subcommand
        self._name: str | None = None

    @property
    def run(self) -> Path:
        """The run."""
        return self._folder.path

    @property
    def media(self) -> Path:
        """The folder of this evaluation."""
        assert self._name is not None  # once the trainer has begun
        return self._folder.media / self._name

    @property
    def record(self) -> Path:
        """The file of this evaluation's scores."""
        assert self._name is not None
        return self._folder.path / f"{self._name}.json"

    def enter(self, trainer: Trainer) -> None:
        """Makes the folder, the same for all processes; called again, it does nothing."""
        if self._name is not None:
            return
        if self._subcommand is None:
            assert trainer.state.fn is not None
            self._subcommand = trainer.state.fn.value
        made = self._make() if trainer.is_global_zero else None
        self._name = trainer.strategy.broadcast(made)

    def leave(self) -> None:
        """Removes the folder if nothing was written to it; the next evaluation gets another one."""
        if self._name is not None:
            with contextlib.suppress(OSError):  # it holds something
                self.media.rmdir()
            self._name = None

    def _make(self) -> str:
        stem, count = f"{self._subcommand}-{datetime.now():%Y%m%d-%H%M%S}", 1
        name = stem
        while True:
            try:
                # whoever makes the folder has the name
                (self._folder.media / name).mkdir(parents=True, exist_ok=False)
            except FileExistsError:
                pass
            else:
                if not (self._folder.path / f"{name}.json").exists():
                    return name
                (self._folder.media / name).rmdir()
            count += 1
            name = f"{stem}-{count}"
