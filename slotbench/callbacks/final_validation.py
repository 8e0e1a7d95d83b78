"""The validation of the final weights, after the last step of a training."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.trainer.states import TrainerFn

from slotbench.lightning_compat import validate_after_last_step

__all__ = ["FinalValidation"]


class FinalValidation(Callback):
    """Validates after the last step, unless that step was validated: the final weights have scores.

    Lightning validates every so many steps, and a training whose last step is no multiple of that ends with weights
    without scores. Here a validation is due after the last step, like any other. Where a step turns out to be the last
    only later (a callback ends the training between two validations), the validation is made at the end.

    A training that is resumed from a checkpoint of its last step, because it was killed before it could end, is ended
    like any other: with this validation, and with the hooks for the end of the training, which Lightning would leave
    out.

    Args:
        enabled: whether to validate; without it the other hooks are called all the same.
    """

    def __init__(self, enabled: bool = True) -> None:
        self.enabled = enabled
        self.validated_step: int | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Makes the training loop ask before it ends."""
        if stage == "fit":
            validate_after_last_step(trainer, self)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Remembers the step."""
        if trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking:
            self.validated_step = trainer.global_step

    def state_dict(self) -> dict[str, Any]:
        """The step of the last validation, so that a resumed run does not repeat it."""
        return {"validated_step": self.validated_step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the step of the last validation."""
        self.validated_step = state_dict["validated_step"]

    def is_due(self, trainer: Trainer) -> bool:
        """Whether the weights of the last step have not been validated and are to be."""
        return (
            self.enabled
            and self in trainer.callbacks  # type: ignore[attr-defined]  # a search for a learning rate trains without
            and trainer.global_step > 0
            and self.validated_step != trainer.global_step
            and trainer.enable_validation
        )
