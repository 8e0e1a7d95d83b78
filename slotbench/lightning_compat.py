"""Every use of a private name of Lightning, in one file.

Lightning has no public way to do this. A new version may rename any of it without notice, so pyproject.toml
bounds the version from above, and `tests/test_lightning_compat.py` shows for each name what breaks without it.
"""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import WeightAveraging
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import WandbLogger

__all__ = [
    "ClosableWandbLogger",
    "SettledCLI",
    "counted_steps",
    "end_after_this_step",
    "evaluate_with_ordinary_tensors",
    "follow_until_averaged",
    "restore_loader_position",
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


def restore_loader_position(trainer: Trainer) -> None:
    """Tells the data loader where it was when the checkpoint was made.

    Lightning does so as it makes the loader, and by then has not read the position if the number of steps was asked for
    before, as a learning rate schedule does.
    """
    loop = trainer.fit_loop
    if loop._combined_loader_states_to_load and loop._data_fetcher is not None:
        loop._load_combined_loader_states()
        iter(loop._data_fetcher)
