"""Where the files and scores of an evaluation are: `validate`, `test`, `predict`."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from slotbench.configurations import may_be_path, shortest_keys
from slotbench.runs.folder import RunFolder

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

__all__ = ["EvaluationPlace", "stage_of_test"]


def stage_of_test(settings: Mapping[str, str | None]) -> str:
    """Under which name a test with other settings has its scores, beside those of others; files give none.

    >>> stage_of_test({}), stage_of_test({"model.rollout.horizon": "264", "model.metric_weights.fvd": "i3d.pt"})
    ('test', 'test@horizon=264')
    """
    told = {key: value for key, value in settings.items() if not may_be_path(key.rpartition(".")[2], str(value))}
    names = shortest_keys(list(told))
    return "@".join(["test", *[",".join(f"{names[key]}={value}" for key, value in told.items())] * bool(told)])


class EvaluationPlace:
    """`RUN/media/<subcommand>-<date>-<time>/` for pictures and arrays, and `record` beside `media`, once entered."""

    media: Path
    record: Path

    def __init__(self, folder: RunFolder, subcommand: str | None = None) -> None:
        self.run, self._media, self._subcommand = folder.path, folder.media, subcommand
        self._entered = False

    def enter(self, trainer: Trainer) -> None:
        """Makes the folder, the same for all processes; called again, it does nothing."""
        if not self._entered:
            name = trainer.strategy.broadcast(self._make(trainer) if trainer.is_global_zero else "")
            self.media, self.record, self._entered = self._media / name, self.run / f"{name}.json", True

    def leave(self) -> None:
        """Removes the folder if nothing was written to it; the next evaluation gets another one."""
        if self._entered:
            with contextlib.suppress(OSError):  # it holds something
                self.media.rmdir()
            self._entered = False

    def _make(self, trainer: Trainer) -> str:
        stem = f"{self._subcommand or trainer.state.fn.value}-{datetime.now():%Y%m%d-%H%M%S}"  # type: ignore[union-attr]
        for name in (stem, *(f"{stem}-{number}" for number in range(2, 100))):
            if (self.run / f"{name}.json").exists():
                continue
            with contextlib.suppress(FileExistsError):  # the process that makes the folder has the name
                (self._media / name).mkdir(parents=True)
                return name
        raise FileExistsError(self._media / stem)
