"""The readers of videos with actions, on files in the layouts of TECO's sets and of Memory Maze."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from action_files import FRAMES, maze_trajectory, video_of, write_mazes, write_movies, write_npz
from hypothesis import given
from hypothesis import strategies as st

from slotbench.data.action_videos.action_videos import ActionVideos, MemoryMaze
from slotbench.data.action_videos.recordings import actions_of_frames
from slotbench.errors import DataFilesError
from slotbench.interfaces import VideoSpec


def data_of(folder: Path, **arguments: Any) -> ActionVideos:
    given = {"resolution": 8, "num_frames": 4, "video_frames": FRAMES} | arguments
    return ActionVideos(str(folder), **given)


def whole(data: ActionVideos, split: Any = "val") -> Any:
    return data.dataset(split).clips([0, 1, 2])


@given(st.lists(st.integers(0, 3), min_size=1, max_size=9), st.integers(0, 1), st.booleans())
def test_an_action_comes_with_the_frame_in_which_it_is_taken(taken: list[int], offset: int, last: bool) -> None:
    """`taken[t]` leads from frame t to t + 1; a file begins with what led to frame 0, and may leave out the last."""
    entries = np.array([3] * offset + taken[: None if last else -1], np.int64)
    vectors = actions_of_frames(entries, len(taken), 4, offset)
    expected = np.eye(4)[taken]
    expected[-1] *= last
    np.testing.assert_array_equal(vectors, expected)


def test_frames_and_actions_are_those_of_the_files(tmp_path: Path) -> None:
    data = data_of(write_npz(tmp_path))
    assert data.spec.input == VideoSpec(3, 8, 8, num_actions=6)
    # files in the order of their paths: 0/0, 0/2, 1/1
    batch, files = whole(data), [video_of(number) for number in (10, 12, 11)]
    for clip, file in enumerate(files):
        np.testing.assert_array_equal(batch.frames[clip], file["video"].transpose(0, 3, 1, 2))
        # entry t led to frame t, and the last frame has none
        np.testing.assert_array_equal(batch.actions[clip, :-1].argmax(-1), file["actions"][1:])
        assert batch.actions[clip].sum(-1).tolist() == [1.0] * (FRAMES - 1) + [0.0]
    taken = whole(data_of(tmp_path, action_offset=0)).actions
    np.testing.assert_array_equal(taken[0].argmax(-1), files[0]["actions"])
    assert data.dataset("val").clip_name(1) == "0_2_frame00000"
    assert data.stored_videos("val")[0].origin(2) == str(tmp_path / "val" / "1" / "1.npz")


def test_movies_are_told_by_what_lies_there_and_not_by_a_name(tmp_path: Path) -> None:
    data = data_of(write_movies(tmp_path / "dmlab"), resolution=32, num_actions=4)
    batch = whole(data)
    brightness = batch.frames[0].float().mean((1, 2, 3))
    torch.testing.assert_close(brightness, 4.5 + 20.0 * torch.arange(FRAMES), atol=3, rtol=0)
    # of the second file of folder 1 there is one entry more than frames: the last frame has an action too
    assert batch.actions[2].argmax(-1).tolist() == [1, 2, 3, 0, 1, 2, 3, 0, 1]
    assert batch.actions[:, -1].sum(-1).tolist() == [0, 0, 1]


@pytest.mark.parametrize("forms", [("NFD", "NFC"), ("NFC", "NFD")])
def test_a_movie_and_its_actions_have_one_name_though_accents_are_stored_in_two_ways(
    forms: tuple[Any, Any], tmp_path: Path
) -> None:
    write_movies(tmp_path, ("val",), videos=1)
    for ending, form in zip((".mp4", ".npz"), forms, strict=True):
        path = tmp_path / "val" / "0" / f"0{ending}"
        path.rename(path.with_stem(unicodedata.normalize(form, "Übung")))
    assert data_of(tmp_path, num_actions=4).dataset("val").clips([0]).require("actions").shape == (1, FRAMES, 4)
    short = data_of(tmp_path, num_actions=4, video_frames=FRAMES + 3)
    with pytest.raises(DataFilesError, match=f"has {FRAMES} frames, and video_frames is {FRAMES + 3}: set"):
        short.dataset("val").clips([0])


def test_without_a_folder_of_validation_the_last_videos_of_training_are_held_out(tmp_path: Path) -> None:
    write_npz(tmp_path, ("train", "test"), videos=5)
    data = data_of(tmp_path, val_videos=2)
    train, val = (data.dataset(split).videos.tolist() for split in ("train", "val"))
    assert (train, val) == ([0, 1, 2], [3, 4])
    assert len(data.dataset("test")) == 5
    with pytest.raises(DataFilesError, match=r"no folder val, and train has 5 videos, .* set data.val_videos to fewer"):
        data_of(tmp_path, val_videos=5).dataset("train")


def test_a_cache_has_the_actions_too_and_those_of_the_held_out_videos(tmp_path: Path) -> None:
    files, out = write_movies(tmp_path / "files", ("train", "test")), tmp_path / "cache"
    look: dict[str, Any] = {"resolution": 16, "val_videos": 1, "num_actions": 4}
    data_of(files, **look).prepare(out, lambda *told: None, jobs=1)
    for split in ("train", "val", "test"):
        released, prepared = (data_of(at, **look).dataset(split).clips([0]) for at in (files, out))  # type: ignore[arg-type]
        assert torch.equal(released.frames, prepared.frames)
        assert torch.equal(released.require("actions"), prepared.require("actions"))
    with pytest.raises(DataFilesError, match="prepared with action_offset 1, and action_offset is 0: set"):
        data_of(out, **look, action_offset=0).dataset("test")
    with pytest.raises(DataFilesError, match="prepared with num_actions 4, and num_actions is 6: set"):
        data_of(out, resolution=16).dataset("test")


def test_a_trajectory_of_memory_maze_comes_with_the_state(tmp_path: Path) -> None:
    data = MemoryMaze(str(write_mazes(tmp_path)), resolution=8, video_frames=FRAMES, eval_frames=4)
    batch, file = data.dataset("test").clips([1]), maze_trajectory(20)
    np.testing.assert_array_equal(batch.frames[0], file["image"][4:8].transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(batch.require("actions")[0], file["action"][5:9])
    for name in ("agent_pos", "agent_dir", "targets_pos", "targets_vec", "target_color", "maze_layout"):
        np.testing.assert_array_equal(batch.objects[name][0], file[name][4:8].astype(np.float32), err_msg=name)
    assert "reward" not in batch.objects
