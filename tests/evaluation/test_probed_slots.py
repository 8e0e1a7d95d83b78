"""The slots that are probed are those that evaluation scores."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from slotbench.data.balls.bouncing_balls import BouncingBalls
from slotbench.data.base import LoaderOptions
from slotbench.evaluation.probe_clips import collect
from slotbench.registry import load
from slotbench.tasks.slot_autoencoding import SlotAutoencoding

CLIPS = 7


def balls(batch_size: int) -> BouncingBalls:
    return BouncingBalls(
        num_balls=2,
        num_frames=3,
        eval_frames=3,
        resolution=16,
        loader=LoaderOptions(val_batch_size=batch_size, val_size=CLIPS, test_size=1),
    )


@pytest.fixture
def task() -> SlotAutoencoding:
    torch.manual_seed(0)
    return SlotAutoencoding(
        partial(load("encoders", "CNNEncoder"), dim=16, channels=(8,), kernel_sizes=(3,), strides=(2,)),
        partial(load("cores", "SAVi"), num_slots=3, dim=16, mlp_ratio=1, slot_init="gaussian"),
        partial(load("decoders", "SpatialBroadcastDecoder"), channels=4),
        data_spec=balls(1).spec,
    ).eval()


def evaluated(task: SlotAutoencoding, batch_size: int) -> Tensor:
    """What `predict` writes of each clip, which is drawn as in validation and test."""
    data, slots = balls(batch_size), []
    for index, batch in enumerate(data.val_dataloader()):
        with torch.no_grad():
            slots.append(task.predict_step(data.on_after_batch_transfer(batch, 0), index)["slots"])
    return torch.cat(slots)


def probed(task: SlotAutoencoding, batch_size: int, num_clips: int = CLIPS) -> Tensor:
    data = balls(batch_size)
    return collect(task, (data.on_after_batch_transfer(batch, 0) for batch in data.val_dataloader()), num_clips).slots


@pytest.mark.parametrize("batch_size", [1, 2, 3, CLIPS])
def test_probing_draws_the_slots_that_evaluation_draws_whatever_the_batches(task, batch_size):
    expected = evaluated(task, 4)
    assert expected.std(dim=0).max() > 0.1
    torch.testing.assert_close(probed(task, batch_size), expected, rtol=1e-4, atol=1e-5)


def test_a_clip_has_the_same_slots_whether_it_is_the_last_that_is_probed_or_not(task):
    torch.testing.assert_close(probed(task, 4, num_clips=5), evaluated(task, 1)[:5], rtol=1e-4, atol=1e-5)


def test_what_is_drawn_leaves_the_random_state_of_the_caller_alone(task):
    before = torch.random.get_rng_state()
    probed(task, 2)
    assert torch.equal(torch.random.get_rng_state(), before)
