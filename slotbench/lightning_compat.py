"""Every use of a private name of Lightning, in one file.

Lightning has no public way to do this. A new version may rename any of it without notice, so pyproject.toml
bounds the version from above, and `tests/test_lightning_compat.py` shows for each name what breaks without it.
"""

from __future__ import annotations

import math
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import GradientAccumulationScheduler, WeightAveraging
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import WandbLogger

__all__ = [
    "ClosableWandbLogger",
    "SettledCLI",
    "counted_steps",
    "end_after_this_step",
    "evaluate_with_ordinary_tensors",
    "follow_until_averaged",
    "planned_steps",
    "restore_position",
]


class SettledCLI(LightningCLI):
    """LightningCLI that lays no checkpoint's settings over the given ones, and can stop at the parsed configuration."""

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
    """Lightning's W&B logger, which can end its run with an exit code; `init` has the arguments of `wandb.init`."""

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


def counted_steps(trainer: Trainer, add: int = 0) -> int:
    """Steps by which Lightning files what is logged, after some are added."""
    loop = trainer.fit_loop.epoch_loop
    loop._batches_that_stepped += add
    return loop._batches_that_stepped


def end_after_this_step(trainer: Trainer, end: bool = True) -> None:
    """Has the training end after this step, as Lightning does after SIGTERM; or takes it back."""
    trainer._signal_connector.received_sigterm = end


def evaluate_with_ordinary_tensors(trainer: Trainer) -> None:
    """Has validation, test and prediction run without gradients, but not in torch's inference mode.

    A tensor that is made in that mode would end the training after it, if metrics, parts or callbacks keep it.
    """
    for loop in (trainer.validate_loop, trainer.test_loop, trainer.predict_loop):
        loop.inference_mode = False


def follow_until_averaged(trainer: Trainer, module: LightningModule) -> None:
    """Has averages of weights that have not begun be the weights themselves, and not the model as it was drawn."""
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


def planned_steps(trainer: Trainer, resumed: dict[str, Any] | None = None) -> int | None:
    """Optimiser steps of the whole training, counted from where a checkpoint stands; None if only the clock ends it.

    Lightning's own estimate takes the accumulation of this moment for that of every epoch.
    """
    steps, epochs = float(trainer.estimated_stepping_batches), trainer.max_epochs or 0  # makes the loader, too
    if epochs > 0 and math.isfinite(trainer.num_training_batches):
        steps = _steps_until(trainer, epochs)
        if resumed is not None and steps != resumed.get("total_steps"):
            # batches, devices or accumulation may have been others up to there
            steps += resumed["global_step"] - _steps_before(trainer, resumed["loops"]["fit_loop"])
        steps = steps if trainer.max_steps == -1 else min(steps, trainer.max_steps)
    return int(steps) if 0 <= steps < math.inf else None


def _steps_before(trainer: Trainer, loop: dict[str, Any]) -> int:
    """Optimiser steps that a training as it is now would have taken by the place of a checkpoint."""
    epochs, batches = loop["epoch_progress"]["current"]["ready"], loop["epoch_loop.batch_progress"]
    if batches["is_last_batch"]:
        return _steps_until(trainer, epochs)
    return _steps_until(trainer, epochs - 1, min(batches["current"]["ready"], int(trainer.num_training_batches)))


def _steps_until(trainer: Trainer, epoch: int, batches: int = 0) -> int:
    """Optimiser steps before that epoch, counted from 0, and of that many of its batches."""
    each = [math.ceil(trainer.num_training_batches / _accumulated(trainer, number)) for number in range(epoch)]
    return sum(each) + batches // _accumulated(trainer, epoch)


def _accumulated(trainer: Trainer, epoch: int) -> int:
    """Batches of an optimiser step in that epoch."""
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    schedule = next((callback for callback in callbacks if isinstance(callback, GradientAccumulationScheduler)), None)
    return trainer.accumulate_grad_batches if schedule is None else schedule.get_accumulate_grad_batches(epoch)


def restore_position(trainer: Trainer) -> None:
    """Lets a resumed training go on in the epoch, with the accumulation and at the batch where the checkpoint was made.

    After a checkpoint of an epoch's last batch Lightning begins no new epoch. It tells the loader its position as it
    makes it, and by then has not read that if the number of steps was asked for, as a learning rate schedule does.
    """
    loop = trainer.fit_loop
    current: Any = loop.epoch_progress.current
    if loop.restarted_mid_epoch and current.processed == current.ready:
        loop.reset_restart_stage()
        loop._combined_loader_states_to_load = []
    trainer.accumulate_grad_batches = _accumulated(trainer, trainer.current_epoch)
    if loop._combined_loader_states_to_load and loop._data_fetcher is not None:
        loop._load_combined_loader_states()
        iter(loop._data_fetcher)
