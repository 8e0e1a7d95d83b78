"""Writes down what `validate`, `test` or `predict` found."""

from __future__ import annotations

import importlib.metadata
import time
from datetime import datetime

from lightning.pytorch import Callback, LightningModule, Trainer
from rich.console import Console

from slotbench.callbacks.end_report import score_table
from slotbench.callbacks.evaluation_place import EvaluationPlace
from slotbench.callbacks.reporting import headline_records
from slotbench.ops import chosen_kernels
from slotbench.runs.folder import RunFolder, dump_json, write_atomically
from slotbench.text import one_line

__all__ = ["EvaluationRecord"]

_MOST_LISTED = 8


class EvaluationRecord(Callback):
    """Writes all metrics, and what was evaluated, to RUN/<subcommand>-<date>-<time>.json, and prints the scores.

    Scores that could not be computed are listed under "unavailable", each with what it needs. The pictures are named
    after them, or their folder if they are many; it has the name of the record.

    Args:
        folder: the run that is evaluated.
        subcommand: "validate", "test" or "predict".
        console: where to print; standard output by default.
        place: where the evaluation writes; one of its own if absent.
    """

    def __init__(
        self,
        folder: RunFolder,
        subcommand: str,
        console: Console | None = None,
        place: EvaluationPlace | None = None,
    ) -> None:
        self._folder = folder
        self._place = place or EvaluationPlace(folder, subcommand)
        self._subcommand = subcommand
        self._console = console
        self._started = time.monotonic()
        # now: when the evaluation is over, its scores must not be lost with a record that cannot be read
        self._run: str = folder.info.get("id", folder.path.name)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Starts the clock."""
        self._place.enter(trainer)
        self._started = time.monotonic()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leaves no empty folder behind."""
        if trainer.is_global_zero:
            self._place.leave()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Writes the file; it does not appear if the evaluation failed."""
        if trainer.is_global_zero:
            self._write(trainer, pl_module)
        self._place.leave()

    def _write(self, trainer: Trainer, pl_module: LightningModule) -> None:
        headlines = headline_records(pl_module)
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items() if value.numel() == 1}
        record = {
            "subcommand": self._subcommand,
            "run": self._run,
            "created": datetime.now().astimezone().isoformat(timespec="seconds"),
            "checkpoint": trainer.ckpt_path,
            "metrics": metrics,
            "headlines": headlines,
            "unavailable": {
                headline["metric"]: headline["needs"]
                for headline in headlines
                if headline.get("needs") and headline["metric"] not in metrics
            },
            "seconds": round(time.monotonic() - self._started, 1),
            "device": str(trainer.strategy.root_device),
            "kernels": chosen_kernels(),
            "slotbench": importlib.metadata.version("slotbench"),
        }
        path, media = self._place.record, self._place.media
        console = self._console or Console()
        try:
            write_atomically(path, dump_json(record, indent=2))
        finally:
            # what a full disk does not take is at least seen
            if headlines and metrics:
                console.print(score_table(headlines, metrics))
        kinds = (".png", ".gif", ".npz")
        pictures = [str(path) for suffix in kinds for path in sorted(media.glob(f"*{suffix}"))]
        if len(pictures) > _MOST_LISTED:
            pictures = [f"{media}: {len(pictures)} pictures, videos and arrays"]
        for written in [str(path), *pictures]:
            console.print(one_line(written), highlight=False, soft_wrap=True, markup=False)
