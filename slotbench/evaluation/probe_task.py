"""Probes a trained task on its own data: slots of two splits, which share no clip, are collected, fitted and scored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from slotbench.evaluation.probe_clips import Clips, MaskSource, collect
from slotbench.evaluation.probe_factors import ProbeError, choose_factors
from slotbench.evaluation.probing import ProbeReport, ProbeSettings, probe
from slotbench.interfaces import VideoBatch

__all__ = ["ClipChoice", "probe_task"]

Split = Literal["train", "val", "test"]


@dataclass(frozen=True)
class ClipChoice:
    """Which clips are looked at, and what is kept of them.

    Attributes:
        fit_split: the split whose clips the heads are fitted to.
        fit_clips: how many of them at most.
        split: the split whose clips are scored.
        clips: how many of them at most.
        masks: which masks say what a slot covers.
        min_pixels: an object with fewer visible pixels in a frame is left out of it.
        categorical: entries of the data's `objects` to read as classes, beside the known ones.
        continuous: entries to read as numbers.
        same_length: whether the clips to fit to are made as long as those that are scored, where the data set has
            `num_frames`: slots late in a clip are not those of its beginning, and training clips are often shorter.
        rows: the objects that are looked at, by their rows in the annotations; all if there are none.
    """

    fit_split: Split = "train"
    fit_clips: int = 500
    split: Split = "test"
    clips: int = 500
    masks: MaskSource = "decoder"
    min_pixels: int = 1
    categorical: tuple[str, ...] = ()
    continuous: tuple[str, ...] = ()
    same_length: bool = True
    rows: tuple[int, ...] = ()


def probe_task(
    task: nn.Module,
    data: Any,
    choice: ClipChoice,
    settings: ProbeSettings,
    say: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> ProbeReport:
    """Collects the clips and probes them.

    Args:
        task: trained, on the device where it is to compute.
        data: a `SlotDataModule`; its `num_frames` is changed where lengths are to be the same.
        choice: of the clips.
        settings: how slots are matched to objects, and what is fitted to them.
        say: is told what is being done, how far it is, and of how many (0 where that is not known).

    Raises:
        ProbeError: the task or the data cannot be probed, or the two sets of clips share some.
    """
    test = _collect(task, data, choice.split, choice.clips, choice, settings, say)
    if choice.same_length and isinstance(getattr(data, "num_frames", None), int):
        data.num_frames = test.slots.shape[1]
    fit = _collect(task, data, choice.fit_split, choice.fit_clips, choice, settings, say)
    if both := len(set(fit.fingerprints) & set(test.fingerprints)):
        raise ProbeError(
            f"{both} of the {len(test)} {choice.split} clips are also among the {choice.fit_split} clips that the "
            "heads are fitted to (a set without a test split may test on its validation split): choose another "
            "--fit-split"
        )
    factors = choose_factors(fit.labels, choice.categorical, choice.continuous)
    return probe(fit, test, factors, settings, lambda what: say(f"probing: {what}", 0, 0))


def _collect(
    task: nn.Module,
    data: Any,
    split: Split,
    num_clips: int,
    choice: ClipChoice,
    settings: ProbeSettings,
    say: Callable[[str, int, int], None],
) -> Clips:
    loader = {"train": data.train_dataloader, "val": data.val_dataloader, "test": data.test_dataloader}[split]()
    device = next((weight.device for weight in task.parameters()), torch.device("cpu"))

    def batches() -> Iterator[VideoBatch]:
        for batch in loader:
            yield data.on_after_batch_transfer(batch.to(device), 0)

    return collect(
        task,
        batches(),
        num_clips,
        # a decoder without masks can still be matched by position
        masks=choice.masks if settings.match == "masks" else None,
        min_pixels=choice.min_pixels,
        names=[*choice.categorical, *choice.continuous],
        rows=choice.rows,
        report=lambda done: say(f"slots of {split} clips", done, num_clips),
    )
