"""Clips of several lengths in one pass: streamed through a trained task from state to state, scored and timed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from slotbench.errors import UserError
from slotbench.evaluation.batches import for_each_batch
from slotbench.interfaces import (
    AnswerScores,
    Predictor,
    Reasoner,
    Segmenter,
    State,
    VideoBatch,
    map_state,
)
from slotbench.metrics.contingency import frame_tables, masks_to_labels
from slotbench.metrics.frames import frame_mse
from slotbench.metrics.mask_evaluation import MaskEvaluation
from slotbench.metrics.mask_rules import Rules

__all__ = ["AtLength", "measure", "numbers_in"]

_Out = TypeVar("_Out")

_PIECE = 16
"""Frames that are read at once; the masks of no more are held."""


@dataclass
class AtLength:
    """Measurements of clips up to a length.

    Attributes:
        multiple: of the training's length.
        frames: of a clip.
        masks: scores of the clips' masks, by the source of the masks.
        answers: scores of the answers due with the last frame, and those of baselines, by name.
        error: sum over clips of the mean squared error of the frames that were predicted up to here.
        clips: that were read.
        state_numbers: numbers in the state of one clip after the last frame.
        seconds: that encoder, core and decoder took, from the length before to this one.
        core_seconds: that the core alone took of them; 0 where it is not called by itself.
        steps: frames of all clips that they took them for.
    """

    multiple: int
    frames: int
    masks: dict[str, MaskEvaluation] = field(default_factory=dict)
    answers: dict[str, float] = field(default_factory=dict)
    error: float = 0.0
    clips: int = 0
    state_numbers: int | None = None
    seconds: float = 0.0
    core_seconds: float = 0.0
    steps: int = 0

    def costs(self, context: int) -> dict[str, int | float | None]:
        """What a step costs, and the error of a prediction after `context` frames, by name."""

        def milliseconds(seconds: float) -> float | None:
            return 1000 * seconds / self.steps if seconds and self.steps else None

        return {
            "error": self.error / self.clips if context and self.clips else None,
            "state_numbers": self.state_numbers,
            "milliseconds_per_frame": milliseconds(self.seconds),
            "core_milliseconds_per_frame": milliseconds(self.core_seconds),
        }


def measure(
    task: nn.Module,
    batches: Iterable[VideoBatch],
    training_frames: int,
    multiples: Sequence[int],
    num_clips: int,
    report: Callable[[int], None] = lambda done: None,
) -> list[AtLength]:
    """Scores and times the first frames of clips at every length, in one pass.

    Memory does not grow with the clips but by their frames and a byte or two for each pixel of the masks: the model
    sees 16 frames at a time, and its state.

    Args:
        task: trained, in evaluation mode; one that gives masks of every frame (`Segmenter`), predicts frames
            (`Predictor`) or answers as it reads (`Reasoner`).
        batches: clips as long as the largest multiple asks for, frames in [0, 1], on the task's device. Those of a
            `Reasoner` lack the last frame, which it is asked for.
        training_frames: frames of a training clip.
        multiples: of them, ascending.
        num_clips: how many to take; fewer if there are fewer.
        report: called with the number of clips that are done.

    Raises:
        UserError: the task is none of these, the core cannot go on beyond a clip, or clips are too short.
    """
    found = [AtLength(multiple, multiple * training_frames) for multiple in multiples]
    measured: Callable[[nn.Module, VideoBatch, list[AtLength]], None]
    if isinstance(task, Reasoner):
        _check_core(task)
        measured = partial(_answer, scores=[task.answer_scores() for _ in found])
    elif isinstance(task, Segmenter):
        _check_core(task)
        measured = _stream
    elif isinstance(task, Predictor):
        measured = _roll_out
    else:
        raise UserError(
            f"{type(task).__name__} gives neither masks of every frame nor predicted frames nor answers; --lengths "
            "takes a run of SlotAutoencoding, VideoPrediction or LongContextReasoning"
        )

    def step(batch: VideoBatch) -> None:
        frames = 1 + len(_due(batch)) if isinstance(task, Reasoner) else batch.num_steps
        if frames < found[-1].frames:
            raise UserError(f"the clips have {frames} frames; expected {found[-1].frames}")
        measured(task, batch, found)
        for one in found:
            one.clips += len(batch)

    for_each_batch(task, batches, num_clips, step, report)
    return found


def numbers_in(state: State) -> int:
    """How many numbers a state holds, of all clips of its batch; complex ones are two."""
    total = 0

    def count(leaf: Tensor) -> Tensor:
        nonlocal total
        total += leaf.numel() * (2 if leaf.is_complex() else 1)
        return leaf

    map_state(count, state)
    return total


def _check_core(task: nn.Module) -> None:
    """Refuses a task whose clips cannot be continued from a state."""
    if isinstance(task, Segmenter) and type(task).stream is Segmenter.stream:
        raise UserError(
            f"{type(task).__name__} gives the masks of whole clips only, and --lengths streams them in pieces: score "
            "longer clips with --data.eval_frames N in place of --lengths, or write a method stream(batch, state) -> "
            "(segmentation, state)"
        )
    core = getattr(task, "core", None)
    if core is not None and not core.causal:
        raise UserError(
            f"{type(core).__name__} with causal=False cannot be streamed: early steps see later ones, so a clip cannot "
            "be continued beyond the frames that it was given"
        )


def _stream(task: nn.Module, batch: VideoBatch, found: list[AtLength]) -> None:
    """Scores the masks of a batch that is read from state to state."""
    assert isinstance(task, Segmenter)
    segmented = _Segmented(batch)
    for out in _read(task, task.stream, batch, found, [one.frames for one in found]):
        attention = None if out.attention is None else task.attention_masks(out.attention, segmented.size)
        segmented.add("decoder", out.masks)
        segmented.add("attention", attention)
    segmented.score(found)


def _answer(task: nn.Module, batch: VideoBatch, found: list[AtLength], scores: Sequence[AnswerScores]) -> None:
    """Scores, at each length, the answer due before its last frame, of a batch that is read from state to state."""
    assert isinstance(task, Reasoner)
    due = _due(batch)
    steps = [due[one.frames - 2] + 1 for one in found]
    answers = torch.cat([*_read(task, task.stream_answers, batch, found, steps, steps_per_frame=due[0] + 1)], 1)
    for one, its_scores in zip(found, scores, strict=True):
        its_scores.update(answers[:, : one.frames - 1], batch)
        one.answers = {name: value for name, value in its_scores.compute().items() if "/context_" not in name}


def _read(
    task: nn.Module,
    stream: Callable[[VideoBatch, State | None], tuple[_Out, State]],
    batch: VideoBatch,
    found: list[AtLength],
    steps: Sequence[int],
    steps_per_frame: int = 1,
) -> Iterator[_Out]:
    """Reads a batch piece by piece, each from the state that the one before has left, and measures what it takes.

    Args:
        task: whose core is watched.
        stream: reads a piece, with the state before it and after it.
        batch: clips.
        found: to add times and states to.
        steps: how many have been read at each of these lengths.
        steps_per_frame: time steps that a frame comes in.

    Yields:
        what was made of a piece.
    """
    core = getattr(task, "core", None)
    ends = _pieces(steps, _PIECE * steps_per_frame)
    if not found[0].steps:  # the first batch compiles what is compiled at a first call, and at one with a state
        _, state = stream(batch.slice_time(0, ends[0]), None)
        if len(ends) > 1:
            stream(batch.slice_time(ends[0], ends[1]), state)
    state, start = None, 0
    for one, stop in zip(found, steps, strict=True):
        with _watched(core, batch) as watched:
            for end in [end for end in ends if start < end <= stop]:
                begin = _now(batch)
                try:
                    out, state = stream(batch.slice_time(start, end), state)
                except (ValueError, IndexError) as error:
                    name, frames = type(core or task).__name__, start // steps_per_frame
                    raise UserError(f"{name} cannot be streamed beyond {frames} frames: {error}") from error
                one.seconds += _now(batch) - begin
                one.steps += (end // steps_per_frame - start // steps_per_frame) * len(batch)
                start = end
                yield out
        one.core_seconds += watched.seconds
        one.state_numbers = numbers_in(state) // len(batch)


def _roll_out(task: nn.Module, batch: VideoBatch, found: list[AtLength]) -> None:
    """Predicts from the task's own context to the end of the longest length, frame by frame."""
    assert isinstance(task, Predictor)
    context = task.context
    if not found[0].steps:
        list(task.rollout_steps(batch, horizon=2))
    segmented = _Segmented(batch, context)
    total, at = torch.zeros(len(batch), dtype=torch.float64), context
    steps = iter(task.rollout_steps(batch, horizon=found[-1].frames - context))
    for one in found:
        begin = _now(batch)
        with _watched(getattr(task, "core", None), batch) as watched:
            for decoded in islice(steps, one.frames - at):
                true = batch.pixels[:, at : at + 1].float()
                total += frame_mse(decoded.reconstruction.float(), true)[:, 0].double().cpu()
                segmented.add("decoder", decoded.masks)
                at += 1
                one.steps += len(batch)
        one.seconds += _now(batch) - begin
        one.core_seconds += watched.seconds
        one.state_numbers = None if watched.state is None else numbers_in(watched.state) // len(batch)
        one.error += float(total.sum()) / (at - context)
    segmented.score(found)


