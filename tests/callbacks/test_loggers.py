"""Every logging call becomes a line of the folder."""

from __future__ import annotations

import torch
from tiny_run import TinyTask, fit

from slotbench.callbacks.loggers import RunFolderLogger
from slotbench.runs.folder import RunFolder


def test_line_has_step_epoch_seconds_and_the_values(folder: RunFolder) -> None:
    logger = RunFolderLogger(folder)
    logger.log_metrics({"epoch": 2.0, "loss": torch.tensor(0.5), "worst": float("nan")}, step=7)
    (line,) = folder.history()
    assert (line["step"], line["epoch"], line["loss"]) == (7, 2, 0.5)
    assert isinstance(line["epoch"], int)
    assert 0 <= line["seconds"] < 60
    assert line["worst"] != line["worst"]


def test_without_a_step_the_line_is_at_the_step_of_the_record(folder: RunFolder) -> None:
    folder.update(step=40)
    RunFolderLogger(folder).log_metrics({"loss": 1.0})
    assert folder.history()[0]["step"] == 40


def test_training_logs_every_step_and_every_validation(folder: RunFolder) -> None:
    fit(folder, TinyTask())
    history = folder.history()
    assert [row["step"] for row in history if "train/loss" in row] == list(range(12))
    assert [row["step"] for row in history if "val/score" in row] == [3, 7, 11]
    seconds = [row["seconds"] for row in history]
    assert seconds == sorted(seconds)
