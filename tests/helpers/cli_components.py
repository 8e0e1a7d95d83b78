"""A single-file plugin with the smallest components there can be, for the tests of the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import numpy as np
import torch
from torch import nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import Dataset

from slotbench.data.base import LoaderOptions, SlotDataModule, Split
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
        return self.linear(batch.frames.mean(dim=(-1, -2)))[:, :, None]


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
        return (self.decoder(self.core(self.encoder(batch)).slots).reconstruction - batch.frames).pow(2).mean()

    def training_step(self, batch, index):
        return self.loss(batch)

    def validation_step(self, batch, index):
        self.log("val/loss", self.loss(batch), batch_size=len(batch))

    test_step = validation_step

    def predict_step(self, batch, index):
        return self.loss(batch)


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
