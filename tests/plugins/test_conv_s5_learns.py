"""A ConvS5 between its encoder and decoder learns to move a digit, and looks at nothing that has not happened yet."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from slotbench_plugins.cores.conv_s5 import ConvS5
from slotbench_plugins.cores.conv_ssm import ConvSSM
from slotbench_plugins.decoders.resnet_decoder import ResNetDecoder
from slotbench_plugins.encoders.resnet_encoder import ResNetEncoder

from slotbench.data.base import to_unit_range
from slotbench.data.moving_mnist import MovingMNIST
from slotbench.interfaces import VideoBatch
from slotbench.metrics.frames import frame_mse
from slotbench.tasks.video_prediction import VideoPrediction


def data_of(resolution: int, num_frames: int) -> MovingMNIST:
    return MovingMNIST(num_digits=1, num_frames=num_frames, eval_frames=40, resolution=resolution, digit_size=8)


def task_of(data: MovingMNIST, width: int, core: type[ConvS5] = ConvS5) -> VideoPrediction:
    return VideoPrediction(
        encoder=partial(ResNetEncoder, depths=(width, width)),
        core=partial(core, dim=width, state_dim=width, num_layers=2),
        decoder=partial(ResNetDecoder, depths=(width, width)),
        loss="l1_l2",
        context=10,
        horizon=30,
        data_spec=data.spec,
    )


def clips(data: MovingMNIST, split: str, indices: range) -> VideoBatch:
    return to_unit_range(data.dataset(split).clips(indices))


def trivial(batch: VideoBatch) -> float:
    """The loss of repeating each frame, or of black frames if that is less."""
    future = batch.frames[:, 1:]
    differences = (2 * (future - other) for other in (batch.frames[:, :-1], torch.zeros_like(future)))
    return min((0.5 * x.abs() + 0.5 * x.square()).mean().item() for x in differences)


def train(task: VideoPrediction, data: MovingMNIST, steps: int, batch_size: int) -> None:
    optimizer = torch.optim.AdamW(task.parameters(), lr=1e-3, betas=(0.9, 0.95))
    for step in range(steps):
        batch = clips(data, "train", range(step * batch_size, (step + 1) * batch_size))
        optimizer.zero_grad()
        task.loss(task(batch), batch).backward()
        torch.nn.utils.clip_grad_norm_(task.parameters(), 1.0)
        optimizer.step()


def test_the_next_frame_is_learned_better_than_by_copying_or_black():
    data = data_of(resolution=16, num_frames=12)
    torch.manual_seed(0)
    task = task_of(data, 16)
    train(task, data, steps=300, batch_size=4)
    batch = clips(data, "val", range(16))
    with torch.no_grad():
        assert task.loss(task(batch), batch).item() < 0.75 * trivial(batch)


def test_predictions_do_not_depend_on_frames_to_come():
    data = data_of(resolution=16, num_frames=8)
    torch.manual_seed(0)
    task = task_of(data, 8).double().eval()
    batch = clips(data, "train", range(2)).map(lambda value: value.double() if value.is_floating_point() else value)
    changed = batch.frames.clone()
    changed[:, 4] = torch.rand_like(changed[:, 4])
    with torch.no_grad():
        before, after = (task(b).reconstruction for b in (batch, replace(batch, frames=changed)))
    assert torch.equal(before[:, :4], after[:, :4])
    assert not torch.equal(before[:, 4], after[:, 4])


@pytest.mark.slow
def test_hippo_against_a_random_start_far_from_the_context(record_property):
    data = data_of(resolution=32, num_frames=20)
    error: dict[str, list[float]] = {}
    batch = clips(data, "test", range(32))
    for core in (ConvS5, ConvSSM):
        for seed in range(3):
            torch.manual_seed(seed)
            task = task_of(data, 32, core)
            train(task, data, steps=300, batch_size=4)
            with torch.no_grad():
                predicted = task.eval().rollout(batch).reconstruction
            error.setdefault(core.__name__, []).append(
                frame_mse(predicted[:, -10:], batch.frames[:, 30:40]).mean().item()
            )
    # which of the two is better is a finding and no law: it is recorded, and both must have learned something
    record_property("error of the last ten frames", error)
    black = frame_mse(torch.zeros_like(batch.frames[:, 30:40]), batch.frames[:, 30:40]).mean().item()
    assert all(value < 2 * black for values in error.values() for value in values)
