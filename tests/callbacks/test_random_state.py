"""The numbers drawn after a checkpoint are drawn again by a run that goes on from it."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.trainer.states import TrainerFn
from tiny_run import TinyTask

from slotbench.callbacks.random_state import RandomState


class Process(Trainer):
    """What the callback sees of a trainer, and nothing else."""

    world_size = 1
    global_rank = 0
    strategy: Any = SimpleNamespace(root_device=torch.device("cpu"))

    def __init__(self, world_size: int, global_rank: int) -> None:
        self.world_size, self.global_rank = world_size, global_rank
        self.state: Any = SimpleNamespace(fn=TrainerFn.FITTING)


def trainer(world_size: int = 1, global_rank: int = 0) -> Trainer:
    return Process(world_size, global_rank)


def draw() -> list[float]:
    """Of every generator, an odd number of Gaussian ones: the second of a pair waits in the state."""
    return [random.random(), random.gauss(0, 1), np.random.rand(), np.random.normal(), torch.rand(()).item()]  # noqa: NPY002


def on_disk(state: RandomState, folder: Path) -> dict[str, Any]:
    torch.save(state.state_dict(), folder / "state.pt")
    return torch.load(folder / "state.pt", weights_only=True)


def test_the_same_numbers_are_drawn_again(tmp_path: Path) -> None:
    draw()
    first, second = RandomState(), RandomState()
    first.collect(trainer())
    saved = on_disk(first, tmp_path)
    expected = draw()
    second.load_state_dict(saved)
    draw()  # as building a model does
    second.on_train_start(trainer(), TinyTask())
    assert draw() == expected


def test_without_a_checkpoint_nothing_is_put_back() -> None:
    state = RandomState()
    before = draw()
    state.on_train_start(trainer(), TinyTask())
    assert draw() != before


def test_each_process_has_its_own(tmp_path: Path) -> None:
    collected, expected = [], []
    for rank in range(2):
        random.seed(rank)
        np.random.seed(rank)  # noqa: NPY002
        torch.manual_seed(rank)
        one = RandomState()
        one.collect(trainer())
        collected += one.state_dict()["states"]
        expected.append(draw())
    for rank in (1, 0):
        state = RandomState()
        state.load_state_dict({"states": collected})
        state.on_train_start(trainer(2, rank), TinyTask())
        assert draw() == expected[rank]


def test_another_number_of_processes_is_warned_of_and_draws_on() -> None:
    state = RandomState()
    state.collect(trainer())
    state.load_state_dict(state.state_dict())
    task = TinyTask()
    before = torch.get_rng_state()
    with pytest.warns(UserWarning, match="of 1 processes, not 2"):
        state.on_train_start(trainer(2), task)
    assert torch.equal(torch.get_rng_state(), before)


def test_training_does_not_notice_what_a_validation_draws() -> None:
    state = RandomState()
    state.on_train_batch_end(trainer(), TinyTask(), None, None, 0)
    expected = draw()
    state.on_validation_end(trainer(), TinyTask())
    assert draw() == expected
