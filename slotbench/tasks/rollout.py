"""Going on alone: frames predicted one by one, each from the one predicted before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from torch import Tensor

from slotbench.interfaces import Decoded, Decoder, Encoder, State, TemporalCore, VideoBatch

__all__ = ["Feedback", "roll_out"]

Feedback = Literal["probability", "threshold"]
"""What goes back in: the predicted frame, or black and white, whichever is nearer."""


def roll_out(
    parts: tuple[Encoder, TemporalCore, Decoder],
    paint: Callable[[Decoded], Tensor],
    batch: VideoBatch,
    context: int,
    horizon: int,
    feedback: Feedback,
    piece: int,
) -> Iterator[Decoded]:
    """Reads the context at once, and predicts frames as they are asked for.

    Of the frames and the time of the batch, only the first `context` are read; actions, where there are any, are read
    for every predicted frame, because they are given and not predicted.

    Args:
        parts: encoder, core and decoder.
        paint: frames in [0, 1] from what the decoder says.
        batch: clips of at least `context` frames.
        context: frames to read.
        horizon: frames to predict.
        feedback: what goes back in.
        piece: frames of the context to read at a time.

    Returns:
        an iterator over the predictions: a frame in [0, 1] "batch 1 channels height width", with the decoder's masks.

    Raises:
        ValueError: the clips are shorter than the context.
    """
    if batch.num_steps < context:
        raise ValueError(
            f"a roll-out from {context} context frames needs clips of at least as many, and these have "
            f"{batch.num_steps}: lower context, or make the clips longer"
        )
    encoder, core, decoder = parts
    state: State | None = None
    for start in range(0, context, piece):
        out = core(encoder(batch.slice_time(start, min(start + piece, context))), state)
        slots, state = out.slots[:, -1:], out.state

    def go_on(slots: Tensor, state: State) -> Iterator[Decoded]:
        start = batch.time[:, context - 1 : context]
        for step in range(1, horizon + 1):
            decoded = decoder(slots)
            frame = paint(decoded)
            yield Decoded(frame, decoded.masks)
            if step < horizon:
                seen = (frame > 0.5).to(frame) if feedback == "threshold" else frame
                here = context + step - 1
                actions = None if batch.actions is None else batch.actions[:, here : here + 1]
                out = core(encoder(VideoBatch(seen, start + step, actions=actions)), state)
                slots, state = out.slots, out.state

    return go_on(slots, state)
