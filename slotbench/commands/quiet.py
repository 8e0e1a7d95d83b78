"""Keeps what Lightning says on every run, and what nobody can act on, out of the way of what matters."""

from __future__ import annotations

import logging
import os
import re
import sys
import warnings

__all__ = ["hush"]

# Starts of log lines: advertisements, and facts that our own opening lines say in one line.
_CHATTER = (
    "💡 Tip",
    "GPU available",
    "TPU available",
    "HPU available",
    "Seed set to",
    "Loading `train_dataloader`",
    "`Trainer.fit` stopped",
    "Restoring states from",
    "Restored all states",
    "Loaded model weights",
    "\nDetected KeyboardInterrupt",
)
# Starts of warnings.
_KNOWN = (
    # a shim inside Lightning, for torch 2.13
    r".*`isinstance\(treespec, LeafSpec\)` is deprecated",
    # samples are simulated while the device works, in the training process on purpose
    r".*does not have many workers",
    # a run of few batches still has a curve: one point per epoch
    r".*The number of training batches .* is smaller than the logging interval",
    # an evaluation needs no callbacks of the training
    r".*Be aware that when using `ckpt_path`, callbacks used to create the checkpoint",
    # the weights that are evaluated are the averaged ones, as they should be
    r"You're using the WeightAveraging callback, but loading a checkpoint outside",
    # wherever SLURM is installed: whether to use it is the user's choice
    r"The `srun` command is available on your system but is not used",
    # the folder is made before training starts
    r".*Checkpoint directory .* exists and is not empty",
)


def _is_news(record: logging.LogRecord) -> bool:
    message = re.sub(r"^\[rank: \d+\] ", "", record.getMessage())
    return not message.startswith(_CHATTER)


def hush() -> None:
    """Drops the known noise; every other message and warning still comes through."""
    for name in ("lightning", "lightning.pytorch", "lightning.fabric"):
        # on the handler: a filter on a logger does not see what its children pass on
        for handler in logging.getLogger(name).handlers:
            handler.addFilter(_is_news)
            if isinstance(handler, logging.StreamHandler):
                # it holds what was stderr when Lightning was imported, which a notebook may have closed since
                handler.stream = sys.stderr
    # Lightning calls functions that its parser is going to rename; the versions are pinned
    os.environ.setdefault("JSONARGPARSE_DEPRECATION_WARNINGS", "off")
    for message in _KNOWN:
        warnings.filterwarnings("ignore", message=message)
