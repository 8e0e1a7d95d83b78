"""Evaluation records of a run's masks, as files in its folder: one for each kind of masks of an evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.trainer.states import TrainerFn

from slotbench.callbacks.media import clip_title
from slotbench.interfaces import MaskScores, Reporter
from slotbench.runs.evaluation_record import mask_record, record_file, write_record

__all__ = ["write_mask_records"]


def write_mask_records(
    trainer: Trainer,
    module: LightningModule,
    folder: Path,
    evaluation: str,
    checkpoint: str | None = None,
    step: int | None = None,
) -> list[Path]:
    """Writes the mask scores of the task's last evaluation to `FOLDER/EVALUATION-SOURCE.json`; returns the files.

    Args:
        trainer: whose data was evaluated.
        module: the task; one that scores no masks writes nothing.
        folder: of the run.
        evaluation: its name, such as "test-20260131-120000", or "val" for the last validation of a training.
        checkpoint: whose weights they are, if it is one.
        step: optimiser steps that these weights have had; those of the trainer if absent.
    """
    if not isinstance(module, Reporter):
        return []
    split = "test" if trainer.state.fn == TrainerFn.TESTING else "val"
    dataset = _dataset(trainer, split)
    more = {"run": folder.resolve().name, "step": trainer.global_step if step is None else step} | (
        {} if checkpoint is None else {"checkpoint": checkpoint}
    )
    written = []
    for found in module.mask_scores():
        path = record_file(folder, evaluation, found.source)
        write_record(path, _record(found, trainer, dataset, split, more))
        written.append(path)
    return written


def _record(found: MaskScores, trainer: Trainer, dataset: Any, split: str, more: dict[str, Any]) -> dict[str, Any]:
    data = getattr(trainer, "datamodule", None)
    names = [clip_title(dataset, number) for number in found.clips]
    return mask_record(
        found,
        names,
        {
            "name": type(dataset if data is None else data).__name__,
            "version": str(getattr(data, "version", "unknown")),
            "split": split,
            **({"masks": "pseudo masks, found by a model"} if getattr(data, "pseudo_masks", False) else {}),
        },
        clips={"there": max(len(names), len(dataset) if hasattr(dataset, "__len__") else 0)},
        more=more,
    )


def _dataset(trainer: Trainer, split: str) -> Any:
    """The clips of the split, of which there is one loader."""
    loaders: Any = trainer.test_dataloaders if split == "test" else trainer.val_dataloaders
    if isinstance(loaders, list | tuple):
        loaders = loaders[0] if loaders else None
    return getattr(loaders, "dataset", None)
