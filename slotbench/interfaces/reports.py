"""What callbacks and commands ask of a task: what it reports, the parts of a long video, and its slots' masks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Integer
from torch import Tensor

from slotbench.interfaces.batch import VideoBatch
from slotbench.interfaces.cores import AttentionKind, State
from slotbench.interfaces.decoders import Decoded
from slotbench.interfaces.specs import DataSpec
from slotbench.metric_info import MetricInfo

__all__ = [
    "AnswerScores",
    "Headline",
    "Predictor",
    "Reasoner",
    "Recording",
    "Reporter",
    "Segmentation",
    "Segmenter",
    "rounded_shares",
]


@dataclass(frozen=True)
class Headline:
    """A number worth a line in the final report, beside those of baselines and oracles by their names.

    `metric` is its logged key, `needs` says how to get a value where there may be none, and `note` what it leaves out.
    """

    metric: str
    label: str
    baselines: dict[str, float] = field(default_factory=dict)
    higher_is_better: bool = True
    needs: str | None = None
    oracles: dict[str, float] = field(default_factory=dict)
    note: str = ""


class Recording(ABC):
    """Gathers what `predict_step` returns for the pieces of one video."""

    @abstractmethod
    def add(self, batch: VideoBatch, found: Mapping[str, Tensor]) -> None:
        """The next piece, and what the model made of it."""

    @abstractmethod
    def pictures(self) -> dict[str, np.ndarray]:
        """Images of the whole video, by name: uint8 arrays "height width 3"."""

    @abstractmethod
    def videos(self) -> dict[str, Iterator[np.ndarray]]:
        """Videos of the whole video, by name, frame by frame: uint8 arrays "height width 3"."""

    @abstractmethod
    def arrays(self, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Those of the arrays of `predict --save` that are asked for."""

    @abstractmethod
    def close(self) -> None:
        """Removes what was kept on the disk."""


class Reporter:
    """What callbacks read of a task. Every member has a default, which reports nothing."""

    monitor: tuple[str, Literal["min", "max"]] | None = None
    """The logged metric that decides which checkpoint is the best, and its direction."""
    data_spec: DataSpec | None = None
    """Sizes of the data, from which the throughput is computed."""
    feature_weights: Mapping[str, str] | None = None
    """Name and hash, "weights" and "weights_sha256", of the frozen network whose features the task reads."""

    def headlines(self) -> list[Headline]:
        """The numbers of the final report, with the baselines known so far."""
        return []

    def metric_infos(self, names: Iterable[str]) -> dict[str, MetricInfo]:
        """What logged numbers are, as far as they are declared; names are those logged, without the stage."""
        found = {headline.metric.partition("/")[2]: headline for headline in self.headlines()}
        return {
            name: MetricInfo(name, found[name].label, found[name].higher_is_better) for name in names if name in found
        }

    def pictures(self, batch: VideoBatch) -> dict[str, np.ndarray]:
        """Pictures of the model's outputs for `batch`, by name: uint8 arrays "height width 3"."""
        return {}

    def videos(self, batch: VideoBatch) -> dict[str, np.ndarray]:
        """Videos of the model's outputs for `batch`, by name: uint8 arrays "time height width 3"."""
        return {}

    def plots(self) -> dict[str, np.ndarray]:
        """Plots of the whole evaluation that has just ended, by name: uint8 arrays "height width 3"."""
        return {}

    @property
    def total_steps(self) -> int | None:
        """Optimiser steps of the whole training; None if nothing but the clock ends it."""
        return None

    @property
    def piece_frames(self) -> int | None:
        """Frames of a piece, if `predict` reads whole videos piece by piece and has `recording`; None for clips."""
        return None

    def recording(self, folder: Path, frames: int, save: Sequence[str] = ()) -> Recording:
        """Gathers the pieces of a video of so many frames, what is large in a folder; `save` names arrays to keep."""
        raise NotImplementedError


