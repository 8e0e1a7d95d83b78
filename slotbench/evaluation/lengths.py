"""Clips of several lengths in one pass: streamed through a trained task from state to state, scored and timed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

import torch
from torch import Tensor, nn

from slotbench.errors import UserError
from slotbench.evaluation.batches import for_each_batch
from slotbench.interfaces import AnswerScores, Predictor, Reasoner, Segmenter, State, VideoBatch, map_state
from slotbench.metrics.clip_scores import ClipScores, score_clips, summaries
from slotbench.metrics.contingency import counted, frame_tables, masks_to_labels
from slotbench.metrics.frames import frame_mse
from slotbench.metrics.mask_rules import Rules

__all__ = ["AtLength", "measure", "metrics_of", "numbers_in"]

_Out = TypeVar("_Out")

_PIECE = 16
"""Frames that are read at once; the masks of no more are held."""


@dataclass
class AtLength:
    """Measurements of clips up to a length.

    Attributes:
        multiple: of the training's length.
        frames: of a clip.
        masks: scores of each clip's masks, by the source of the masks.
        answers: scores of the answers due with the last frame, and those of baselines, by name.
        error: sum over clips of the mean squared error of the frames that were predicted up to here.
        clips: that were read.
        state_numbers: numbers in the state of one clip after the last frame, where the task streams.
        seconds: that the model took, from the length before to this one.
        steps: frames of all clips that it took them for.
    """

    multiple: int
    frames: int
    masks: dict[str, list[ClipScores]] = field(default_factory=dict)
    answers: dict[str, float] = field(default_factory=dict)
    error: float = 0.0
    clips: int = 0
    state_numbers: int | None = None
    seconds: float = 0.0
    steps: int = 0

    def costs(self, context: int) -> dict[str, int | float | None]:
        """What a step costs, and the error of a prediction after `context` frames, by name."""
        return {
            "error": self.error / self.clips if context and self.clips else None,
            "state_numbers": self.state_numbers,
            "milliseconds_per_frame": 1000 * self.seconds / self.steps if self.steps else None,
        }


def measure(
    task: nn.Module, batches: Iterable[VideoBatch], training_frames: int, multiples: Sequence[int], num_clips: int
) -> list[AtLength]:
    """Scores and times the first frames of clips at every length, in one pass.

    The model sees 16 frames at a time, and its state; of masks only the winning slots are held.

    Args:
        task: trained; one that gives masks of every frame (`Segmenter`), predicts frames (`Predictor`) or answers as it
            reads (`Reasoner`).
        batches: clips as long as the largest multiple asks for; those of a `Reasoner` lack the last frame.
        training_frames: frames of a training clip.
        multiples: of them, ascending.
        num_clips: how many to take at most.
    """
    if not isinstance(task, Reasoner | Segmenter | Predictor):
        raise UserError(
            f"{type(task).__name__} gives neither masks of every frame nor predicted frames nor answers; --lengths "
            "takes a run of SlotAutoencoding, VideoPrediction or LongContextReasoning"
        )
    streams = isinstance(task, Reasoner | Segmenter)
    whole = isinstance(task, Segmenter) and type(task).stream is Segmenter.stream
    if streams and (whole or not getattr(getattr(task, "core", None), "causal", True)):
        raise UserError(
            f"{type(task).__name__} reads clips whole, or its core does: it cannot be continued from a state"
        )
    found = [AtLength(multiple, multiple * training_frames) for multiple in multiples]
    scores = [task.answer_scores() for _ in found] if isinstance(task, Reasoner) else []

    def step(batch: VideoBatch) -> None:
        frames = 1 + len(_due(batch)) if isinstance(task, Reasoner) else batch.num_steps
        if frames < found[-1].frames:
            raise UserError(f"the clips have {frames} frames; expected {found[-1].frames}")
        if isinstance(task, Reasoner):
            _answer(task, batch, found, scores)
        elif isinstance(task, Segmenter):
            _segment(task, batch, found)
        else:
            _roll_out(task, batch, found)
        for one in found:
            one.clips += len(batch)

    for_each_batch(task, batches, num_clips, step)
    return found


def metrics_of(found: Sequence[AtLength], context: int) -> dict[str, float]:
    """Every number by name, "lengths/4T/fg_ari/video/decoder" or "lengths/4T/state_numbers"."""
    metrics: dict[str, float] = {}
    for one in found:
        for source, clips in one.masks.items():
            means = {name: summary.mean for name, summary in summaries(clips).items() if summary.beyond is None}
            metrics |= {f"lengths/{one.multiple}T/{name}/{source}": mean for name, mean in means.items()}
        numbers = one.costs(context) | one.answers
        metrics |= {f"lengths/{one.multiple}T/{name}": value for name, value in numbers.items() if value is not None}
    return metrics


def numbers_in(state: State) -> int:
    """How many numbers a state holds, of all clips of its batch; complex ones are two."""
    sizes: list[int] = []

    def count(leaf: Tensor) -> Tensor:
        sizes.append(leaf.numel() * (2 if leaf.is_complex() else 1))
        return leaf

    map_state(count, state)
    return sum(sizes)


def _segment(task: Segmenter, batch: VideoBatch, found: list[AtLength]) -> None:
    labels = _Labels(batch)
    for out in _read(task.stream, batch, found, [one.frames for one in found]):
        attention = None if out.attention is None else task.attention_masks(out.attention, labels.size)
        labels.add("decoder", out.masks)
        labels.add("attention", attention)
    labels.score(found)


def _answer(task: Reasoner, batch: VideoBatch, found: list[AtLength], scores: Sequence[AnswerScores]) -> None:
    due = _due(batch)
    steps = [due[one.frames - 2] + 1 for one in found]
    answers = torch.cat([*_read(task.stream_answers, batch, found, steps, steps_per_frame=due[0] + 1)], 1)
    for one, its_scores in zip(found, scores, strict=True):
        its_scores.update(answers[:, : one.frames - 1], batch)
        one.answers = {name: value for name, value in its_scores.compute().items() if "/context_" not in name}


def _roll_out(task: Predictor, batch: VideoBatch, found: list[AtLength]) -> None:
    context = task.context
    labels = _Labels(batch, context)
    total, at = torch.zeros(len(batch), dtype=torch.float64), context
    steps = iter(task.rollout_steps(batch, horizon=found[-1].frames - context))
    for one in found:
        begin = _now(batch)
        for decoded in islice(steps, one.frames - at):
            true = batch.pixels[:, at : at + 1].float()
            total += frame_mse(decoded.reconstruction.float(), true)[:, 0].double().cpu()
            labels.add("decoder", decoded.masks)
            at += 1
            one.steps += len(batch)
        one.seconds += _now(batch) - begin
        one.error += float(total.sum()) / (at - context)
    labels.score(found)


def _read(
    stream: Callable[[VideoBatch, State | None], tuple[_Out, State]],
    batch: VideoBatch,
    found: list[AtLength],
    steps: Sequence[int],
    steps_per_frame: int = 1,
) -> Iterator[_Out]:
    """What a task makes of a batch that it reads piece by piece, each from the state that the one before has left.

    Times and states are added to `found`, at whose lengths so many steps have been read.
    """
    if not found[0].steps:  # the first batch compiles what is compiled at a first call
        stream(batch.slice_time(0, min(steps[0], _PIECE * steps_per_frame)), None)
    state, start = None, 0
    for one, stop in zip(found, steps, strict=True):
        pieces, first = math.ceil((stop - start) / (_PIECE * steps_per_frame)), start
        for end in [first + (stop - first) * (number + 1) // pieces for number in range(pieces)]:
            begin = _now(batch)
            out, state = stream(batch.slice_time(start, end), state)
            one.seconds += _now(batch) - begin
            one.steps += (end // steps_per_frame - start // steps_per_frame) * len(batch)
            start = end
            yield out
        one.state_numbers = numbers_in(state) // len(batch)


class _Labels:
    """The winning slots of a batch, piece by piece; nothing is held without true masks of one camera."""

    def __init__(self, batch: VideoBatch, skipped: int = 0) -> None:
        self.size = (batch.frames.shape[-2], batch.frames.shape[-1])
        self._skipped = skipped
        self._true = None if batch.masks is None or batch.masks.ndim != 4 else batch.masks[:, skipped:].cpu()
        self._labels: dict[str, list[Tensor]] = {}

    def add(self, source: str, masks: Tensor | None) -> None:
        if masks is not None and self._true is not None:
            self._labels.setdefault(source, []).append(masks_to_labels(masks, self.size).to("cpu", torch.int16))

    def score(self, found: list[AtLength]) -> None:
        for source, parts in self._labels.items():
            assert self._true is not None
            labels = torch.cat(parts, 1)
            true = self._true[:, : labels.shape[1]]
            tables = frame_tables(labels, true, counted(true))[:, :, 0]
            for one in found:
                upto = tables[:, : one.frames - self._skipped]
                scores = score_clips(upto, torch.arange(tables.shape[-2]).numpy(), Rules())
                one.masks.setdefault(source, []).extend(scores)


def _due(batch: VideoBatch) -> list[int]:
    """The step after which each answer is due, the first step being 0."""
    return (batch.require("target_time")[0] - batch.time[0, 0]).tolist()


def _now(batch: VideoBatch) -> float:
    if batch.frames.is_cuda:
        torch.cuda.synchronize(batch.frames.device)
    return time.perf_counter()
