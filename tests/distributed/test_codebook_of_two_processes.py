"""The codebook of VQVAE follows the vectors of two processes as those of one, and restarts alike in both."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest
import torch
from forked import Forked
from slotbench_plugins.tokenizers.vqvae import VQVAE
from torch import Tensor
from two_processes import PROCESSES, meet, part

from slotbench.interfaces import VideoSpec

pytestmark = pytest.mark.slow


def codebooks(rank: int, processes: int) -> list[dict[str, Tensor]]:
    """The state after some batches, of which a process reads its share: without restarts, and with many."""
    found = []
    for restart_below in (0.0, 0.8):
        torch.manual_seed(0)
        model = VQVAE(VideoSpec(3, 8, 8), 12, 4, 8, 4, 1, restart_below=restart_below).double()
        model.counts.copy_(torch.linspace(1, 8, 12))  # the mean use is 16 / 3
        model.sums.copy_(model.counts[:, None] * model.codebook)
        torch.manual_seed(rank)  # what each draws is its own
        for batch in torch.rand(3, 8, 2, 3, 8, 8, generator=torch.Generator().manual_seed(1)).double():
            model(batch.chunk(processes)[rank])
        found.append(deepcopy(model.state_dict()))
    return found


def work(rank: int, folder: str) -> None:
    meet(rank, folder)
    part(rank, folder, {"found": codebooks(rank, PROCESSES)})


def test_averages_are_of_the_vectors_of_all_processes(tmp_path: Path) -> None:
    both = [Forked(work, rank, str(tmp_path)) for rank in range(PROCESSES)]
    alone = codebooks(0, 1)
    for process in both:
        process.output(timeout=600)
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True)["found"] for rank in range(PROCESSES))
    for name in ("codebook", "counts", "sums"):
        torch.testing.assert_close(first[0][name], alone[0][name], msg=name)
        for one, other in zip(first, second, strict=True):
            assert torch.equal(one[name], other[name]), name
    assert not torch.equal(first[0]["codebook"], first[1]["codebook"])
