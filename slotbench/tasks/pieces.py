"""Videos that are read piece by piece: the state between pieces, and which tasks and cores allow it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from slotbench.interfaces import (
    CoreOutput,
    State,
    TemporalCore,
    VideoBatch,
    WindowedCore,
)

__all__ = [
    "PIECE",
    "WHOLE",
    "StreamPosition",
    "continue_stream",
    "frame_by_frame",
    "may_be_cut",
    "piece_frames",
]

Method = TypeVar("Method", bound=Callable[..., Any])

PIECE = 16
"""Frames of a piece."""

WHOLE = 1 << 40
"""More frames than any video has."""


@dataclass
class StreamPosition:
    """Position in a video after its last piece, and the state from which the next piece continues.

    Attributes:
        video: number of the video.
        step: number of the next step.
        state: of the core after the step before; with a window, the tokens that the next steps look back to.
    """

    video: int
    step: int
    state: State

    def state_for(self, batch: VideoBatch) -> State | None:
        """The state that `batch` continues from; None if it does not continue this video."""
        fits = len(batch) == 1 and int(batch.time[0, 0]) == self.step and _video(batch) == self.video
        return self.state if fits and self.step else None

    @classmethod
    def after(cls, batch: VideoBatch, state: State) -> StreamPosition:
        """Where `batch` ends."""
        return cls(_video(batch), int(batch.time[0, -1]) + 1, state)


def frame_by_frame(method: Method) -> Method:
    """Marks a `forward` or `loss` that treats every frame alike, so that a long clip may be read piece by piece.

    One that overrides it bears no mark, and is given clips whole, since it may join frames that are far apart.
    """
    method.__dict__["frame_by_frame"] = True
    return method


def may_be_cut(method: Callable[..., Any]) -> bool:
    """Whether a method is marked by `frame_by_frame`."""
    return getattr(method, "frame_by_frame", False)


def piece_frames(core: TemporalCore) -> int:
    """Frames of a piece for this core: one that sees later steps must be given a video whole."""
    return PIECE if core.causal else WHOLE


def continue_stream(
    core: TemporalCore, tokens: Float[Tensor, "batch time tokens dim"], state: State | None, window: int | None
) -> tuple[CoreOutput, State]:
    """Reads the next steps of a video as if it were read at once; returns the output and the state for the next call.

    Args:
        core: the core.
        tokens: of the next steps.
        state: returned by the last call; None at the start of a video.
        window: each step is computed from so many frames; None for all.
    """
    if window is None:
        out = core(tokens, state)
        return out, out.state
    assert isinstance(core, WindowedCore)
    seen = tokens if state is None else torch.cat([state, tokens], dim=1)
    out = core.sliding_window(seen, window)
    steps = tokens.shape[1]
    attention = None if out.attention is None else out.attention[:, -steps:]
    kept = seen[:, seen.shape[1] - min(window - 1, seen.shape[1]) :]
    details = {name: value[:, -steps:] for name, value in out.details.items()}
    frame_slots = None if out.frame_slots is None else out.frame_slots[:, -steps:]
    return CoreOutput(out.slots[:, -steps:], attention, None, out.attention_kind, details, frame_slots), kept


def _video(batch: VideoBatch) -> int:
    return -1 if batch.index is None else int(batch.index[0])
