"""The scores of `slotbench test RUN` in the Weights & Biases run that mirrors the training."""

from __future__ import annotations

from lightning.pytorch import Callback, LightningModule, Trainer

from slotbench.callbacks.loggers import WandbOptions, exit_code, say, wandb_logger
from slotbench.runs.folder import RunFolder
from slotbench.yaml_files import read_yaml

__all__ = ["WandbTest"]


class WandbTest(Callback):
    """Adds the scores of a test to the summary of the run's W&B run, under `test/...`, once the test has ended.

    Offline that is one more folder in `RUN/wandb`, with the run's id. A run that is still trained is left alone: its
    own process holds the W&B run. What keeps W&B from taking the scores is a note on stderr; the record has them.

    Args:
        folder: the run.
        mode: "offline" or "online".
        project: W&B project; None for that of the run.
        options: entity, tags and notes.
    """

    def __init__(self, folder: RunFolder, mode: str, project: str | None, options: WandbOptions | None = None) -> None:
        self._folder, self._mode, self._project, self._options = folder, mode, project, options

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Writes the scores; it is not called if the test has failed."""
        scores = {
            name if name.startswith("test/") else f"test/{name}": float(value)
            for name, value in trainer.callback_metrics.items()
            if value.numel() == 1
        }
        if not trainer.is_global_zero or not scores:
            return
        state = self._folder.state
        if state in ("starting", "running"):
            say("W&B: the run is still being trained; the scores of this test are in its record alone")
            return
        config = read_yaml(self._folder.path / "config.yaml")
        mirror = wandb_logger(self._folder, self._mode, self._project, config, self._options, trains=False)
        if mirror is None:
            return
        import wandb

        try:
            mirror.experiment.summary.update(scores)
            mirror.close(exit_code(state))
        except (wandb.Error, OSError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            say(f"W&B: {reason}; the scores of this test are in its record alone")
