"""The validation of the final weights, after the last step of a training."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from slotbench.lightning_compat import counted_steps

__all__ = ["FinalValidation", "is_last_step"]


def is_last_step(trainer: Trainer) -> bool:
    """Whether the step that has just been made is the last one of the training."""
    of_epochs = trainer.max_epochs is not None and trainer.current_epoch + 1 == trainer.max_epochs
    return trainer.global_step == trainer.max_steps or (trainer.is_last_batch and of_epochs)


class FinalValidation(Callback):
    """Validates after the last step too, however many steps lie between two validations.

    Lightning validates before it ends a training that is told to stop, so the last step tells it. A checkpoint of such
    a validation lacks one in Lightning's count of steps, by which rows are filed, if the training is made longer.
    """

    def __init__(self, enabled: bool = True) -> None:
        self.enabled = enabled
        self._ended = self._is_continued = False
        self._counted = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._is_continued, self._ended = self._ended, False
        self._counted = counted_steps(trainer)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Mends the count of a training that goes on after its end."""
        if self._is_continued and counted_steps(trainer) == self._counted:
            counted_steps(trainer, add=1)
        self._is_continued = False

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        """Tells Lightning to stop after the last step."""
        if self.enabled and is_last_step(trainer):
            trainer.should_stop = self._ended = True

    def state_dict(self) -> dict[str, Any]:
        return {"ended": self._ended}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._ended = state_dict["ended"]
