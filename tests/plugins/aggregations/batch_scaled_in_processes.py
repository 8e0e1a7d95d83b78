"""What each process of a distributed run does in the test of `BatchScaled`."""

from __future__ import annotations

from pathlib import Path

import torch
from slotbench_plugins.aggregations.batch_scaled import BatchScaled
from torch import Tensor, nn

SHARES = (1, 3)
"""Clips of each process: as many as there are processes, and not the same."""


def batch() -> tuple[Tensor, Tensor]:
    """Logits "batch slots tokens" and values "batch tokens dim" of all processes."""
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)  # noqa: E731
    return draw(sum(SHARES), 3, 5), 3 * draw(sum(SHARES), 5, 4) + 1


def loss(aggregation: nn.Module, logits: Tensor, values: Tensor) -> Tensor:
    """A sum over the clips, so that those of the processes add up."""
    return aggregation(logits.softmax(dim=1), values).sin().sum()


def work(rank: int, folder: str) -> None:
    """Runs a share of the batch, and saves updates' loss, gradient of the values, and running averages."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=len(SHARES)
    )
    logits, values = (part.split(SHARES)[rank].clone() for part in batch())
    values.requires_grad_()
    aggregation = BatchScaled(4).double()
    result = loss(aggregation, logits, values)
    result.backward()
    saved = (result.detach(), values.grad, aggregation.running_mean, aggregation.running_var)
    torch.save(saved, Path(folder) / f"{rank}.pt")
    torch.distributed.destroy_process_group()
