"""The generator keeps its rules, its clips are reproducible, and its continuation is right and looks at no future."""

from __future__ import annotations

import math
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from slotbench.data.base import LoaderOptions, SlotDataModule
from slotbench.data.mnist import moving_mnist
from slotbench.data.mnist.moving_mnist import MovingMNIST, move_and_draw, velocity_after
from slotbench.errors import DataFilesError
from slotbench.interfaces import VideoBatch


def clips(data: SlotDataModule, split: str = "train", indices: range | list[int] = range(8)) -> VideoBatch:
    return data.dataset(split).clips(indices)  # type: ignore[arg-type,attr-defined]


def everything(batch: VideoBatch) -> dict[str, Tensor]:
    return {k: v for k, v in vars(batch).items() if isinstance(v, Tensor)} | batch.objects


def test_frames_are_the_brightest_of_the_digits_at_their_truncated_places() -> None:
    batch = clips(MovingMNIST(num_digits=3, num_frames=12))
    overlapping = 0
    for clip in range(8):
        for frame in range(12):
            layers = np.zeros((3, 64, 64), np.uint8)
            for i in range(3):
                x, y = batch.objects["positions"][clip, frame, i].double().tolist()
                left, top = int(36 * x), int(36 * y)
                layers[i, top : top + 28, left : left + 28] = batch.objects["digit_images"][clip, i]
            assert np.array_equal(batch.frames[clip, frame, 0], layers.max(0))
            owner = np.where(layers.max(0) > 127, layers.argmax(0) + 1, 0)
            assert np.array_equal(batch.masks[clip, frame], owner)
            overlapping += int(((layers > 127).sum(0) > 1).sum())
    assert overlapping > 100


@pytest.mark.parametrize("step", [0.15, 0.1])
def test_away_from_the_edges_digits_move_by_the_step(step: float) -> None:
    batch = clips(MovingMNIST(num_frames=200, step=step))
    positions = batch.objects["positions"].double()
    moved = positions.diff(dim=1).norm(dim=-1) * 36
    at_edge = ((positions == 0) | (positions == 1)).any(-1)
    free = ~at_edge[:, 1:]
    assert free.any()
    assert at_edge.any()
    torch.testing.assert_close(moved[free], torch.full_like(moved[free], 36 * step), atol=1e-4, rtol=0)  # 5.4, 3.6
    assert (moved[~free] < 36 * step + 1e-4).all()
    assert 0 <= positions.min() < 0.05
    assert 0.95 < positions.max() <= 1


def test_a_digit_is_set_onto_the_edge_it_passed_and_turns_there() -> None:
    image = np.full((1, 1, 2, 2), 9, np.uint8)
    made = move_and_draw(image, np.array([[[0.25, 0.7]]]), np.array([[[-0.2, 0.2]]]), 5, 12, 0)
    np.testing.assert_allclose(made.positions[0, :, 0, 0], [0.05, 0, 0.2, 0.4, 0.6])
    np.testing.assert_allclose(made.positions[0, :, 0, 1], [0.9, 1, 0.8, 0.6, 0.4])
    np.testing.assert_allclose(made.velocities[0, :, 0], [[-0.2, 0.2]] + [[0.2, -0.2]] * 4)


@given(seed=st.integers(0, 10**6), step=st.floats(0.01, 1))
@settings(max_examples=20)
def test_motion_is_symmetric_under_reflection(seed: int, step: float) -> None:
    generator = np.random.default_rng(seed)
    start, angle = generator.random((1, 2, 2)), generator.random((1, 2)) * 2 * math.pi
    velocity = step * np.stack([np.cos(angle), np.sin(angle)], -1)
    image = np.zeros((1, 2, 1, 1), np.uint8)
    made = move_and_draw(image, start, velocity, 60, 4, 0)
    mirrored = move_and_draw(image, 1 - start, -velocity, 60, 4, 0)
    np.testing.assert_allclose(mirrored.positions, 1 - made.positions, atol=1e-9)
    assert made.positions.min() >= 0
    assert made.positions.max() <= 1


@given(
    seed=st.integers(0, 10**6),
    num_digits=st.integers(1, 4),
    digit_size=st.integers(1, 30),
    margin=st.integers(0, 20),
    step=st.floats(0.01, 1),
    threshold=st.integers(0, 254),
)
@settings(max_examples=20)
def test_the_compiled_generator_gives_the_bytes_of_the_readable_one(
    seed: int, num_digits: int, digit_size: int, margin: int, step: float, threshold: int
) -> None:
    data = MovingMNIST(
        num_digits=num_digits,
        num_frames=15,
        resolution=digit_size + margin,
        digit_size=digit_size,
        step=step,
        mask_threshold=threshold,
        loader=LoaderOptions(seed=seed),
    )
    fast = everything(clips(data, indices=[0, 1]))
    with mock.patch.object(moving_mnist, "compiled", return_value=move_and_draw_reference):
        readable = everything(clips(data, indices=[0, 1]))
    for name, value in fast.items():
        assert torch.equal(value, readable[name]), name