@dataclass
class Segmentation:
    """Slots of every frame, the attention of slots that compete for tokens, and masks as large as the frames."""

    slots: Float[Tensor, "batch time slots dim"]
    attention: Float[Tensor, "batch time slots tokens"] | None = None
    masks: Float[Tensor, "batch time *views slots height width"] | None = None
    attention_kind: AttentionKind | None = None


class Predictor(ABC):
    """A task that predicts the frames after a context, so many true ones that it reads first, one by one."""

    context: int

    @abstractmethod
    def deterministic_sampling(self, batch: VideoBatch, seed: int) -> AbstractContextManager[None]:
        """Context in which draws for `batch`, the `seed`-th of a split, equal those of the task's evaluation."""

    @abstractmethod
    def rollout_steps(
        self, batch: VideoBatch, context: int | None = None, horizon: int | None = None
    ) -> Iterator[Decoded]:
        """Frames "batch 1 channels height width" in [0, 1], with masks; what is not given is the task's own."""


class AnswerScores(ABC):
    """Scores of answers over several batches, by name."""

    @abstractmethod
    def update(self, predicted: Integer[Tensor, "batch targets height width"], batch: VideoBatch) -> None:
        """Adds the answers to the first `targets` targets of whole clips; the last of them is what is scored."""

    @abstractmethod
    def compute(self) -> dict[str, float]:
        """Every score by name, `baseline/<score>/<name>` among them."""


class Reasoner(ABC):
    """A task that answers questions about all frames so far while it reads a clip."""

    @abstractmethod
    def deterministic_sampling(self, batch: VideoBatch, seed: int) -> AbstractContextManager[None]:
        """Context in which draws for `batch`, the `seed`-th of a split, equal those of the task's evaluation."""

    @abstractmethod
    def stream_answers(
        self, batch: VideoBatch, state: State | None
    ) -> tuple[Integer[Tensor, "batch targets height width"], State]:
        """The class of every pixel of the targets that are due within the next steps, and the state after those steps.

        `state` is what the previous call returned, None at the start of the clips.
        """

    @abstractmethod
    def answer_scores(self) -> AnswerScores:
        """New scores of answers, with nothing in them yet."""


class Segmenter(ABC):
    """A task that gives the slots of every frame with their masks, which probing needs."""

    def stream(self, batch: VideoBatch, state: State | None) -> tuple[Segmentation, State]:
        """Slots and masks of the next frames of clips, and the state that the frames after them are read from."""
        raise NotImplementedError(f"{type(self).__name__} reads clips whole; expected a method stream")

    @abstractmethod
    def deterministic_sampling(self, batch: VideoBatch, seed: int) -> AbstractContextManager[None]:
        """Context in which draws for `batch`, the `seed`-th of a split, equal those of the task's evaluation."""

    @abstractmethod
    def evaluate(self, batch: VideoBatch) -> Segmentation:
        """Slots and masks as in validation and test."""

    @abstractmethod
    def attention_masks(
        self, attention: Float[Tensor, "batch time slots tokens"], size: tuple[int, int]
    ) -> Float[Tensor, "batch time slots height width"] | None:
        """Attention over tokens as masks of `size` (height, width); None if the tokens are on no grid."""


def rounded_shares(masks: Float[Tensor, "*batch slots height width"]) -> Float[Tensor, "*batch slots height width"]:
    """Soft masks in float16, as they are saved: the slot that has a pixel has it still, though others round to as much.

    Example:
        >>> close = torch.tensor([0.3, 0.30001]).view(2, 1, 1)
        >>> close.half().argmax(0).item(), rounded_shares(close).argmax(0).item()
        (0, 1)
    """
    half, winner = masks.half(), masks.argmax(-3, keepdim=True)
    most = half.amax(-3, keepdim=True)
    lost = half.argmax(-3, keepdim=True) != winner
    above = torch.nextafter(most, torch.full_like(most, torch.inf))
    return half.scatter(-3, winner, torch.where(lost, above, half.gather(-3, winner)))
