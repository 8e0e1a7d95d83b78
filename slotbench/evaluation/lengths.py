"""Long clips streamed through a trained task, with the core's state handed on, and what each length has cost."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Integer
from torch import Tensor, nn

from slotbench.errors import UserError
from slotbench.interfaces import (
    AnswerScores,
    Predictor,
    Reasoner,
    Segmentation,
    Segmenter,
    State,
    VideoBatch,
    map_state,
)
from slotbench.metrics.clip_scores import ClipScores, score_clips
from slotbench.metrics.contingency import frame_tables, masks_to_labels
from slotbench.metrics.frames import frame_mse
from slotbench.metrics.mask_evaluation import truth_digests
from slotbench.metrics.mask_rules import Rules

__all__ = ["AtLength", "measure", "numbers_in"]

_Out = TypeVar("_Out")

_PIECE = 16
"""Frames that are read at once; the masks of no more are held."""


@dataclass
class AtLength:
    """What was measured of clips up to a length.

    Attributes:
        multiple: of the training's length.
        frames: of a clip.
        scores: of each clip's masks, by their source.
        answers: scores of the answers due with the last frame, and those of baselines, by name.
        slots: of the masks, by their source.
        truth: digests of the clips' true objects.
        size: height and width of the frames.
        error: sum over clips of the mean squared error of the frames that were predicted up to here.
        clips: that were read.
        state_numbers: numbers in the state of one clip after the last frame.
        seconds: that encoder, core and decoder took, from the length before to this one.
        core_seconds: that the core alone took of them; 0 where it is not called by itself.
        steps: frames of all clips that they took them for.
    """

    multiple: int
    frames: int
    scores: dict[str, list[ClipScores]] = field(default_factory=dict)
    answers: dict[str, float] = field(default_factory=dict)
    slots: dict[str, int] = field(default_factory=dict)
    truth: list[bytes] = field(default_factory=list)
    size: tuple[int, int] = (0, 0)
    error: float = 0.0
    clips: int = 0
    state_numbers: int | None = None
    seconds: float = 0.0
    core_seconds: float = 0.0
    steps: int = 0


def measure(
    task: nn.Module,
    batches: Iterable[VideoBatch],
    training_frames: int,
    multiples: Sequence[int],
    num_clips: int,
    report: Callable[[int], None] = lambda done: None,
) -> list[AtLength]:
    """One pass over clips, with everything that is known of their first frames at every length.

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
        report: is told how many clips are done.

    Raises:
        UserError: the task is none of these, the core cannot go on beyond a clip, or clips are too short.
    """
    found = [AtLength(multiple, multiple * training_frames) for multiple in multiples]
    step: Callable[[nn.Module, VideoBatch, list[AtLength], bool], None]
    if isinstance(task, Reasoner):
        _check_core(task)
        step = partial(_answer, scores=[task.answer_scores() for _ in found])
    elif isinstance(task, Segmenter):
        _check_core(task)
        step = _stream
    elif isinstance(task, Predictor):
        step = _roll_out
    else:
        raise UserError(
            f"{type(task).__name__} gives neither masks of every frame nor predicted frames nor answers; --lengths "
            "takes a run of SlotAutoencoding, VideoPrediction or LongContextReasoning"
        )
    done = 0
    with torch.no_grad():
        for number, batch in enumerate(batches):
            batch = batch.map(lambda value: value[: num_clips - done])  # noqa: B023  called at once
            frames = 1 + len(_due(batch)) if isinstance(task, Reasoner) else batch.num_steps
            if frames < found[-1].frames:
                raise UserError(f"the clips have {frames} frames; expected {found[-1].frames}")
            with task.deterministic_sampling(batch, number):
                step(task, batch, found, number == 0)
            done += len(batch)
            report(done)
            if done >= num_clips:
                break
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
            f"{type(task).__name__} gives the masks of whole clips only; --lengths needs a method "
            "stream(batch, state) -> (segmentation, state)"
        )
    core = getattr(task, "core", None)
    if core is not None and not core.causal:
        raise UserError(
            f"{type(core).__name__} with causal=False cannot be streamed: early steps see later ones, so a clip cannot "
            "be continued beyond the frames that it was given"
        )


def _stream(task: nn.Module, batch: VideoBatch, found: list[AtLength], first: bool) -> None:
    """Scores the masks of a batch that is read from state to state."""
    assert isinstance(task, Segmenter)
    labels: dict[str, list[Tensor]] = {}
    for one, out in _read(task, task.stream, batch, found, [one.frames for one in found], first):
        for source, masks in _masks(task, out, batch).items():
            labels.setdefault(source, []).append(masks_to_labels(masks, _size(batch)).to("cpu", torch.int16))
            one.slots[source] = masks.shape[2]
    _add_scores(batch, {source: torch.cat(parts, 1) for source, parts in labels.items()}, found, 0)


def _answer(
    task: nn.Module, batch: VideoBatch, found: list[AtLength], first: bool, scores: Sequence[AnswerScores]
) -> None:
    """Scores, at each length, the answer due before its last frame, of a batch that is read from state to state."""
    assert isinstance(task, Reasoner)
    due = _due(batch)
    steps = [due[one.frames - 2] + 1 for one in found]
    read = _read(task, task.stream_answers, batch, found, steps, first, steps_per_frame=due[0] + 1)
    answers = torch.cat([answer for _, answer in read], 1)
    for one, its_scores in zip(found, scores, strict=True):
        its_scores.update(answers[:, : one.frames - 1], batch)
        one.answers = {name: value for name, value in its_scores.compute().items() if "/context_" not in name}
        one.clips += len(batch)
        one.size = _size(batch)


def _read(
    task: nn.Module,
    stream: Callable[[VideoBatch, State | None], tuple[_Out, State]],
    batch: VideoBatch,
    found: list[AtLength],
    steps: Sequence[int],
    first: bool,
    steps_per_frame: int = 1,
) -> Iterator[tuple[AtLength, _Out]]:
    """Reads a batch piece by piece, each from the state that the one before has left, and measures what it takes.

    Args:
        task: whose core is watched.
        stream: reads a piece, with the state before it and after it.
        batch: clips.
        found: to add times and states to.
        steps: how many have been read at each of these lengths.
        first: whether this is the first batch, before which everything is called once.
        steps_per_frame: time steps that a frame comes in.

    Yields:
        what was made of a piece, with the length that it belongs to.
    """
    core = getattr(task, "core", None)
    ends = _pieces(steps, _PIECE * steps_per_frame)
    if first:  # compiles what is compiled at a first call, and at one with a state
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
                yield one, out
        one.core_seconds += watched.seconds
        one.state_numbers = numbers_in(state) // len(batch)


def _roll_out(task: nn.Module, batch: VideoBatch, found: list[AtLength], first: bool) -> None:
    """Predicts from the task's own context to the end of the longest length, frame by frame."""
    assert isinstance(task, Predictor)
    context = task.context
    if first:
        list(task.rollout_steps(batch, horizon=2))
    labels: list[Tensor] = []
    total, at = torch.zeros(len(batch), dtype=torch.float64), context
    steps = iter(task.rollout_steps(batch, horizon=found[-1].frames - context))
    for one in found:
        begin = _now(batch)
        with _watched(getattr(task, "core", None), batch) as watched:
            for decoded in islice(steps, one.frames - at):
                true = batch.frames[:, at : at + 1].float()
                total += frame_mse(decoded.reconstruction.float(), true)[:, 0].double().cpu()
                if decoded.masks is not None and batch.masks is not None:
                    labels.append(masks_to_labels(decoded.masks, _size(batch)).to("cpu", torch.int16))
                    one.slots["decoder"] = decoded.masks.shape[2]
                at += 1
                one.steps += len(batch)
        one.seconds += _now(batch) - begin
        one.core_seconds += watched.seconds
        one.state_numbers = None if watched.state is None else numbers_in(watched.state) // len(batch)
        one.error += float(total.sum()) / (at - context)
    _add_scores(batch, {"decoder": torch.cat(labels, 1)} if labels else {}, found, context)


