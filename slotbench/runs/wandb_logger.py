"""Weights & Biases as a mirror of the run folder."""

from __future__ import annotations

import os
from typing import Any

from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.utilities import rank_zero_only

from slotbench.runs.folder import RunFolder, plain

__all__ = ["MODES", "RunWandbLogger", "wandb_logger"]

MODES = ("off", "offline", "online")


class RunWandbLogger(WandbLogger):
    """Lightning's logger, given the configuration once, and closed together with the run."""

    @rank_zero_only
    def log_hyperparams(self, params: Any) -> None:
        """Does nothing: the configuration was given at the start, and Lightning would add it a second time."""

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Closes the W&B run, so that its end is on disk before the process exits."""
        if self._experiment is not None:
            self._experiment.finish(exit_code=0 if status == "success" else 1)
            self._experiment = None


def wandb_logger(folder: RunFolder, mode: str, project: str, config: dict[str, Any]) -> RunWandbLogger:
    """A logger whose W&B run has the folder's name and group, and an id that the folder keeps.

    Its files go to `RUN/wandb`. They are flushed every second: wandb's own interval of 15 s would lose that much, the
    configuration included, when the process is killed.

    Args:
        folder: the run; its record gets "wandb_id", "wandb_mode" and "wandb_project".
        mode: "offline" (no account, no network) or "online".
        project: W&B project.
        config: the resolved configuration, nested.

    Raises:
        ValueError: another mode.
    """
    if mode not in MODES[1:]:
        raise ValueError(f"wandb mode is {mode!r}; expected one of {', '.join(MODES[1:])}")
    import wandb

    # environment variables of an offline session must not be overruled by a default of ours
    mode = "offline" if os.environ.get("WANDB_MODE") in ("offline", "dryrun") else mode
    info = folder.info
    wandb_id = info.get("wandb_id") or info["id"]
    folder.update(wandb_id=wandb_id, wandb_mode=mode, wandb_project=project)
    logger = RunWandbLogger(
        project=project,
        name=f"{info['name']}-{info['id']}",
        group=info.get("group"),
        id=wandb_id,
        save_dir=folder.path,
        mode=mode,
        config=plain(config),
        settings=wandb.Settings(
            x_transaction_log_flush_interval=1,
            # the terminal is ours: a progress bar would fill wandb's log of it
            console="off",
            silent=mode == "offline",
            quiet=True,
        ),
    )
    logger._wandb_init.pop("anonymous", None)  # Lightning passes it on though wandb only warns about it
    return logger
