"""The reader of CATER, on files written in the layout of the released archives."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from cater_files import FRAMES, write_cater

from slotbench.data.base import LoaderOptions, Split
from slotbench.data.cater.cater import CATER
from slotbench.data.cater.videos import cell_of, read_scene
from slotbench.interfaces import VideoBatch
from slotbench.metrics.label_scores import LabelScores


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_cater(tmp_path_factory.mktemp("cater") / "all_actions")


def data_of(folder: Path, **arguments: object) -> CATER:
    return CATER(str(folder), **({"resolution": 8, "num_frames": 4} | arguments))  # type: ignore[arg-type]


def clips(data: CATER, split: Split, indices: list[int]) -> VideoBatch:
    return data.dataset(split).clips(indices)  # type: ignore[attr-defined]


def test_splits_are_the_lists_of_the_release_and_labels_are_theirs(folder: Path) -> None:
    data = data_of(folder)
    assert data.spec.target.channels == 36
    names = {split: [name for name, _ in data.entries(split)] for split in ("train", "val", "test")}  # type: ignore[arg-type]
    assert [len(names[split]) for split in ("train", "val", "test")] == [4, 1, 1]
    assert len({name for split in names.values() for name in split}) == 6
    for split in ("train", "val", "test"):
        labels = dict(data.entries(split))  # type: ignore[arg-type]
        batch = clips(data, split, [0])  # type: ignore[arg-type]
        name = data.dataset(split).clip_name(0)  # type: ignore[arg-type, attr-defined]
        assert batch.require("target")[0, -1, 0, 0] == labels[name]
        # the scene file says the same at the end
        scene = read_scene(folder / "scenes" / f"{name}.json")
        assert cell_of(scene.positions[-1, 0], 6) == labels[name]


def test_a_clip_has_a_frame_of_each_segment_and_in_evaluation_ends_with_the_video(folder: Path) -> None:
    data = data_of(folder)
    edges = np.array([1, 4, 7, 10, 13])  # of 13 frames the first is left out, as of CATER's 301
    test = clips(data, "test", [0])
    assert test.objects["frame"].tolist() == [(edges[1:] - 1).tolist()]
    # the brightness of a frame is its number
    np.testing.assert_allclose(test.frames[0].float().mean((1, 2, 3)), 200 + edges[1:] - 1, atol=1.5)
    train = clips(data, "train", list(range(20))).objects["frame"].numpy()
    assert (train >= edges[:-1]).all()
    assert (train < edges[1:]).all()
    assert len(np.unique(train[:, 0])) == 3
    window = data_of(folder, sampling="window")
    assert (np.diff(clips(window, "train", [0, 1]).objects["frame"].numpy()) == 1).all()
    assert clips(window, "test", [0]).objects["frame"].tolist() == [[9, 10, 11, 12]]


def test_random_frames_are_drawn_anew_in_training_and_alike_in_every_evaluation(folder: Path) -> None:
    data = data_of(folder, sampling="random", target="frames")
    train = clips(data, "train", list(range(8)))
    shown = train.objects["frame"].numpy()
    assert (np.diff(shown) > 0).all()
    assert len(np.unique(shown, axis=0)) > 4
    assert train.target is None
    # a video becomes brighter by 1 from frame to frame
    brightness = train.frames.float().mean((2, 3, 4)).numpy()
    np.testing.assert_allclose(np.diff(brightness), np.diff(shown), atol=1.5)
    test = [clips(data, "test", [0]).objects["frame"].tolist() for _ in range(2)]
    assert test[0] == test[1]


def test_training_goes_through_all_videos_in_each_pass_whatever_the_batches(folder: Path) -> None:
    data = data_of(folder, loader=LoaderOptions(seed=2))
    dataset = data.dataset("train")
    whole = dataset.clips(list(range(8)))  # type: ignore[attr-defined]
    videos = whole.objects["video"].tolist()
    assert sorted(videos[:4]) == sorted(videos[4:]) == [0, 1, 2, 3]
    sent = pickle.loads(pickle.dumps(dataset))
    apart = VideoBatch.join([sent.clips([i]) for i in range(8)])
    assert torch.equal(whole.frames, apart.frames)
    assert torch.equal(whole.objects["frame"], apart.objects["frame"])


def test_scenes_say_what_covers_the_snitch_and_whether_it_was_moved(folder: Path) -> None:
    data = data_of(folder, num_frames=12)
    batch = clips(data, "train", list(range(4)))
    log = batch.objects
    even = log["video"] % 2 == 0
    frame, held = log["frame"], log["holders"][:, :, 0] >= 0
    # of the released order the snitch comes first
    assert (log["shape_label"][:, 0] == 4).all()
    assert torch.equal(held, (frame >= 4) & ((frame < 11) | ~even[:, None]))
    assert torch.equal(log["snitch_state"] == 2, held)
    assert torch.equal(log["covered"], ~even)
    assert torch.equal(log["moved_covered"], ~even)
    assert (log["frames_since_seen"] == torch.where(even, 0, FRAMES - 1 - 3)).all()
    # before it was covered it stood two cells further on
    target = batch.require("target")[:, -1, 0, 0]
    assert torch.equal(log["last_uncovered"][~even], target[~even] + 2)
    scores = LabelScores(36, cells=True)
    scores.update(torch.nn.functional.one_hot(target, 36).float(), batch)
    values = scores.close()
    assert values["top1/covered_moved"] == 1.0
    assert values["baseline/top1/covered_moved/last uncovered"] == 0.0
    assert values["baseline/top1/last uncovered"] == 0.5


def test_without_scenes_there_is_the_label_alone(folder: Path) -> None:
    batch = clips(data_of(folder, scenes=False), "test", [0])
    assert batch.require("target").shape == (1, 1, 1, 1)
    assert batch.require("target_time").tolist() == [[3]]
    assert "positions" not in batch.objects
    frames = data_of(folder, target="frames")
    assert frames.spec.target == frames.spec.input
    assert clips(frames, "test", [0]).target is None


def test_cells_are_those_of_the_released_rule_on_every_edge() -> None:
    edges = [-3.0, -2.0, -1e-17, -0.0, 0.0, 1e-17, 0.999999, 1.0, 2.9999]
    for x in edges:
        for y in edges:
            rule = (int(np.floor(y)) + 3) * 6 + int(np.floor(x)) + 3
            assert cell_of(np.array([x, y, 0.3]), 6) == rule
    assert cell_of(np.array([3.0, -3.2]), 6) == 5  # the released script would give the first cell of the next row
    assert cell_of(np.array([-0.1, 2.9]), 4) == 13
    assert cell_of(np.array([2.9, 2.9]), 8) == 63


@pytest.fixture(scope="module")
def cache(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cater_cache")
    data_of(folder).prepare(out, lambda what, done, total: None, jobs=1)
    return out


@pytest.mark.parametrize(
    "arguments",
    [{}, {"scenes": False}, {"sampling": "window", "target": "frames"}, {"sampling": "random"}, {"num_frames": 12}],
)
def test_a_cache_has_what_the_files_have(folder: Path, cache: Path, arguments: dict[str, object]) -> None:
    for split in ("train", "val", "test"):
        indices = [0, 3, 5] if split == "train" else [0]
        released, prepared = (clips(data_of(at, **arguments), split, indices) for at in (folder, cache))  # type: ignore[arg-type]
        for name in ("frames", "time", "target", "target_time"):
            left, right = getattr(released, name), getattr(prepared, name)
            assert (left is None and right is None) or torch.equal(left, right), (split, name)
        assert released.objects.keys() == prepared.objects.keys()
        for name, value in released.objects.items():
            assert value.dtype == prepared.objects[name].dtype
            assert torch.equal(value, prepared.objects[name]), (split, name)
    sent = pickle.loads(pickle.dumps(data_of(cache).dataset("test")))
    assert torch.equal(sent.clips([0]).frames, clips(data_of(folder), "test", [0]).frames)