def _due(batch: VideoBatch) -> list[int]:
    """The step after which each answer is due, the first step being 0."""
    return (batch.require("target_time")[0] - batch.time[0, 0]).tolist()


def _add_scores(
    batch: VideoBatch,
    labels: dict[str, Integer[Tensor, "batch time height width"]],
    found: list[AtLength],
    skipped: int,
) -> None:
    """Scores the masks up to each length; those of a prediction begin after `skipped` frames."""
    for one in found:
        one.clips += len(batch)
        one.size = _size(batch)
    if batch.masks is None or batch.masks.ndim != 4:
        return
    true = batch.masks.cpu()
    for source, own in labels.items():
        tables = frame_tables(own, true[:, skipped : skipped + own.shape[1]])[:, :, 0]
        for one in found:
            part = tables[:, : one.frames - skipped]
            one.scores.setdefault(source, []).extend(score_clips(part, np.arange(part.shape[2]), Rules()))
            if source == next(iter(labels)):
                one.truth += truth_digests(part)


def _masks(task: Segmenter, out: Segmentation, batch: VideoBatch) -> dict[str, Tensor]:
    attention = None if out.attention is None else task.attention_masks(out.attention, _size(batch))
    return {name: masks for name, masks in (("decoder", out.masks), ("attention", attention)) if masks is not None}


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
    """What the calls of a core have taken, and the state that the last one has left."""

    seconds: float = 0.0
    state: State | None = None


@contextmanager
def _watched(core: nn.Module | None, batch: VideoBatch) -> Iterator[_Watched]:
    """Looks on while the core is called; a core that is never called by itself leaves zeros."""
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


def _size(batch: VideoBatch) -> tuple[int, int]:
    height, width = batch.frames.shape[-2:]
    return height, width
