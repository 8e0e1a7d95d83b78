"""What became of each slot in the clips of a roll-out, its context included."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from slotbench.interfaces import CoreOutput, Decoded, Decoder, Encoder, TemporalCore, VideoBatch
from slotbench.tasks.rollouts.rollout import Feedback, painted_alone, roll_out
from slotbench.tasks.slot_story import SlotStory

__all__ = ["rollout_stories"]


def rollout_stories(
    parts: tuple[Encoder, TemporalCore, Decoder],
    paint: Callable[[Decoded], Tensor],
    batch: VideoBatch,
    context: int,
    horizon: int,
    feedback: Feedback,
) -> list[SlotStory]:
    """A story of each clip: the predictions that follow true frames, and then the roll-out.

    Step t is the reading of frame t and the painting of frame t + 1. The arguments are those of `roll_out`.
    """
    outputs: list[CoreOutput] = []
    steps = list(roll_out(parts, paint, batch, context, horizon, feedback, watch=outputs.append))
    output, last = _joined(outputs), context + horizon
    made = parts[2](output.slots)
    painted = paint(made)
    decoded = Decoded(painted, made.masks, painted_alone(made, paint))
    rolled = torch.cat([step.reconstruction for step in steps], dim=1)
    if feedback == "threshold":
        rolled = (rolled > 0.5).to(rolled)
    read = torch.cat([batch.frames[:, :context], rolled[:, :-1]], dim=1)
    return [
        SlotStory.of_clip(
            clip,
            (read, batch.frames[:, 1:last], painted),
            output,
            decoded,
            true_masks=None if batch.masks is None else batch.masks[:, 1:last],
            grid=parts[0].token_spec.grid,
            first=1,
            alone_from=context - 1,
            dark=True,
        )
        for clip in range(len(batch))
    ]


def _joined(outputs: list[CoreOutput]) -> CoreOutput:
    """The outputs of calls one after the other as that of one call."""
    attention = [output.attention for output in outputs if output.attention is not None]
    return CoreOutput(
        torch.cat([output.slots for output in outputs], dim=1),
        torch.cat(attention, dim=1) if attention else None,
        outputs[-1].state,
        outputs[-1].attention_kind,
        {name: torch.cat([output.details[name] for output in outputs], dim=1) for name in outputs[0].details},
    )
