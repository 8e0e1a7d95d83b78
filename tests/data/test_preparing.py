"""A cache that was interrupted is completed with the right bytes, and has one writer at a time."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from forked import Forked

from slotbench.data.clip_cache import ClipCache, is_cache, write_cache
from slotbench.errors import DataFilesError
from slotbench.interfaces import VideoBatch

VIDEOS, MADE = 20, {"set": "made up"}


def video(index: int) -> VideoBatch:
    rng = np.random.default_rng(index)
    return VideoBatch(
        frames=torch.from_numpy(rng.integers(1, 256, (1, 2, 3, 4, 4), dtype=np.uint8)),
        time=torch.arange(2)[None],
        objects={"mass": torch.from_numpy(rng.random((1, 3)).astype(np.float32))},
    )


def pieces(stop: int | None, asked: list[int] | None = None, pause: float = 0.0):
    def batches(first: int):
        for index in range(first, VIDEOS):
            if index == stop:
                raise KeyboardInterrupt
            time.sleep(pause)
            (asked if asked is not None else []).append(index)
            yield video(index)

    return batches


def is_right(folder: Path) -> bool:
    read = ClipCache(folder).read(range(VIDEOS), [0] * VIDEOS, 2)
    true = VideoBatch.join([video(index) for index in range(VIDEOS)])
    return torch.equal(read.frames, true.frames) and torch.equal(read.objects["mass"], true.objects["mass"])


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("stop", [1, 13, VIDEOS])
def test_writing_continues_behind_the_last_finished_video(stop: int, killed: bool, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        write_cache(tmp_path, lambda first: _cut(stop), MADE)
    if killed:  # within a video, and before its headers were completed
        for path in tmp_path.glob("*.npy"):
            content = path.read_bytes()
            path.write_bytes(
                content.replace(f"({stop}, ".encode(), f"({0:{len(str(stop))}}, ".encode(), 1) + b"half a video"
            )
    with pytest.raises(DataFilesError, match=rf"is not complete \({stop} videos so far\)"):
        ClipCache(tmp_path)
    with pytest.raises(DataFilesError, match="holds a cache of something else: set is made up and other is asked for"):
        write_cache(tmp_path, pieces(None), {"set": "other"})
    asked: list[int] = []
    assert write_cache(tmp_path, pieces(None, asked), MADE) == VIDEOS
    assert asked == list(range(stop, VIDEOS))
    assert is_right(tmp_path)
    assert np.load(tmp_path / "frames.npy").shape == (VIDEOS, 2, 3, 4, 4)
    write_cache(tmp_path, lambda first: pytest.fail("it is complete"), MADE)


def _cut(stop: int):
    yield from (video(index) for index in range(stop))
    raise KeyboardInterrupt


def test_a_damaged_cache_is_one_sentence_and_one_of_nothing_is_not_made(tmp_path: Path) -> None:
    write_cache(tmp_path / "a", pieces(None), MADE)
    content = (tmp_path / "a" / "frames.npy").read_bytes()
    (tmp_path / "a" / "frames.npy").write_bytes(content[:200])
    with pytest.raises(ValueError, match=r"frames.npy is damaged"):
        ClipCache(tmp_path / "a")
    (tmp_path / "a" / "frames.npy").write_bytes(content)
    state = json.loads((tmp_path / "a" / "cache.json").read_text())
    for change in ({"videos": 3}, {"fields": ["mass"]}, {"timed": None}):
        (tmp_path / "a" / "cache.json").write_text(json.dumps(state | change))
        with pytest.raises(ValueError, match=r"damaged|there is no file"):
            ClipCache(tmp_path / "a")
    with pytest.raises(DataFilesError, match="has no videos"):
        write_cache(tmp_path / "none", lambda first: [], {})
    assert not is_cache(tmp_path / "none")


def test_two_processes_that_write_one_cache_leave_right_bytes(tmp_path: Path) -> None:
    both = [Forked(lambda: print(write_cache(tmp_path, pieces(None, pause=0.02), MADE))) for _ in range(2)]
    assert [process.output() for process in both] == [f"{VIDEOS}\n"] * 2
    assert is_right(tmp_path)