def _due(batch: VideoBatch) -> list[int]:
    """The step after which each answer is due, the first step being 0."""
    return (batch.require("target_time")[0] - batch.time[0, 0]).tolist()


class _Segmented:
    """The masks of a batch, piece by piece, of which only the winning slots are held.

    Args:
        batch: clips; without true masks of one camera nothing is held.
        skipped: frames before the first masks.
    """

    def __init__(self, batch: VideoBatch, skipped: int = 0) -> None:
        self.size = (batch.frames.shape[-2], batch.frames.shape[-1])
        self._skipped = skipped
        self._true = None if batch.masks is None or batch.masks.ndim != 4 else batch.masks[:, skipped:].cpu()
        self._labels: dict[str, list[Tensor]] = {}
        self._slots: dict[str, int] = {}

    def add(self, source: str, masks: Tensor | None) -> None:
        """Adds the masks of the next frames, if there are any."""
        if masks is not None and self._true is not None:
            self._labels.setdefault(source, []).append(masks_to_labels(masks, self.size).to("cpu", torch.int16))
            self._slots[source] = masks.shape[2]

    def score(self, found: list[AtLength]) -> None:
        """Scores the masks up to each length."""
        for source, parts in self._labels.items():
            assert self._true is not None
            labels = torch.cat(parts, 1)
            tables = frame_tables(labels, self._true[:, : labels.shape[1]])[:, :, 0]
            for one in found:
                evaluation = one.masks.setdefault(source, MaskEvaluation(rules=Rules(skip=self._skipped)))
                evaluation.add(tables[:, : one.frames - self._skipped], self.size, self._slots[source])


def _pieces(lengths: Sequence[int], most: int = _PIECE) -> list[int]:
    """Where pieces end: at every length, and no more than `most` apart."""
    ends, start = [], 0
    for length in lengths:
        count = math.ceil((length - start) / most)
        ends += [start + (length - start) * (number + 1) // count for number in range(count)]
        start = length
    return ends


@dataclass
class _Watched:
    """Seconds in the calls of a core, and the state after the last one."""

    seconds: float = 0.0
    state: State | None = None


@contextmanager
def _watched(core: nn.Module | None, batch: VideoBatch) -> Iterator[_Watched]:
    """Times the calls of a core; 0 for a core that is never called by itself."""
    found = _Watched()
    if core is None:
        yield found
        return
    begun: list[float] = []

    def end(_: nn.Module, __: Any, out: Any) -> None:
        found.seconds += _now(batch) - begun.pop()
        found.state = getattr(out, "state", None)

    hooks = (core.register_forward_pre_hook(lambda *_: begun.append(_now(batch))), core.register_forward_hook(end))
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def _now(batch: VideoBatch) -> float:
    if batch.frames.is_cuda:
        torch.cuda.synchronize(batch.frames.device)
    return time.perf_counter()
