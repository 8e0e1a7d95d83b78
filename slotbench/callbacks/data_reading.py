"""Callback that prints the report on the user's own files, once in a run."""

from __future__ import annotations

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback

__all__ = ["DataReading"]

_SPLITS = {"fit": ("train", "val"), "validate": ("val",), "test": ("test",), "predict": ("test",)}


class DataReading(Callback):
    """Prints the data's report on its files (`SlotDataModule.reading`): videos found, what was left out and why.

    The process of rank 0 does, at the beginning of the first stage; nothing is stored.
    """

    def __init__(self) -> None:
        self._said = False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Prints."""
        reading = getattr(getattr(trainer, "datamodule", None), "reading", None)
        if reading is None or self._said or not trainer.is_global_zero:
            return
        self._said = True
        words = reading(_SPLITS[stage])
        if words is not None:
            print(words)
