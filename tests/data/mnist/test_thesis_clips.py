"""Moving-MNIST at the thesis' speed, each digit alone, and the published test clips from a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from slotbench.data.base import LoaderOptions, to_unit_range
from slotbench.data.mnist.moving_mnist import MovingMNIST
from slotbench.interfaces import VideoBatch


def thesis(**arguments) -> MovingMNIST:
    return MovingMNIST(**({"step": 0.1, "speed_jitter": 0.05, "eval_frames": 20} | arguments))


def clips(data: MovingMNIST, count: int = 32) -> VideoBatch:
    return data.dataset("val").clips(range(count))  # type: ignore[attr-defined]


def test_digits_move_by_3_6_to_3_78_pixels_and_turn_one_way_at_a_time() -> None:
    batch = clips(thesis())
    velocities, positions = batch.objects["velocities"], batch.objects["positions"]
    speed = velocities.norm(dim=-1) * 36
    assert 3.6 - 1e-4 <= speed.min() < 3.62
    assert 3.76 < speed.max() <= 3.78 + 1e-4
    assert (speed - speed[:, :1]).abs().max() < 1e-4  # each keeps its own
    assert 0 <= positions.min() <= positions.max() <= 1
    moved = positions.diff(dim=1).norm(dim=-1) * 36
    assert moved.max() <= 3.78 + 1e-4
    turned = velocities[:, 1:] * velocities[:, :-1] < 0
    assert turned.any()
    edge = (positions[:, 1:] == 0) | (positions[:, 1:] == 1)
    assert torch.equal(turned, edge)


def test_without_jitter_the_clips_are_as_they_were() -> None:
    jittered, plain = clips(thesis(), 4), clips(thesis(speed_jitter=0.0), 4)
    assert torch.equal(jittered.objects["digit_images"], plain.objects["digit_images"])
    assert torch.allclose(plain.objects["velocities"].norm(dim=-1), torch.tensor(0.1))
    ratio = jittered.objects["velocities"][:, 0] / plain.objects["velocities"][:, 0]
    assert 1 <= ratio.abs().min() <= ratio.abs().max() <= 1.05 + 1e-5


def test_the_generator_as_an_oracle_knows_the_speed_of_each_digit() -> None:
    data = thesis(num_digits=1)
    batch = to_unit_range(clips(data))
    stopped, right = 0, 0
    for context in range(3, 12):
        place = batch.objects["positions"][:, context - 1, 0]
        at_edge = ((place == 0) | (place == 1)).sum(-1) == 1  # a corner hides the direction
        predicted = data.oracle_predictions(batch, context, 8)["generator, last two frames"]
        same = (predicted == batch.frames[:, context : context + 8]).flatten(1).all(1)
        stopped, right = stopped + int(at_edge.sum()), right + int((at_edge & same).sum())
    assert stopped > 10
    assert right >= 0.9 * stopped  # a place may be cut to the next pixel, since the log is in single precision


def write(path: Path, values: np.ndarray) -> str:
    np.save(path, values)
    return str(path)


def published(folder: Path, frames: int = 6, count: int = 5, side: int = 64) -> np.ndarray:
    values = np.random.default_rng(0).integers(0, 256, (frames, count, side, side), dtype=np.uint8)
    write(folder / "mnist_test_seq.npy", values)
    return values


def test_published_clips_are_the_test_split_alone(tmp_path: Path) -> None:
    values = published(tmp_path)
    data = thesis(eval_frames=4, test_file=str(tmp_path / "mnist_test_seq.npy"), loader=LoaderOptions(val_batch_size=2))
    batches = [data.on_after_batch_transfer(batch, 0) for batch in data.test_dataloader()]
    frames = torch.cat([batch.frames for batch in batches])
    assert np.array_equal((frames[:, :, 0] * 255).round().numpy(), values[:4].swapaxes(0, 1))
    assert batches[0].masks is None
    assert data.layers(batches[0]) is None
    assert data.oracle_predictions(batches[0], 2, 2) == {}
    assert torch.equal(clips(data, 2).frames, clips(thesis(eval_frames=4), 2).frames)
    fewer = thesis(eval_frames=4, test_file=data.test_file, loader=LoaderOptions(test_size=3))
    assert len(fewer.dataset("test")) == 3  # type: ignore[arg-type]
