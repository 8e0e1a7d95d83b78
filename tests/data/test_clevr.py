"""CLEVR with masks as it lies on the disk: cropped, resized, filtered and divided as the papers do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tfrecord_files import clevr_scene, write_clevr

from slotbench.data import clevr
from slotbench.data.base import Split
from slotbench.data.clevr import CLEVR
from slotbench.data.formats.tfrecord import Example
from slotbench.errors import DataFilesError
from slotbench.interfaces import VideoBatch

NUM_SCENES = 14
SIDE = 96


def silent(what: str, done: int, total: int) -> None:
    """Reports nothing."""


def clips(data: CLEVR, split: Split, count: int) -> VideoBatch:
    return data.dataset(split).clips(range(count))  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def scenes() -> list[dict[str, np.ndarray]]:
    return [clevr_scene(seed, num_objects=3 + seed % 8) for seed in range(NUM_SCENES)]


@pytest.fixture(scope="module")
def file(scenes: list[dict[str, np.ndarray]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_clevr(tmp_path_factory.mktemp("clevr") / "clevr_with_masks_train.tfrecords", scenes)


@pytest.fixture(scope="module")
def cache(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cache")
    CLEVR(str(file), resolution=SIDE).prepare(out, silent)
    return out


def test_scenes_are_cropped_and_resized_as_locatello_et_al_do(cache: Path, scenes: list[dict[str, np.ndarray]]) -> None:
    batch = clips(CLEVR(str(cache), resolution=SIDE), "val", 2)
    assert batch.masks is not None
    assert batch.objects["video"].tolist() == [9, 10]
    assert batch.frames.shape == (2, 1, 3, SIDE, SIDE)
    assert batch.masks.shape == (2, 1, SIDE, SIDE)
    for clip, scene in enumerate(scenes[9:11]):
        image = scene["image"][29:221, 64:256]
        # half the size without anti-aliasing: the mean of four
        mean = image.reshape(SIDE, 2, SIDE, 2, 3).mean((1, 3)).transpose(2, 0, 1)
        assert np.abs(batch.frames[clip, 0].numpy() - mean).max() <= 0.5
        assert np.array_equal(batch.masks[clip, 0], scene["ids"][29:221, 64:256][1::2, 1::2])


def test_annotations_are_those_of_the_objects(cache: Path, scenes: list[dict[str, np.ndarray]]) -> None:
    objects = clips(CLEVR(str(cache), resolution=SIDE), "val", 2).objects
    for clip, scene in enumerate(scenes[9:11]):
        count = 3 + (9 + clip) % 8
        assert objects["num_objects"][clip] == count
        assert objects["present"][clip].tolist() == [True] * count + [False] * (10 - count)
        assert np.array_equal(objects["positions"][clip, 0], np.stack([scene[axis][1:] for axis in "xyz"], -1))
        assert np.array_equal(objects["pixel_coords"][clip, 0], scene["pixel_coords"][1:])
        for name in ("size", "material", "shape", "color"):
            assert objects[f"{name}_label"][clip].tolist() == [*scene[name][1 : count + 1], *[-1] * (10 - count)]


def test_splits_are_seventy_fifteen_fifteen_in_the_order_of_the_file(cache: Path) -> None:
    data = CLEVR(str(cache), resolution=SIDE)
    shown = {split: clips(data, split, count).objects["video"].tolist() for split, count in (("val", 2), ("test", 3))}
    assert shown == {"val": [9, 10], "test": [11, 12, 13]}
    train = clips(data, "train", 18).objects["video"].reshape(2, 9)
    assert (train.sort(1).values == torch.arange(9)).all()
    assert train[0].tolist() != train[1].tolist()


def test_scenes_of_many_objects_are_passed_over(cache: Path) -> None:
    batch = clips(CLEVR(str(cache), resolution=SIDE, max_objects=6), "train", 20)
    assert set(batch.objects["video"].tolist()) == {0, 1, 2, 3, 8}
    assert batch.objects["num_objects"].max() == 6


def test_half_of_the_training_images_are_mirrored_if_asked_for(cache: Path) -> None:
    plain, data = CLEVR(str(cache), resolution=SIDE), CLEVR(str(cache), resolution=SIDE, flip=True)
    one, other = clips(plain, "train", 40), clips(data, "train", 40)
    flipped = other.objects["flipped"]
    assert 8 < int(flipped.sum()) < 32
    assert one.masks is not None
    assert other.masks is not None
    for clip, mirrored in enumerate(flipped):
        axes = (-1,) if mirrored else ()
        assert torch.equal(other.frames[clip], one.frames[clip].flip(axes))
        assert torch.equal(other.masks[clip], one.masks[clip].flip(axes))
    again = data.dataset("train").clips([33])  # type: ignore[attr-defined]
    assert torch.equal(again.frames[0], other.frames[33])
    assert "flipped" not in clips(data, "val", 2).objects


def test_preparing_goes_on_where_it_was_interrupted(
    file: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clevr, "_PIECE", 4)
    scene = clevr._scene
    made: list[int] = []

    def interrupted(stop: int) -> Callable[..., VideoBatch]:
        def make(record: Example, *arguments) -> VideoBatch:
            if len(made) == stop:
                raise KeyboardInterrupt
            made.append(len(made))
            return scene(record, *arguments)

        return make

    monkeypatch.setattr(clevr, "_scene", interrupted(6))
    with pytest.raises(KeyboardInterrupt):
        CLEVR(str(file), resolution=SIDE).prepare(tmp_path, silent)
    with pytest.raises(DataFilesError, match="is not complete"):
        CLEVR(str(tmp_path), resolution=SIDE).dataset("train")
    reported: list[tuple[int, int]] = []
    monkeypatch.setattr(clevr, "_scene", interrupted(99))
    CLEVR(str(file), resolution=SIDE).prepare(tmp_path, lambda what, done, total: reported.append((done, total)))
    assert len(made) == 6 + NUM_SCENES - 4
    assert reported[-1] == (file.stat().st_size,) * 2
    for name in cache.iterdir():
        assert (tmp_path / name.name).read_bytes() == name.read_bytes(), name.name
