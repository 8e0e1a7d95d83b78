"""How long roll-outs are and how they are scored, and which actions and frames a model of them is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from slotbench.interfaces import Encoder, PartError, VideoBatch

__all__ = ["Conditions", "RolloutOptions"]


@dataclass(frozen=True)
class RolloutOptions:
    """Arguments that all tasks of roll-outs share.

    Args:
        context: true frames that a roll-out starts from.
        horizon: frames that it predicts.
        report_horizons: also log the mean scores of so many first frames of the horizon.
        quantise: score frames truncated to bytes, predicted and true; what is fed back stays as it is.
        group_size: clips per group in the test.
        short_context: also score roll-outs that read so many of the last frames of the context alone.
    """

    context: int = 10
    horizon: int = 20
    report_horizons: tuple[int, ...] = ()
    quantise: bool = False
    group_size: int = 256
    short_context: int | None = None

    def __post_init__(self) -> None:
        for name, count in {"context": self.context, "horizon": self.horizon}.items():
            if count < 1:
                raise ValueError(f"{name} is {count}; expected a number of frames, at least 1")
        if self.short_context is not None and not 1 <= self.short_context < self.context:
            known = f"expected 1 or more, and less than context, {self.context}"
            raise ValueError(f"short_context is {self.short_context}; {known}")


@dataclass(frozen=True)
class Conditions:
    """What the model is shown of a clip, in training and in evaluation.

    With causal masking the frames from number `frame_mask` on are hidden from the encoder in clips that have their
    actions, and the loss of such a clip is of these frames alone, in `TECO` by its `masked_loss`.

    Source: Smith et al., "Convolutional State Space Models for Long-Range Spatiotemporal Modeling", NeurIPS 2023,
    appendix D.5, and its code, which adds two sums of losses; here the loss is the mean over clips of each clip's mean.

    Args:
        drop_actions: probability that a clip is without its actions in training.
        frame_mask: number of the first frame that is hidden; None for no causal masking.
        eval_actions: whether roll-outs are given the actions.
    """

    drop_actions: float = 0.0
    frame_mask: int | None = None
    eval_actions: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.drop_actions <= 1:
            raise ValueError(f"drop_actions is a probability in [0, 1]; got {self.drop_actions}")
        if self.frame_mask is not None and self.frame_mask < 1:
            raise ValueError(f"frame_mask is {self.frame_mask}; expected the number of a frame, at least 1, or null")

    def check(self, encoder: Encoder | None, num_actions: int) -> None:
        """Refuses data without actions and encoders that cannot hide a frame; None where the task hides it itself."""
        if num_actions == 0 and (self.drop_actions or self.frame_mask is not None or not self.eval_actions):
            raise PartError("drop_actions, frame_mask and eval_actions need actions, and this data set has none")
        if self.frame_mask is not None and encoder is not None and not encoder.hides_frames:
            raise PartError(f"frame_mask: {type(encoder).__name__} cannot hide one: choose ActionConditionedEncoder")

    def of_training(self, batch: VideoBatch) -> VideoBatch:
        """The batch with the actions of some clips dropped, at random, and frames hidden in the others."""
        if self.drop_actions:
            kept = torch.rand(len(batch), device=batch.frames.device) >= self.drop_actions
        else:
            kept = torch.ones(len(batch), dtype=torch.bool, device=batch.frames.device)
        return self._shown(batch, kept)

    def of_evaluation(self, batch: VideoBatch) -> VideoBatch:
        """The batch as evaluations read it."""
        kept = torch.full((len(batch),), self.eval_actions, device=batch.frames.device)
        return self._shown(batch, kept)

    def mean_loss(
        self, loss: Callable[[slice, Bool[Tensor, " batch"] | None], Float[Tensor, ""]], batch: VideoBatch
    ) -> Float[Tensor, ""]:
        """The mean over clips of a loss that is of hidden frames alone where a clip has any.

        `loss` is the mean of some predictions, a slice of frames 1 to T - 1, of some clips; of all for None.
        """
        if batch.hidden is None:
            return loss(slice(None), None)
        assert self.frame_mask is not None
        masked = batch.hidden.any(1)
        parts = ((slice(self.frame_mask - 1, None), masked), (slice(None), ~masked))
        shares = [chosen.float().mean() * loss(steps, chosen) for steps, chosen in parts if chosen.any()]
        return torch.stack(shares).sum()

    def _shown(self, batch: VideoBatch, kept: Bool[Tensor, " batch"]) -> VideoBatch:
        if batch.actions is None or batch.hidden is not None:  # or it is as it should be
            return batch
        actions = batch.actions if kept.all() else batch.actions * kept[:, None, None].to(batch.actions)
        if self.frame_mask is None:
            return replace(batch, actions=actions)
        late = torch.arange(batch.num_steps, device=kept.device) >= self.frame_mask
        return replace(batch, actions=actions, hidden=kept[:, None] & late)
