"""Autoregressive roll-out: frames predicted one by one, each from the one predicted before."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from slotbench.interfaces import CoreOutput, Decoded, State, VideoBatch

__all__ = [
    "PIECE",
    "Feedback",
    "Watch",
    "forced_loss",
    "in_pieces",
    "painted_alone",
    "simple_predictions",
]

PIECE = 32
"""Frames that an evaluation holds at once, however long the clip."""

Feedback = Literal["probability", "threshold"]
"""What is fed back: the predicted frame, or black and white, whichever is nearer."""


Watch = Callable[[CoreOutput], object]
"""Is called with each output of the core in a roll-out."""


def painted_alone(decoded: Decoded, paint: Callable[[Decoded], Tensor]) -> Tensor | None:
    """Each slot's own image as a frame in [0, 1]."""
    if decoded.components is None:
        return None
    return paint(Decoded(decoded.components.flatten(1, 2))).unflatten(1, decoded.components.shape[1:3])


def in_pieces(
    steps: Iterator[Decoded], horizon: int, add_time: Callable[[int, float], None], device: torch.device
) -> Iterator[tuple[slice, Tensor]]:
    """The frames of a roll-out in pieces, with where they lie in the horizon."""
    done = 0
    while done < horizon:
        begin = _now(device)
        piece = torch.cat([step.reconstruction for step in islice(steps, PIECE)], dim=1)
        add_time(piece.shape[0] * piece.shape[1], _now(device) - begin)
        yield slice(done, done + piece.shape[1]), piece
        done += piece.shape[1]


def forced_loss(
    parts: tuple[Callable[[VideoBatch], Tensor], Callable[[Tensor, State | None], CoreOutput]],
    decode: Callable[[CoreOutput, VideoBatch], Decoded],
    loss: Callable[[Decoded, VideoBatch], Tensor],
    batch: VideoBatch,
    sums_frames: bool = False,
) -> Tensor:
    """The teacher-forced loss of a whole clip, piece by piece; see `RolloutTask` for `decode` and `sums_frames`."""
    encoder, core = parts
    total, state, steps = torch.zeros((), device=batch.frames.device), None, batch.num_steps - 1
    for start in range(0, steps, PIECE):
        piece = batch.slice_time(start, min(start + PIECE, steps) + 1)
        out = core(encoder(piece.slice_time(0, piece.num_steps - 1)), state)
        decoded = decode(out, piece)
        share = (piece.num_steps - 1) / steps
        if sums_frames:
            own = {name: term * share for name, term in decoded.losses.items()}
            total = total + loss(replace(decoded, losses=own), piece)
        else:
            total = total + loss(decoded, piece) * share
        state = out.state
    return total


def simple_predictions(
    context: Float[Tensor, "batch time channels height width"], horizon: int
) -> dict[str, Float[Tensor, "batch horizon channels height width"]]:
    """Baselines of a prediction, by name: the last frame seen, black, and the mean grey of what was seen."""
    frames = {
        "copy the last frame": context[:, -1:],
        "black": torch.zeros_like(context[:, -1:]),
        # of all frames of one grey, this one has the least squared error
        "grey, mean of the context": context.mean(dim=(1, 3, 4), keepdim=True).expand_as(context[:, -1:]),
    }
    return {name: frame.expand(-1, horizon, -1, -1, -1) for name, frame in frames.items()}


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
