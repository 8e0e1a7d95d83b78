"""A validation of the weights that the training ends with."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loops.fit_loop import _FitLoop
from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop
from lightning.pytorch.trainer.states import TrainerFn

__all__ = ["FinalValidation"]


class FinalValidation(Callback):
    """Validates after the last step, unless that step was validated: the final weights have scores.

    Lightning validates every so many steps, and a training whose last step is no multiple of that ends with weights
    that nobody has looked at. Here the validation is one that is due after the last step, like any other. Where nobody
    can know that a step is the last (a callback ends the training between two validations), it is made at the end.

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
        loop = trainer.fit_loop
        if stage == "fit" and type(loop) is _FitLoop and type(loop.epoch_loop) is _TrainingEpochLoop:
            loop.__class__, loop.epoch_loop.__class__ = _EndingLoop, _EndingEpochLoop
        if isinstance(loop, _EndingLoop):
            loop.final = loop.epoch_loop.final = self  # type: ignore[attr-defined]

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
            and self in trainer.callbacks  # type: ignore[attr-defined]  # a search for a learning rate trains without
            and trainer.global_step > 0
            and self.validated_step != trainer.global_step
            and trainer.enable_validation
        )

    def run(self, trainer: Trainer) -> None:
        """Validates, as Lightning does after a step."""
        epochs, progress = trainer.fit_loop.epoch_loop, trainer.fit_loop.epoch_progress.current
        first_iteration = trainer._logger_connector._first_loop_iter
        trainer.validating = True
        # the loop has counted the last step already, as a rule, and a validation belongs to the step that it follows
        counted = epochs._batches_that_stepped
        epochs._batches_that_stepped = min(counted, trainer.global_step - 1)
        epochs.val_loop.restarting = False
        completed, progress.completed = progress.completed, max(0, progress.ready - 1)
        try:
            epochs.val_loop.run()
        finally:
            epochs._batches_that_stepped = counted
            progress.completed = completed
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
        if self.final.is_due(self.trainer):
            self.final.run(self.trainer)
        super().on_run_end()


class _EndingEpochLoop(_TrainingEpochLoop):
    """Lightning's loop over the steps of an epoch, which validates after the last step of all."""

    final: FinalValidation

    def _should_check_val_fx(self, data_fetcher: Any) -> bool:
        if super()._should_check_val_fx(data_fetcher) or (self._is_at_the_end() and self.final.is_due(self.trainer)):
            return True
        # a training that was to end here, and goes on now: Lightning counts the step only if it finds a validation due
        return self.restarting and self.restarted_on_last and self.final.validated_step == self.global_step

    def _is_at_the_end(self) -> bool:
        trainer = self.trainer
        if self._should_accumulate():
            return False
        in_last_epoch = trainer.max_epochs is not None and trainer.current_epoch + 1 == trainer.max_epochs
        return self.global_step == self.max_steps or (self._num_ready_batches_reached() and in_last_epoch)
