"""What made-up tasks draw, as a task of slotbench has it drawn in evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from lightning.pytorch.utilities.seed import isolate_rng

from slotbench.interfaces import Segmenter, VideoBatch


class DrawnByBatch(Segmenter):
    """Draws alike for the same batch of a split."""

    @contextmanager
    def deterministic_sampling(self, batch: VideoBatch, seed: int) -> Iterator[None]:
        with isolate_rng():
            torch.manual_seed(seed)
            yield
