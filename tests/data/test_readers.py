"""The laws of every reader of stored videos, on files in the layout of each; a new reader is one more row of `READERS`.

What a file's values mean, and the sentences about values that cannot be, is tested for each reader by itself.
"""

from __future__ import annotations

import inspect
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stored_readers import READERS, Reader
from torch import Tensor

from slotbench.errors import DataFilesError
from slotbench.interfaces import VideoBatch


@pytest.fixture(scope="module", params=READERS)
def reader(request: pytest.FixtureRequest) -> Reader:
    return READERS[request.param]


@pytest.fixture(scope="module")
def folder(reader: Reader, tmp_path_factory: pytest.TempPathFactory) -> Path:
    files = tmp_path_factory.mktemp("files")
    reader.write(files)
    if not reader.prepared:
        return files
    cache = tmp_path_factory.mktemp("cache")
    reader.data(files).prepare(cache, lambda *told: None, jobs=1)  # type: ignore[attr-defined]
    return cache


def everything(batch: VideoBatch) -> dict[str, Tensor]:
    return {name: value for name, value in vars(batch).items() if isinstance(value, Tensor)} | batch.objects


def test_clips_have_the_sizes_of_the_specification(reader: Reader, folder: Path) -> None:
    data = reader.data(folder)
    for split in ("train", "val"):
        batch, frame = data.dataset(split).clips([0, 1]), data.spec.input
        assert batch.frames.shape == (2, 2, frame.channels, frame.height, frame.width)
        assert batch.frames.dtype == torch.uint8
        assert batch.time.tolist() == [[0, 1], [0, 1]]
        if reader.masks:
            assert batch.require("masks").shape == (2, 2, frame.height, frame.width)
        if frame.num_actions:
            assert batch.require("actions").shape == (2, 2, frame.num_actions)
        assert {"video", "first_frame"} <= set(batch.objects)
    assert data.spec.target == data.spec.input


@pytest.mark.parametrize("split", ["train", "val"])
def test_a_clip_depends_on_its_index_alone_in_any_process(reader: Reader, folder: Path, split: Any) -> None:
    dataset = reader.data(folder).dataset(split)
    together = everything(dataset.clips([2, 0, 1]))
    sent = pickle.loads(pickle.dumps(dataset))
    assert len(pickle.dumps(dataset)) < 100_000
    apart = everything(VideoBatch.join([sent.clips([index]) for index in (2, 0, 1)]))
    assert together.keys() == apart.keys()
    for name, value in together.items():
        assert value.dtype == apart[name].dtype
        assert torch.equal(value, apart[name]), name


def test_training_goes_through_all_videos_in_each_pass_and_cuts_them_anywhere(reader: Reader, folder: Path) -> None:
    data = reader.data(folder, loader={"train_size": 10_000, "seed": 1})
    dataset = data.dataset("train")
    lengths = dataset.source.lengths
    count = len(lengths)
    places = [dataset.place(index) for index in range(20 * count)]
    passes = np.array([video for video, _ in places]).reshape(20, count)
    assert (np.sort(passes, 1) == np.arange(count)).all()
    assert len(np.unique(passes, axis=0)) > 1
    starts = {start for _, start in places}
    assert min(starts) >= 0
    assert max(starts) <= lengths.max() - 2
    assert len(starts) > min(4, lengths.max() - 2)
    other = reader.data(folder, loader={"train_size": 10_000, "seed": 2}).dataset("train")
    assert places != [other.place(index) for index in range(20 * count)]


@pytest.mark.parametrize("stride", [1, 3])
def test_a_clip_shows_the_frames_of_the_video_that_it_names(reader: Reader, folder: Path, stride: int) -> None:
    given = {"stride": stride} if "stride" in inspect.signature(reader.kind).parameters and not reader.prepared else {}
    if stride > 1 and not given:
        pytest.skip("reads every frame")
    whole = reader.data(folder).dataset("train").source
    batch = reader.data(folder, **given).dataset("train").clips(range(6))
    for clip, (video, first) in enumerate(
        zip(batch.objects["video"].tolist(), batch.objects["first_frame"].tolist(), strict=True)
    ):
        expected = whole.read([video], [0], int(whole.lengths[video]))
        frames = slice(first, first + stride + 1, stride)
        assert torch.equal(batch.frames[clip], expected.frames[0, frames])
        found, there = everything(batch), everything(expected)
        assert "masks" in found or not reader.masks
        for name in {"masks", "actions", "positions", "depth", "agent_pos"} & found.keys():
            assert torch.equal(found[name][clip], there[name][0, frames]), name


def test_evaluation_goes_through_each_video_and_a_limit_takes_the_same_clips_for_every_seed(
    reader: Reader, folder: Path
) -> None:
    dataset = reader.data(folder).dataset("val")
    lengths = dataset.source.lengths
    expected = [[video, start] for video, length in enumerate(lengths) for start in range(0, length - 1, 2)]
    assert dataset.places.tolist() == expected
    limited = [reader.data(folder, loader={"val_size": 3, "seed": seed}).dataset("val") for seed in (0, 1)]
    assert limited[0].places.tolist() == limited[1].places.tolist()
    assert len(limited[0]) == 3
    whole = reader.data(folder, eval_frames=None).dataset("val")
    assert len(whole) == len(lengths)
    assert reader.data(folder).max_eval_frames("val") == lengths.min()


def test_files_that_are_not_there_are_named_with_what_was_expected(reader: Reader, tmp_path: Path) -> None:
    with pytest.raises(DataFilesError, match=r"nowhere.*expected") as refused:
        reader.data(tmp_path / "nowhere").dataset("val")
    assert str(refused.value).isprintable()


def test_a_cache_has_what_the_files_have_and_is_refused_to_other_arguments(tmp_path: Path) -> None:
    for name in ("MOVi", "CLEVRER"):
        reader = READERS[name]
        files, cache = tmp_path / name, tmp_path / f"{name}_cache"
        reader.write(files)
        reader.data(files).prepare(cache, lambda *told: None, jobs=1)  # type: ignore[attr-defined]
        for split in ("train", "val"):
            released, prepared = (everything(reader.data(at).dataset(split).clips([0, 3])) for at in (files, cache))
            assert released.keys() == prepared.keys()
            for key, value in released.items():
                assert value.dtype == prepared[key].dtype
                assert torch.equal(value, prepared[key]), key
        sentence = r"was prepared with resolution \d+, and resolution is 32: set data.resolution to \d+, or prepare"
        with pytest.raises(DataFilesError, match=sentence):
            reader.data(cache, resolution=32).dataset("val")
        with pytest.raises(DataFilesError, match="is a cache already; name the folder of the released files"):
            reader.data(cache).prepare(tmp_path / "again", lambda *told: None)  # type: ignore[attr-defined]
        with pytest.raises(DataFilesError, match="holds a cache of something else: resolution is"):
            reader.data(files, resolution=32).prepare(cache, lambda *told: None, jobs=1)  # type: ignore[attr-defined]
