"""Every use of a private name of Lightning, in one file.

Lightning has no public way to do this. A new version may rename any of it without notice, so pyproject.toml
bounds the version from above, and `tests/test_lightning_compat.py` shows for each name what breaks without it.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import WeightAveraging
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.loops.fit_loop import _FitLoop
from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop

__all__ = [
    "ClosableWandbLogger",
    "FinalStep",
    "SettledCLI",
    "end_after_this_step",
    "evaluate_with_ordinary_tensors",
    "follow_until_averaged",
    "restore_loader_position",
    "run_validation",
    "validate_after_last_step",
]


class SettledCLI(LightningCLI):
    """LightningCLI that lays no checkpoint's settings over the given ones, and can stop at the parsed configuration.

    Attributes:
        parses_only: whether to leave out the seed and the command.
    """

    parses_only = False

    def parser_of(self, command: str) -> LightningArgumentParser:
        """The parser of one command."""
        return self._parser(command)

    def _parse_ckpt_path(self) -> None:
        """Leaves the configuration as the user gave it."""

    def _set_seed(self) -> None:
        if not self.parses_only:
            super()._set_seed()

    def _run_subcommand(self, subcommand: str) -> None:
        if not self.parses_only:
            super()._run_subcommand(subcommand)


class ClosableWandbLogger(WandbLogger):
    """Lightning's W&B logger, which can end its W&B run with an exit code of choice.

    Args:
        init: the arguments of `wandb.init`.
    """

    def __init__(self, init: dict[str, Any]) -> None:
        super().__init__(**init)
        # Lightning passes it on though wandb only warns about it
        self._wandb_init.pop("anonymous", None)

    @property
    def is_open(self) -> bool:
        """Whether there is a W&B run that has not been closed."""
        return self._experiment is not None

    def close(self, exit_code: int) -> None:
        """Closes the W&B run, if there is one, so that its end is on disk before the process exits."""
        if self._experiment is not None:
            self._experiment.finish(exit_code=exit_code)
            self._experiment = None


def end_after_this_step(trainer: Trainer, end: bool = True) -> None:
    """Has the training end once all that belongs to this step is done, as Lightning does after SIGTERM; or takes it
    back."""
    trainer._signal_connector.received_sigterm = end


def evaluate_with_ordinary_tensors(trainer: Trainer) -> None:
    """Has validation, test and prediction run without gradients, but not in torch's inference mode.

    A tensor that is made in that mode may never be changed outside of it nor take part in a training: whatever metrics,
    parts or callbacks keep of an evaluation would end the training after it.
    """
    for loop in (trainer.validate_loop, trainer.test_loop, trainer.predict_loop):
        loop.inference_mode = False


def follow_until_averaged(trainer: Trainer, module: LightningModule) -> None:
    """Has averages of weights that have not begun be the weights themselves.

    Lightning validates, saves and ends with the average, and until it begins that is the model as it was drawn.
    """
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    for callback in callbacks:
        if not isinstance(callback, WeightAveraging) or callback._average_model is None:
            continue
        # what the callback counts is on the host, but a resumed one has forgotten its epochs
        has_begun = callback._latest_update_step > 0 or callback._latest_update_epoch >= 0
        if not has_begun and callback._average_model.n_averaged == 0:
            current = {**dict(module.named_parameters()), **dict(module.named_buffers())}
            average = callback._average_model.module
            for name, kept in (*average.named_parameters(), *average.named_buffers()):
                kept.detach().copy_(current[name].detach())


def restore_loader_position(trainer: Trainer) -> None:
    """Tells the data loader where it was when the checkpoint was made.

    Lightning does so as it makes the loader, and by then has not read the position if the number of steps was asked for
    before, as a learning rate schedule does.
    """
    loop = trainer.fit_loop
    if loop._combined_loader_states_to_load and loop._data_fetcher is not None:
        loop._load_combined_loader_states()
        iter(loop._data_fetcher)


@runtime_checkable
class FinalStep(Protocol):
    """What knows whether the weights of the last step are still to be validated."""

    validated_step: int | None

    def is_due(self, trainer: Trainer) -> bool:
        """Whether they are."""
        ...


def validate_after_last_step(trainer: Trainer, final: FinalStep) -> None:
    """Has the training loop validate the final weights if that is due, however the training comes to its end.

    `trainer.validate` after `fit` gives the same scores, and does not replace this:

    - Lightning's ModelCheckpoint and EarlyStopping ignore validations outside of `fit`, so that the final weights could
      not become the best checkpoint; the row of scores would have the number of the next step.
    - `fit` calls `on_fit_end` before: state, result, curves and report of a run would be written without these scores,
      and a run killed between the two calls would count as finished. By then the strategy is torn down, so that no
      callback can validate in `on_fit_end` either.
    - A training that is resumed at its last step skips its loop, and with it the hooks of its end.

    `trainer.should_stop`, set at the last step, makes Lightning validate there and also log a row of training losses
    that `log_every_n_steps` leaves out; it does nothing for a training resumed at its last step.
    """
    loop: Any = trainer.fit_loop
    if type(loop) is _FitLoop and type(loop.epoch_loop) is _TrainingEpochLoop:
        loop.__class__, loop.epoch_loop.__class__ = _EndingLoop, _EndingEpochLoop
    if isinstance(loop, _EndingLoop):
        loop.final = loop.epoch_loop.final = final  # type: ignore[attr-defined]


def run_validation(trainer: Trainer) -> None:
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

    final: FinalStep

    @property
    def skip(self) -> bool:
        """Whether nothing is to be done at all; a training that is at its last step still has its end before it."""
        return self.max_batches == 0 or self.trainer.limit_train_batches == 0

    def on_run_end(self) -> None:
        """Validates if that is due, then ends."""
        if self.final.is_due(self.trainer):
            run_validation(self.trainer)
        super().on_run_end()


class _EndingEpochLoop(_TrainingEpochLoop):
    """Lightning's loop over the steps of an epoch, which validates after the last step of all."""

    final: FinalStep

    def _should_check_val_fx(self, data_fetcher: Any) -> bool:
        if super()._should_check_val_fx(data_fetcher) or (self._is_at_the_end() and self.final.is_due(self.trainer)):
            return True
        # a training that was to end here, and is resumed: Lightning counts the step only if it finds a validation due
        return self.restarting and self.restarted_on_last and self.final.validated_step == self.global_step

    def _is_at_the_end(self) -> bool:
        trainer = self.trainer
        if self._should_accumulate():
            return False
        in_last_epoch = trainer.max_epochs is not None and trainer.current_epoch + 1 == trainer.max_epochs
        return self.global_step == self.max_steps or (self._num_ready_batches_reached() and in_last_epoch)
