"""Clips of a data set for a trained task: batch by batch, as its own evaluation reads and samples them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from slotbench.interfaces import Predictor, Reasoner, Segmenter, VideoBatch

__all__ = ["batches_of", "for_each_batch"]


def batches_of(data: Any, split: str, device: torch.device) -> Iterator[VideoBatch]:
    """Batches of a split of a `SlotDataModule` on a device."""
    loader = {"train": data.train_dataloader, "val": data.val_dataloader, "test": data.test_dataloader}[split]()
    for batch in loader:
        yield data.on_after_batch_transfer(batch.to(device), 0)


def for_each_batch(
    task: Predictor | Reasoner | Segmenter,
    batches: Iterable[VideoBatch],
    num_clips: int,
    step: Callable[[VideoBatch], None],
    report: Callable[[int], None] = lambda done: None,
) -> None:
    """Calls a function with the first clips, without gradient and with the samples that evaluation draws."""
    done = 0
    for number, batch in enumerate(batches):
        batch = batch.map(lambda value: value[: num_clips - done])  # noqa: B023  called at once
        with torch.no_grad(), task.deterministic_sampling(batch, number):
            step(batch)
        done += len(batch)
        report(done)
        if done >= num_clips:
            break
