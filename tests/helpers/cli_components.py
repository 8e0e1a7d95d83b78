"""A single-file plugin with the smallest components there can be, and some that draw random numbers wherever they can.

The tests of the command line train the first, and those of resuming a run the second: `DrawingTask` on `NoiseData`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import Dataset

from slotbench.data.base import ClipDataset, LoaderOptions, SlotDataModule, Split, generator_for
from slotbench.interfaces import (
    CoreOutput,
    DataSpec,
    Decoded,
    Decoder,
    Encoder,
    Headline,
    SlotSpec,
    TemporalCore,
    TokenSpec,
    VideoBatch,
    VideoSpec,
)
from slotbench.registry import register
from slotbench.tasks.optimisation import WarmupCosine
from slotbench.tasks.slot_task import SlotTask


@register("encoders")
class TinyEncoder(Encoder):
    """Averages the pixels of a step."""

    def __init__(self, spec: VideoSpec, dim: int = 4) -> None:
        super().__init__()
        if dim < 1:
            raise ValueError(f"dim is {dim}; expected 1 or more")
        self.token_spec = TokenSpec(dim=dim, num_tokens=1)
        self.linear = nn.Linear(spec.channels, dim)

    def forward(self, batch):
        return self.linear(batch.pixels.mean(dim=(-1, -2)))[:, :, None]


class TinyBase(TemporalCore):
    def __init__(self, spec: TokenSpec, num_slots: int, dim: int) -> None:
        super().__init__()
        self.slot_spec = SlotSpec(num_slots=num_slots, dim=dim)
        self.linear = nn.Linear(spec.dim, dim)

    def forward(self, tokens, state=None):
        slots = self.linear(tokens).expand(-1, -1, self.slot_spec.num_slots, -1)
        return CoreOutput(slots, None, None)


@register("cores")
class TinyCore(TinyBase):
    """One linear layer for every slot."""

    def __init__(self, spec: TokenSpec, num_slots: int = 2, dim: int = 8, depth: int = 1) -> None:
        super().__init__(spec, num_slots, dim)
        self.depth = depth


@register("cores")
class OtherCore(TinyBase):
    """Another one, with an argument of its own."""

    def __init__(self, spec: TokenSpec, num_slots: int = 2, heads: int = 1, mode: Literal["a", "b"] = "a") -> None:
        super().__init__(spec, num_slots, 8)
        self.heads = heads


@register("cores")
class DrawingCore(TinyBase):
    """Slots that start from Gaussian noise, and dropout."""

    def __init__(self, spec: TokenSpec, num_slots: int = 2) -> None:
        super().__init__(spec, num_slots, 4)
        self.dropout = nn.Dropout(0.2)

    def forward(self, tokens, state=None):
        slots = self.dropout(super().forward(tokens).slots)
        return CoreOutput(slots + 0.1 * torch.randn(self.slot_spec.num_slots, 4), None, None)


@register("decoders")
class TinyDecoder(Decoder):
    """One linear layer to the channels, the same for every pixel."""

    def __init__(self, slots: SlotSpec, target: VideoSpec, gain: float = 1.0) -> None:
        super().__init__()
        self.target = target
        self.linear = nn.Linear(slots.dim, target.channels)

    def forward(self, slots, batch=None):
        colour = self.linear(slots.mean(dim=2))[..., None, None]
        return Decoded(colour.expand(-1, -1, -1, self.target.height, self.target.width))


@register("tasks")
class TinyTask(SlotTask):
    """Reproduces the frames."""

    def __init__(
        self,
        encoder: Callable[[VideoSpec], Encoder] = TinyEncoder,
        core: Callable[[TokenSpec], TemporalCore] = TinyCore,
        decoder: Callable[[SlotSpec, VideoSpec], Decoder] = TinyDecoder,
        optimizer: Callable[[Iterable], Optimizer] = AdamW,
        schedule: Callable[[Optimizer, int], LRScheduler] = WarmupCosine,
        init_from: str | None = None,
        data_spec: DataSpec | None = None,
    ) -> None:
        super().__init__(encoder, core, decoder, optimizer, schedule, init_from, data_spec)

    def headlines(self) -> list[Headline]:
        return [Headline("val/loss", "loss", higher_is_better=False)]

    def pictures(self, batch: VideoBatch) -> dict[str, np.ndarray]:
        return {}

    def loss(self, batch: VideoBatch) -> torch.Tensor:
        return (self.decoded(self.tracked(self.encoded(batch)).slots).reconstruction - batch.pixels).pow(2).mean()

    def training_step(self, batch, index):
        return self.loss(batch)

    def validation_step(self, batch, index):
        self.log("val/loss", self.loss(batch), batch_size=len(batch))

    test_step = validation_step

    def predict_step(self, batch, index):
        return self.loss(batch)


@register("tasks")
class DrawingTask(TinyTask):
    """Reproduces the frames, with noise from numpy and torch.

    Not from Python's own generator: the type checks that these tests run under draw from it, as often as they like.
    The environment says what is to happen: SIGNAL_AT="6:15" sends this process signal 15 in its seventh step, PAUSE a
    pause per step in seconds, NAN_AT="6" a loss that is not a number in the seventh step (of
    the process of rank 1 alone if it is "6:1").
    """

    monitor = ("val/loss", "min")

    def __init__(
        self,
        encoder: Callable[[VideoSpec], Encoder] = TinyEncoder,
        core: Callable[[TokenSpec], TemporalCore] = DrawingCore,
        decoder: Callable[[SlotSpec, VideoSpec], Decoder] = TinyDecoder,
        optimizer: Callable[[Iterable], Optimizer] = AdamW,
        init_from: str | None = None,
        data_spec: DataSpec | None = None,
    ) -> None:
        super().__init__(encoder, core, decoder, optimizer, init_from=init_from, data_spec=data_spec)

    def loss(self, batch: VideoBatch) -> torch.Tensor:
        noise = np.random.rand() + torch.rand(()).item()  # noqa: NPY002
        return (
            (self.decoded(self.tracked(self.encoded(batch)).slots).reconstruction - batch.pixels - noise).pow(2).mean()
        )

    def training_step(self, batch, index):
        at, _, number = os.environ.get("SIGNAL_AT", "").partition(":")
        if number and self.global_step == int(at):
            signal.raise_signal(int(number))
        if pause := os.environ.get("PAUSE"):
            time.sleep(float(pause))
        loss = self.loss(batch)
        at, _, rank = os.environ.get("NAN_AT", "").partition(":")
        if at and self.global_step == int(at) and rank in ("", str(self.global_rank)):
            loss = loss * float("nan")
        self.log("train/loss", loss)
        return loss


@register("tasks")
class ScoredTask(DrawingTask):
    """Has a baseline, known after the first validation, and a score that is not defined on the data."""

    baselines: ClassVar[dict[str, float]] = {}

    def headlines(self) -> list[Headline]:
        undefined = Headline("val/undefined", "undefined", {"nothing": 0.5})
        return [Headline("val/loss", "loss", self.baselines, higher_is_better=False), undefined]

    def validation_step(self, batch, index):
        super().validation_step(batch, index)
        self.log("val/undefined", float("nan"), batch_size=len(batch))
        self.baselines = {"always grey": 0.25}

    def test_step(self, batch, index):
        self.log("test/loss", self.loss(batch), batch_size=len(batch))


class Grey(Dataset):
    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> VideoBatch:
        frames = torch.full((1, 2, 3, self.size, self.size), index / 4)
        return VideoBatch(frames=frames, time=torch.arange(2)[None])


@register("datasets")
class TinyData(SlotDataModule):
    """Four grey clips."""

    def __init__(self, loader: LoaderOptions = LoaderOptions(batch_size=2), size: int = 4) -> None:
        super().__init__(loader)
        self.size = size

    @property
    def spec(self) -> DataSpec:
        return DataSpec(VideoSpec(3, self.size, self.size), VideoSpec(3, self.size, self.size))

    def dataset(self, split: Split) -> Dataset:
        return Grey(self.size)


class Noise(ClipDataset):
    def __init__(self, split: Split) -> None:
        super().__init__(10 if split == "train" else 4)
        self.split = split

    def clips(self, indices):
        frames = [generator_for(0, self.split, index).random((2, 3, 4, 4), dtype=np.float32) for index in indices]
        return VideoBatch(frames=torch.from_numpy(np.stack(frames)), time=torch.arange(2).expand(len(indices), 2))


@register("datasets")
class NoiseData(TinyData):
    """Ten clips of noise, five batches."""

    def __init__(self, loader: LoaderOptions = LoaderOptions(batch_size=2, val_batch_size=2)) -> None:
        super().__init__(loader)

    def dataset(self, split: Split) -> Dataset:
        return Noise(split)
