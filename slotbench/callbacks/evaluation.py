"""The record of one evaluation (`validate`, `test`, `predict`), in a file and a folder of its own."""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from rich.console import Console

from slotbench.callbacks.reporting import headline_records
from slotbench.io import dump_json, write_atomically
from slotbench.ops import chosen_kernels
from slotbench.runs.evaluation_place import EvaluationPlace
from slotbench.runs.folder import RunFolder
from slotbench.runs.headlines import score_table

__all__ = ["EvaluationRecord"]


class EvaluationRecord(Callback):
    """Writes all metrics, and what was evaluated, to RUN/<subcommand>-<date>-<time>.json, and prints the scores.

    Scores that could not be computed are listed under "unavailable", each with what it needs. With `half`, weights are
    rounded to 16 bits first, as an exported model may have them. `settings` are those that differ from the run's.
    """

    def __init__(
        self,
        folder: RunFolder,
        subcommand: str,
        console: Console | None = None,
        place: EvaluationPlace | None = None,
        half: bool = False,
        settings: Mapping[str, str | None] = {},
    ) -> None:
        self._folder, self._subcommand, self._half, self._settings = folder, subcommand, half, dict(settings)
        self._place = place or EvaluationPlace(folder, subcommand)
        self._console = console or Console()
        self._started = time.monotonic()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._place.enter(trainer)
        self._started = time.monotonic()

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._half:
            with torch.no_grad():
                for tensor in (*pl_module.parameters(), *pl_module.buffers()):
                    if tensor.dtype == torch.float32:
                        tensor.copy_(tensor.half())

    on_validation_start = on_predict_start = on_test_start

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        if trainer.is_global_zero:
            self._place.leave()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Writes the file; it does not appear if the evaluation failed."""
        if trainer.is_global_zero:
            self._write(trainer, pl_module)
        self._place.leave()

    def _write(self, trainer: Trainer, module: LightningModule) -> None:
        headlines = headline_records(module)
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items() if value.numel() == 1}
        needs = {one["metric"]: one["needs"] for one in headlines if one.get("needs") and one["metric"] not in metrics}
        record: dict[str, Any] = {
            "subcommand": self._subcommand,
            "run": self._folder.info.get("id", self._folder.path.name),
            "created": datetime.now().astimezone().isoformat(timespec="seconds"),
            "checkpoint": trainer.ckpt_path,
            "settings": self._settings,
            "eval_window": getattr(module, "eval_window", None),  # the run's own where no setting has another
            "weights": "float16" if self._half else "float32",
            "metrics": metrics,
            "headlines": headlines,
            "unavailable": needs,
            "seconds": round(time.monotonic() - self._started, 1),
            "device": str(trainer.strategy.root_device),
            "kernels": chosen_kernels(),
            "slotbench": importlib.metadata.version("slotbench"),
        }
        if headlines and metrics:
            self._console.print(score_table(headlines, metrics))
        write_atomically(self._place.record, dump_json(record, indent=2))
        media = self._place.media
        shown = [str(one) for suffix in ("png", "gif", "npz") for one in sorted(media.glob(f"*.{suffix}"))]
        for written in (self._place.record, *(shown if len(shown) <= 8 else [f"{media}: {len(shown)} files"])):
            self._console.print(str(written), highlight=False, soft_wrap=True, markup=False)
