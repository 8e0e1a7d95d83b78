"""Roll-outs of models of codes: the frozen tokenizer as a part, and the oracle that its codes are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

from torch import Tensor, nn

from slotbench.interfaces import Tokenizer, VideoBatch
from slotbench.tasks.codes.frozen_tokenizer import check_stored_codes, fit_frozen_tokenizer, frame_codes
from slotbench.tasks.rollouts.rollout_task import RolloutTask

__all__ = ["CodeRolloutTask"]


class CodeRolloutTask(RolloutTask):
    """A task of roll-outs whose model predicts the codes of a frozen tokenizer; a subclass sets `tokenizer`.

    Scores stand beside an oracle, the true frames as the tokenizer brings them back.
    """

    tokenizer: Tokenizer

    @property
    def parts(self) -> Mapping[str, nn.Module]:
        """Encoder, core, decoder and tokenizer."""
        return {**super().parts, "tokenizer": self.tokenizer}

    def train(self, mode: bool = True) -> Self:
        """Into training mode or out of it, without the tokenizer, which is frozen."""
        super().train(mode)
        self.tokenizer.eval()
        return self

    def on_fit_start(self) -> None:
        """Fits a tokenizer that is fitted before the training."""
        super().on_fit_start()
        fit_frozen_tokenizer(self.tokenizer, self.trainer)

    def on_train_batch_start(self, batch: VideoBatch, batch_idx: int) -> None:
        """Checks that codes which the data set stores are this tokenizer's."""
        super().on_train_batch_start(batch, batch_idx)
        if batch_idx == 0:
            check_stored_codes(self.tokenizer, batch)

    def score(self, batch: VideoBatch, scores: Any) -> Tensor:
        """Scores the roll-out of a batch, of which each frame is encoded once."""
        check_stored_codes(self.tokenizer, batch)
        return super().score(replace(batch, codes=frame_codes(self.tokenizer, batch)), scores)

    def _references(self, batch: VideoBatch) -> dict[str, Tensor]:
        future = frame_codes(self.tokenizer, batch)[:, self.context : self.context + self.horizon]
        return super()._references(batch) | {
            "oracle|frames from their true codes": self.tokenizer.decode(future).float()
        }
