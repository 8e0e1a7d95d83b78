"""A task small enough to train in a second, and a script that trains it, for tests that kill the process."""

from __future__ import annotations

import argparse
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, Checkpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from slotbench.callbacks.loggers import WandbOptions
from slotbench.callbacks.wiring import run_parts
from slotbench.interfaces import DataSpec, Headline, Reporter, VideoBatch, VideoSpec
from slotbench.runs.folder import RunFolder


class TinyData(Dataset):
    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Tensor:
        return torch.rand(8, 3, 4, 4, generator=torch.Generator().manual_seed(index))


def collate(clips: list[Tensor]) -> VideoBatch:
    return VideoBatch(torch.stack(clips), torch.arange(8).expand(len(clips), 8))


class TinyTask(LightningModule, Reporter):
    monitor: tuple[str, str] | None = ("val/score", "max")

    def __init__(self, pause: float = 0.0, fail_at: int | None = None, width: int = 4) -> None:
        super().__init__()
        self.save_hyperparameters()
        # four steps make a frame
        video = VideoSpec(3, 4, 4, patches_per_side=2)
        self.data_spec = DataSpec(video, video)
        self.encoder = nn.Linear(48, width)
        self.decoder = nn.Linear(width, 48)
        self.pause, self.fail_at = pause, fail_at
        self.baselines: dict[str, float] = {}

    @property
    def total_steps(self) -> int | None:
        return self.trainer.max_steps

    def _loss(self, batch: VideoBatch) -> Tensor:
        flat = batch.pixels.flatten(2)
        return (self.decoder(self.encoder(flat)) - flat).square().mean()

    def training_step(self, batch: VideoBatch, batch_idx: int) -> Tensor:
        if self.fail_at == self.global_step:
            raise RuntimeError("shapes do not fit\nexpected 3, got 4")
        time.sleep(self.pause)
        loss = self._loss(batch)
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch: VideoBatch, batch_idx: int) -> None:
        loss = self._loss(batch)
        self.log_dict({"val/loss": loss, "val/score": 1 - loss}, batch_size=len(batch))
        self.baselines = {"always grey": 0.9, "always black": 0.7}

    def test_step(self, batch: VideoBatch, batch_idx: int) -> None:
        self.log("val/score", 1 - self._loss(batch), batch_size=len(batch))

    def predict_step(self, batch: VideoBatch, batch_idx: int) -> Tensor:
        return self._loss(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-2)

    def headlines(self) -> list[Headline]:
        return [Headline("val/score", "how grey", self.baselines)]

    def pictures(self, batch: VideoBatch) -> dict[str, np.ndarray]:
        torch.rand(1)  # a task may draw random numbers here
        return {"clips": np.full((4, 4 * len(batch), 3), 127, dtype=np.uint8)}


def loader(size: int = 64, workers: int = 0) -> DataLoader:
    return DataLoader(TinyData(size), batch_size=8, collate_fn=collate, num_workers=workers)


def make_trainer(loggers: list[Any], callbacks: list[Callback], **settings: Any) -> Trainer:
    defaults: dict[str, Any] = {
        "accelerator": "cpu",
        "enable_model_summary": False,
        "enable_checkpointing": any(isinstance(callback, Checkpoint) for callback in callbacks),
        "log_every_n_steps": 1,
        "max_epochs": -1,
        "num_sanity_val_steps": 1,
        "check_val_every_n_epoch": None,
    }
    return Trainer(logger=loggers or False, callbacks=callbacks, **(defaults | settings))


def fit(
    folder: RunFolder,
    task: LightningModule,
    *,
    wandb: str = "off",
    wandb_options: WandbOptions | None = None,
    workers: int = 0,
    **settings: Any,
) -> Trainer:
    config = {"model": {"class_path": "TinyTask", "init_args": {"width": 4}}, "seed_everything": 0}
    loggers, callbacks = run_parts(
        folder, wandb=wandb, wandb_project="tests", config=config, wandb_options=wandb_options
    )
    trainer = make_trainer(loggers, callbacks, **({"max_steps": 12, "val_check_interval": 4} | settings))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*does not have many workers.*")
        trainer.fit(task, loader(workers=workers), loader(16))
    return trainer


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--processes", type=int, default=1, help="runs, each in a process forked after the imports")
    parser.add_argument("--pause", type=float, default=0.002)
    parser.add_argument("--wandb", default="off")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--val_check_interval", type=int, default=4)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for _ in range(arguments.processes - 1):
        if (child := os.fork()) == 0:
            break
        os.waitpid(child, 0)  # the test kills it
    folder = RunFolder.create(arguments.root, "tiny")
    fit(
        folder,
        TinyTask(pause=arguments.pause),
        wandb=arguments.wandb,
        workers=arguments.workers,
        max_steps=arguments.steps,
        val_check_interval=arguments.val_check_interval,
    )


if __name__ == "__main__":
    main()
