"""The validation of the final weights, after the last step of a training."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

__all__ = ["FinalValidation", "is_last_step"]


def is_last_step(trainer: Trainer) -> bool:
    """Whether the step that has just been made is the last one of the training."""
    of_epochs = trainer.max_epochs is not None and trainer.current_epoch + 1 == trainer.max_epochs
    return trainer.global_step == trainer.max_steps or (trainer.is_last_batch and of_epochs)


class FinalValidation(Callback):
    """Validates after the last step too, however many steps lie between two validations.

    Lightning validates before it ends a training that is told to stop, so the last step tells it.

    Args:
        enabled: whether to.
    """

    def __init__(self, enabled: bool = True) -> None:
        self.enabled = enabled

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Tells Lightning to stop after the last step."""
        if self.enabled and is_last_step(trainer):
            trainer.should_stop = True
