"""A validation of the weights that the training ends with."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loops.fit_loop import _FitLoop
from lightning.pytorch.trainer.states import TrainerFn

__all__ = ["FinalValidation"]


class FinalValidation(Callback):
    """Validates after the last step, unless that step was validated: the final weights have scores.

    Lightning validates every so many steps, and a training whose last step is no multiple of that ends with weights
    that nobody has looked at. The scores are logged under the last step, as those of a validation that is due there.

    A training that goes on from a checkpoint of its last step, because it was killed before it could end, is ended like
    any other: with this validation, and with the hooks for the end of the training, which Lightning would leave out.

    Args:
        enabled: whether to validate; without it the other hooks are called all the same.
    """

    def __init__(self, enabled: bool = True) -> None:
        self.enabled = enabled
        self.validated_step: int | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Has the training loop ask before it ends."""
        if stage == "fit" and type(trainer.fit_loop) is _FitLoop:
            trainer.fit_loop.__class__ = _EndingLoop
        if isinstance(trainer.fit_loop, _EndingLoop):
            trainer.fit_loop.final = self

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Remembers the step."""
        if trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking:
            self.validated_step = trainer.global_step

    def state_dict(self) -> dict[str, Any]:
        """The step of the last validation, so that a run that goes on does not do it again."""
        return {"validated_step": self.validated_step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes up the step of the last validation."""
        self.validated_step = state_dict["validated_step"]

    def is_due(self, trainer: Trainer) -> bool:
        """Whether the weights of the last step have not been validated and are to be."""
        return (
            self.enabled
            and trainer.global_step > 0
            and self.validated_step != trainer.global_step
            and trainer.enable_validation
        )

    def run(self, trainer: Trainer) -> None:
        """Validates, as Lightning does after a step."""
        epochs = trainer.fit_loop.epoch_loop
        first_iteration = trainer._logger_connector._first_loop_iter
        trainer.validating = True
        # the loop has counted the last step already, as a rule, and a validation belongs to the step that it follows
        counted = epochs._batches_that_stepped
        epochs._batches_that_stepped = min(counted, trainer.global_step - 1)
        epochs.val_loop.restarting = False
        try:
            epochs.val_loop.run()
        finally:
            epochs._batches_that_stepped = counted
            trainer.training = True
            trainer._logger_connector._first_loop_iter = first_iteration


class _EndingLoop(_FitLoop):
    """Lightning's training loop, with an end that is never left out."""

    final: FinalValidation

    @property
    def skip(self) -> bool:
        """Whether nothing is to be done at all; a training that is at its last step still has its end before it."""
        return self.max_batches == 0 or self.trainer.limit_train_batches == 0

    def on_run_end(self) -> None:
        """Validates if that is due, then ends."""
        # a search for a learning rate trains without the callbacks
        if self.final in self.trainer.callbacks and self.final.is_due(self.trainer):  # type: ignore[attr-defined]
            self.final.run(self.trainer)
        super().on_run_end()
