"""Types of what a task is given to build its parts, its optimiser and its schedule by: classes, or partial calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from slotbench.interfaces import Decoder, Encoder, Objective, SlotSpec, TemporalCore, Tokenizer, TokenSpec, VideoSpec

__all__ = [
    "CoreFactory",
    "DecoderFactory",
    "EncoderFactory",
    "ObjectiveFactory",
    "OptimizerFactory",
    "ScheduleFactory",
    "TokenizerFactory",
]

EncoderFactory = Callable[[VideoSpec], Encoder]
CoreFactory = Callable[[TokenSpec], TemporalCore]
DecoderFactory = Callable[[SlotSpec, VideoSpec], Decoder]
ObjectiveFactory = Callable[[SlotSpec, VideoSpec], Objective]
TokenizerFactory = Callable[[VideoSpec], Tokenizer]
OptimizerFactory = Callable[[Iterable], Optimizer]
ScheduleFactory = Callable[[Optimizer, int], LRScheduler]
