"""A video that is read piece by piece: what is handed from one piece to the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from slotbench.interfaces import CoreOutput, State, TemporalCore, VideoBatch

__all__ = ["PIECE", "Bookmark", "Windowed", "piece_frames", "read_on"]

PIECE = 16
"""Frames of a piece."""

_WHOLE = 1 << 40


@runtime_checkable
class Windowed(Protocol):
    """A core that can compute each step from the last few frames alone."""

    def sliding_window(self, tokens: Float[Tensor, "batch time tokens dim"], window: int) -> CoreOutput:
        """Slots of each step from the last `window` frames."""


@dataclass
class Bookmark:
    """Where a video has been left.

    Attributes:
        video: its number.
        step: the step that comes next.
        state: of the core after the step before; with a window, the tokens that the next steps look back to.
    """

    video: int
    step: int
    state: State

    def state_for(self, batch: VideoBatch) -> State | None:
        """The state that `batch` goes on from, or None if it does not go on with this video."""
        fits = len(batch) == 1 and int(batch.time[0, 0]) == self.step and _video(batch) == self.video
        return self.state if fits and self.step else None

    @classmethod
    def after(cls, batch: VideoBatch, state: State) -> Bookmark:
        """Where `batch` ends."""
        return cls(_video(batch), int(batch.time[0, -1]) + 1, state)


def piece_frames(core: TemporalCore) -> int:
    """Frames of a piece for this core: one that sees later steps must be given a video whole."""
    causal: Any = getattr(core, "causal", True)
    return PIECE if causal else _WHOLE


def read_on(
    core: TemporalCore, tokens: Float[Tensor, "batch time tokens dim"], state: State | None, window: int | None
) -> tuple[CoreOutput, State]:
    """The next steps of a video, the same as if it had been read at once, and what is to be handed on.

    Args:
        core: the core.
        tokens: of the next steps.
        state: what the last call has handed on; None at the start of a video.
        window: each step is computed from so many frames; None for all.
    """
    if window is None:
        out = core(tokens, state)
        return out, out.state
    assert isinstance(core, Windowed)
    seen = tokens if state is None else torch.cat([state, tokens], dim=1)
    out = core.sliding_window(seen, window)
    steps = tokens.shape[1]
    attention = None if out.attention is None else out.attention[:, -steps:]
    kept = seen[:, seen.shape[1] - min(window - 1, seen.shape[1]) :]
    return CoreOutput(out.slots[:, -steps:], attention, None, out.attention_kind), kept


def _video(batch: VideoBatch) -> int:
    return -1 if batch.index is None else int(batch.index[0])
