"""The laws of every registered simulator: a clip is a pure function of seed, split and index."""

from __future__ import annotations

import inspect
import pickle

import pytest
import torch
from torch import Tensor

from slotbench import registry
from slotbench.data.base import LoaderOptions, SlotDataModule, Split, to_unit_range
from slotbench.data.clips import StoredVideos
from slotbench.interfaces import VideoBatch


def simulators() -> list[str]:
    """Data sets that need nothing but their defaults, and make each clip when it is asked for."""
    found = []
    for name in registry.names("datasets"):
        kind = registry.load("datasets", name)
        if kind.__module__.startswith("slotbench.") and not issubclass(kind, StoredVideos):
            parameters = inspect.signature(kind).parameters.values()
            if all(parameter.default is not parameter.empty for parameter in parameters):
                found.append(name)
    return found


def make(name: str, seed: int = 0) -> SlotDataModule:
    kind = registry.load("datasets", name)
    small = {"num_frames": 5, "eval_frames": 6, "resolution": 32}
    return kind(
        **{k: v for k, v in small.items() if k in inspect.signature(kind).parameters}, loader=LoaderOptions(seed=seed)
    )


def clips(data: SlotDataModule, split: Split, indices: list[int]) -> VideoBatch:
    return data.dataset(split).clips(indices)  # type: ignore[attr-defined]


def everything(batch: VideoBatch) -> dict[str, Tensor]:
    return {k: v for k, v in vars(batch).items() if isinstance(v, Tensor)} | batch.objects


WITHOUT_OBJECTS = ("Maze",)
"""Sets that show no objects."""


def test_the_simulators_are_found() -> None:
    assert {"BlinkingBalls", "BouncingBalls", "MovingMNIST", "MovingSprites"} <= set(simulators())


@pytest.mark.parametrize("name", simulators())
def test_a_clip_depends_on_seed_split_and_index_alone(name: str) -> None:
    data = make(name)
    together = everything(clips(data, "val", [4, 0, 9]))
    sent = pickle.loads(pickle.dumps(data.dataset("val")))
    apart = everything(VideoBatch.join([sent.clips([i]) for i in (4, 0, 9)]))
    assert together.keys() == apart.keys()
    for key, value in together.items():
        assert value.dtype == apart[key].dtype
        assert value.numpy().tobytes() == apart[key].numpy().tobytes(), key
    others = [clips(data, "test", [4]), clips(data, "val", [5]), clips(make(name, seed=1), "val", [4])]
    for other in others:
        assert not torch.equal(everything(other)["frames"][0], together["frames"][0])


@pytest.mark.parametrize("name", simulators())
def test_frames_are_bytes_of_the_size_announced_and_masks_know_no_other_ids(name: str) -> None:
    data = make(name)
    lengths = {"train": getattr(data, "num_frames", 0), "val": getattr(data, "eval_frames", 0)}
    for split in ("train", "val"):
        batch, spec = clips(data, split, [0, 1]), data.spec.input
        if data.spec.target == spec:
            assert batch.num_steps == lengths[split]
            assert batch.target is None
        assert batch.frames.dtype == torch.uint8
        assert batch.frames.shape[2:] == (spec.channels, spec.height, spec.width)
        assert batch.frames.amax() == 255
        assert batch.time.tolist() == [list(range(batch.num_steps))] * 2
        if name in WITHOUT_OBJECTS:
            continue
        positions, masks = batch.objects["positions"], batch.require("masks")
        if data.spec.target == spec:
            assert batch.objects["velocities"].shape == positions.shape
            assert positions.shape[1] == batch.num_steps
        assert masks.shape == (*batch.frames.shape[:2], spec.height, spec.width)
        assert 0 <= masks.min() < masks.max() <= positions.shape[2]


@pytest.mark.parametrize("name", simulators())
def test_layers_show_every_object_at_least_where_it_is_seen(name: str) -> None:
    data = make(name)
    batch = to_unit_range(clips(data, "val", [0, 1, 2]))
    layers = data.layers(batch)
    if layers is None:  # a set need not know
        return
    masks = batch.require("masks")
    assert layers.shape == (*batch.frames.shape[:2], batch.objects["positions"].shape[2], *batch.frames.shape[2:])
    for i in range(layers.shape[2]):
        seen = masks == i + 1
        shown = layers[:, :, i].movedim(2, -1)
        assert torch.equal(shown[seen], batch.frames.movedim(2, -1)[seen])
        assert (shown[seen] > 0).any(-1).all()
