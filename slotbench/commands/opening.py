"""What is said when a command starts: which run, which model, on what."""

from __future__ import annotations

from pathlib import Path

import torch
from lightning.pytorch import Trainer

from slotbench.data.base import SlotDataModule
from slotbench.nn.parameters import trainable_parameters
from slotbench.tasks.base import SlotTask
from slotbench.text import one_line

__all__ = ["opening"]


def opening(
    command: str,
    task: SlotTask,
    data: SlotDataModule,
    trainer: Trainer,
    folder: Path | None,
    step: int | None = None,
    checkpoint: str | None = None,
) -> str:
    """Five lines: the run folder, the parts of the model, their trainable parameters, the data, the device.

    A sixth says after which step a run goes on, or whose weights are evaluated, if it does.
    """
    parts = " -> ".join(type(part).__name__ for part in (task.encoder, task.core, task.decoder))
    counts = trainable_parameters(task)
    total = counts.pop("total")
    sizes = " + ".join(f"{name} {count:,}" for name, count in counts.items())
    return "\n".join(
        one_line(line)
        for line in [
            f"{command}{f' {folder}' if folder else ''}",
            f"  task    {type(task).__name__}: {parts}",
            f"  size    {f'{sizes} = ' if sizes else ''}{total:,} trainable parameters",
            f"  data    {type(data).__name__}",
            f"  device  {_device(trainer)}",
            *([f"  goes on after step {step:,}"] if step is not None else []),
            *([f"  weights {checkpoint}"] if checkpoint is not None else []),
        ]
    )


def _device(trainer: Trainer) -> str:
    device = trainer.strategy.root_device
    processes = f" x {trainer.world_size}" if trainer.world_size > 1 else ""
    if device.type == "cpu":
        threads = torch.get_num_threads()
        return f"CPU{processes}, {threads} thread{'' if threads == 1 else 's'}"
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
    return f"{name}{processes}, {trainer.precision}"
