"""A single-file plugin: a data set that takes its time, and one that fails as long as a file is missing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from slotbench.data.balls.bouncing_balls import BouncingBalls
from slotbench.data.base import LoaderOptions
from slotbench.registry import register


@register("datasets")
class SlowBalls(BouncingBalls):
    """Two balls on eight pixels.

    Args:
        pause: seconds before every batch of the training.
        needs: a file without which training fails; none if empty.
    """

    def __init__(self, pause: float = 0.0, needs: str = "", batch_size: int = 2) -> None:
        super().__init__(
            num_balls=2,
            num_frames=4,
            eval_frames=4,
            resolution=8,
            loader=LoaderOptions(batch_size, val_batch_size=2, train_size=64, val_size=2),
        )
        self.pause, self.needs = pause, needs

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        if self.trainer is not None and self.trainer.training:
            time.sleep(self.pause)
            if self.needs and not Path(self.needs).exists():
                raise RuntimeError(f"{self.needs} is missing, as the test wants it")
        return super().on_after_batch_transfer(batch, dataloader_idx)