def shown(data: MovingMNIST, split: str) -> set[bytes]:
    images = clips(data, split, range(150)).objects["digit_images"].flatten(0, 1).numpy()
    return {image.tobytes() for image in images}


def test_no_split_shows_a_digit_of_another() -> None:
    one, other = (
        MovingMNIST(num_frames=1, eval_frames=1),
        MovingMNIST(num_frames=1, eval_frames=1, loader=LoaderOptions(seed=5)),
    )
    seen = {split: shown(one, split) | shown(other, split) for split in ("train", "val", "test")}
    assert len(seen["train"]) > 400
    for first, second in (("train", "val"), ("train", "test"), ("val", "test")):
        assert not seen[first] & seen[second]


def test_digits_of_the_user_are_shown(tmp_path: Path) -> None:
    np.save(tmp_path / "mine.npy", np.full((10, 3, 3), 7, np.uint8))
    batch = clips(MovingMNIST(digits=str(tmp_path / "mine.npy"), resolution=8, digit_size=4))
    assert batch.frames.unique().tolist() == [0, 7]
    assert "digits" not in batch.objects
    with pytest.raises(DataFilesError, match=r"no digits at .*absent"):
        MovingMNIST(digits=str(tmp_path / "absent"))


def evaluated(eval_frames: int, **settings: int) -> tuple[MovingMNIST, VideoBatch]:
    data = MovingMNIST(eval_frames=eval_frames, **settings, loader=LoaderOptions(val_size=48, val_batch_size=48))
    return data, data.on_after_batch_transfer(next(iter(data.val_dataloader())), 0)


def test_the_generator_goes_on_as_the_clip_does() -> None:
    data, batch = evaluated(160)
    predicted = data.oracle_predictions(batch, context=10, horizon=150)
    assert set(predicted) == {"generator, last two frames"}
    frames = predicted["generator, last two frames"]
    assert frames.shape == batch.frames[:, 10:].shape
    wrong = (frames != batch.frames[:, 10:]).flatten(1).float().mean(1)
    edges = (batch.objects["positions"][:, 9] == 0) | (batch.objects["positions"][:, 9] == 1)
    corner = edges.all(-1).any(-1)
    assert edges.any(-1).any(-1).sum() > 5  # one that has just turned is no exception
    # a place may be cut to the next pixel, since the log is in single precision
    assert wrong[~corner].max() < 1e-3


def test_a_digit_that_was_stopped_goes_back_at_its_speed() -> None:
    step = 0.2
    before = np.array([[[0.5, 0.5], [0.05, 0.5], [0.9, 0.93], [0.0, 0.3]]])
    now = np.array([[[0.62, 0.34], [0.0, 0.62], [1.0, 1.0], [0.16, 0.42]]])
    velocity = velocity_after(before, now, step)
    np.testing.assert_allclose(velocity[0, [0, 1, 3]], [[0.12, -0.16], [0.16, 0.12], [0.16, 0.12]])
    # in a corner: the direction of what could be seen of the last step
    np.testing.assert_allclose(np.linalg.norm(velocity[0, 2]), step)
    np.testing.assert_allclose(velocity[0, 2] / velocity[0, 2, 0], [1, 0.7])
    assert (velocity[0, 2] < 0).all()


def test_the_continuation_uses_the_last_two_frames_of_context_only() -> None:
    data, batch = evaluated(12, num_digits=1)
    expected = data.oracle_predictions(batch, 5, 7)["generator, last two frames"]
    for name in ("positions", "velocities"):
        log = batch.objects[name].clone()
        log[:, 5:] = 0.123
        log[:, :3] = 0.456
        batch.objects[name] = log
    batch.objects["velocities"][:] = math.nan
    batch.frames[:, 5:] = 0.5
    assert torch.equal(data.oracle_predictions(batch, 5, 7)["generator, last two frames"], expected)
    assert data.oracle_predictions(batch, 1, 7) == {}


def move_and_draw_reference(
    images: np.ndarray,
    start: np.ndarray,
    velocity: np.ndarray,
    mask_threshold: int,
    positions: np.ndarray,
    velocities: np.ndarray,
    frames: np.ndarray,
    masks: np.ndarray,
) -> None:
    """`slotbench.data.mnist.moving_mnist._move_and_draw`, in its readable form."""
    x, v = start.copy(), velocity.copy()
    for frame in range(positions.shape[1]):
        x += v
        v[(x <= 0) | (x >= 1)] *= -1
        x.clip(0, 1, out=x)
        positions[:, frame], velocities[:, frame] = x, v
    size = images.shape[-1]
    corners = ((frames.shape[-1] - size) * positions).astype(np.int64)  # truncates
    for clip, frame, i in np.ndindex(*corners.shape[:3]):
        left, top = corners[clip, frame, i]
        window = (clip, frame, slice(top, top + size), slice(left, left + size))
        brighter = images[clip, i] > frames[window]
        frames[window][brighter] = images[clip, i][brighter]
        masks[window][brighter & (images[clip, i] > mask_threshold)] = i + 1
