"""What every data set is: a `LightningDataModule` that knows its sizes before it has made a single sample."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields, replace
from typing import Any, Literal

import lightning
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from slotbench.interfaces import DataSpec, VideoBatch

__all__ = ["SlotDataModule", "Split", "collate", "generator_for", "to_unit_range"]

Split = Literal["train", "val", "test"]

_SPLITS: tuple[Split, ...] = ("train", "val", "test")


def generator_for(seed: int, split: Split, index: int) -> np.random.Generator:
    """The random generator of one sample: a pure function of its arguments, with streams that never meet across splits."""
    return np.random.default_rng(np.random.SeedSequence([seed, _SPLITS.index(split), index]))


def collate(samples: list[VideoBatch]) -> VideoBatch:
    """Joins clips, each a batch of one, into a batch."""
    first = samples[0]
    joined = {
        f.name: torch.cat([getattr(sample, f.name) for sample in samples])
        for f in fields(first)
        if isinstance(getattr(first, f.name), Tensor)
    }
    objects = {name: torch.cat([sample.objects[name] for sample in samples]) for name in first.objects}
    return replace(first, **joined, objects=objects)


def to_unit_range(batch: VideoBatch) -> VideoBatch:
    """The batch with frames of bytes 0..255 turned into floats in [0, 1]; frames that are floats already stay as they are."""
    if batch.frames.is_floating_point():
        return batch
    return replace(batch, frames=batch.frames.float() / 255)


class SlotDataModule(lightning.LightningDataModule, ABC):
    """Base of the data sets: a subclass says what its clips look like (`spec`) and hands out one `dataset` per split.

    A data set's samples are `VideoBatch`es of one clip. Samples are read in order, in training too: a simulator's samples are
    independent, so shuffling would add nothing, and a run that stopped after n batches goes on with sample n * batch_size.
    Frames travel as bytes and become floats in [0, 1] on the device.

    Args:
        batch_size: clips per training batch.
        val_batch_size: clips per batch in validation, test and prediction.
        num_workers: processes that make samples; 0 makes them in the training process, which is best for small simulated sets.
        seed: with the split and the index it determines a sample.
        train_size: clips in the training split.
        val_size: clips in the validation split.
        test_size: clips in the test split.

    Raises:
        ValueError: for sizes below 1, and for a negative seed or number of workers.
    """

    def __init__(
        self,
        batch_size: int = 16,
        val_batch_size: int = 64,
        num_workers: int = 0,
        seed: int = 0,
        train_size: int = 1_000_000,
        val_size: int = 1000,
        test_size: int = 1000,
    ) -> None:
        super().__init__()
        given = {
            "batch_size": batch_size,
            "val_batch_size": val_batch_size,
            "train_size": train_size,
            "val_size": val_size,
            "test_size": test_size,
        }
        for name, value in given.items():
            if value < 1:
                raise ValueError(f"{name} is {value}; expected 1 or more")
        for name, value in {"num_workers": num_workers, "seed": seed}.items():
            if value < 0:
                raise ValueError(f"{name} is {value}; expected 0 or more")
        self.batch_size = batch_size
        self.val_batch_size = val_batch_size
        self.num_workers = num_workers
        self.seed = seed
        self.sizes: dict[Split, int] = {"train": train_size, "val": val_size, "test": test_size}

    @property
    @abstractmethod
    def spec(self) -> DataSpec:
        """What a step of the input and of the target looks like; known as soon as the object exists."""

    @abstractmethod
    def dataset(self, split: Split) -> Dataset[VideoBatch]:
        """The clips of a split, by index."""

    def train_dataloader(self) -> DataLoader[VideoBatch]:
        """Training batches, in order of index."""
        return self._loader("train", self.batch_size)

    def val_dataloader(self) -> DataLoader[VideoBatch]:
        """Validation batches, the last one short if need be."""
        return self._loader("val", self.val_batch_size)

    def test_dataloader(self) -> DataLoader[VideoBatch]:
        """Test batches, the last one short if need be."""
        return self._loader("test", self.val_batch_size)

    def predict_dataloader(self) -> DataLoader[VideoBatch]:
        """The test batches."""
        return self.test_dataloader()

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Turns bytes into floats once they are on the device."""
        return to_unit_range(batch) if isinstance(batch, VideoBatch) else batch

    def _loader(self, split: Split, batch_size: int) -> DataLoader[VideoBatch]:
        # a worker runs torch on one thread, which DataLoader sees to
        return DataLoader(
            self.dataset(split),
            batch_size=batch_size,
            num_workers=self.num_workers,
            collate_fn=collate,
            persistent_workers=self.num_workers > 0,
            pin_memory=torch.cuda.is_available(),
        )
