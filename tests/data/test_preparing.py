"""A cache that was interrupted and damaged is completed with the right bytes, and has one writer at a time."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from forked import Forked

from slotbench.checksums import damaged_files, read_sums
from slotbench.data.clip_cache import ClipCache, is_cache, write_cache
from slotbench.data.preparing import Marks, as_marks
from slotbench.errors import DataFilesError
from slotbench.interfaces import VideoBatch

VIDEOS = 40


def video(index: int) -> VideoBatch:
    rng = np.random.default_rng(index)
    return VideoBatch(
        frames=torch.from_numpy(rng.integers(1, 256, (1, 2, 3, 4, 4), dtype=np.uint8)),
        time=torch.arange(2)[None],
        objects={"mass": torch.from_numpy(rng.random((1, 3)).astype(np.float32))},
    )


def pieces(stop: int | None, asked: list[int] | None = None):
    def batches(first: int):
        for index in range(first, VIDEOS):
            if index == stop:
                raise KeyboardInterrupt
            if asked is not None:
                asked.append(index)
            yield video(index)

    return batches


def interrupted(folder: Path, stop: int = 30) -> Path:
    with pytest.raises(KeyboardInterrupt):
        write_cache(folder, pieces(stop), {"set": "made up"})
    return folder


def is_right(folder: Path) -> bool:
    cache = ClipCache(folder)
    read = cache.read(range(VIDEOS), [0] * VIDEOS, 2)
    frames = torch.cat([video(index).frames for index in range(VIDEOS)])
    mass = torch.cat([video(index).objects["mass"] for index in range(VIDEOS)])
    return torch.equal(read.frames, frames) and torch.equal(read.objects["mass"], mass) and not damaged_files(folder)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", ["frames.bin", "objects.mass.bin"])
def test_what_was_cut_off_is_written_again_and_never_zeros(
    name: str, seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = interrupted(tmp_path) / name
    size = path.stat().st_size
    kept = random.Random(seed).randrange(size)
    with path.open("r+b") as file:
        file.truncate(kept)
    asked: list[int] = []
    assert write_cache(tmp_path, pieces(None, asked), {"set": "made up"}) == VIDEOS
    assert is_right(tmp_path)
    # goes on behind the last video that is there as a whole, and says so
    good = kept * 30 // size
    assert asked == list(range(good, VIDEOS))
    assert f"30 videos had been written, and {good} of them are on the disk as they were" in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["flipped", "zeros", "deleted"])
def test_what_was_changed_is_written_again(damage: str, tmp_path: Path) -> None:
    path = interrupted(tmp_path) / "frames.bin"
    content = bytearray(path.read_bytes())
    place = len(content) * 11 // 30
    if damage == "flipped":
        content[place] ^= 1
    content[place:] = bytes(len(content) - place) if damage == "zeros" else content[place:]
    path.write_bytes(content)
    if damage == "deleted":
        path.unlink()
    asked: list[int] = []
    assert write_cache(tmp_path, pieces(None, asked), {"set": "made up"}) == VIDEOS
    assert is_right(tmp_path)
    assert asked[0] == (0 if damage == "deleted" else 11)


def test_a_cache_that_is_not_complete_is_not_read_and_one_of_nothing_is_not_made(tmp_path: Path) -> None:
    interrupted(tmp_path / "half")
    with pytest.raises(DataFilesError, match=r"is not complete \(30 videos so far\)"):
        ClipCache(tmp_path / "half")
    write_cache(tmp_path / "half", pieces(None), {"set": "made up"})
    write_cache(tmp_path / "half", lambda first: pytest.fail("it is complete"), {"set": "made up"})
    with pytest.raises(DataFilesError, match="has no videos"):
        write_cache(tmp_path / "none", lambda first: [], {})
    assert not is_cache(tmp_path / "none")


def test_a_complete_cache_whose_file_was_cut_off_is_not_called_done(tmp_path: Path) -> None:
    write_cache(tmp_path, pieces(None), {"set": "made up"})
    with (tmp_path / "frames.bin").open("r+b") as file:
        file.truncate(100)
    with pytest.raises(DataFilesError, match=r"frames.bin has 100 bytes and cache.json says 3,840: .* prepare it anew"):
        write_cache(tmp_path, pieces(None), {"set": "made up"})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 2}, "is not of this version: its 'format' is 2"),
        ({"description": []}, "its 'description' is a list; expected an object"),
        ({"videos": True}, "its 'videos' is True; expected a whole number"),
        ({"videos": -1}, "its 'videos' is -1; expected a whole number >= 0"),
        ({"videos": 0}, "it has no videos"),
        ({"fields": {}}, "it has no frames"),
        ({"fields": {"../../etc": {"dtype": "uint8", "shape": [1], "timed": False}}}, "a name in its 'fields' is none"),
        ({"frames": {"dtype": "object"}}, "its 'fields.frames.dtype' is 'object', which it does not know"),
        ({"frames": {"shape": [2, -3, 4, 4]}}, r"its 'fields.frames.shape\[1\]' is -3; expected a whole number >= 0"),
        ({"frames": {"shape": [2, 3, 0, 4]}}, "it has no frames"),
        ({"frames": {"shape": [], "timed": True}}, "'fields.frames': a field that goes with time has no axes"),
        ({"objects.mass": {"timed": True}}, "the field objects.mass has 3 frames, and there are 2"),
    ],
)
def test_a_damaged_header_is_refused_with_the_entry_and_what_to_do(
    change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    write_cache(tmp_path, pieces(None), {"set": "made up"})
    path = tmp_path / "cache.json"
    state = json.loads(path.read_text())
    for name, entries in change.items():
        if name in state["fields"]:
            state["fields"][name] |= entries
        else:
            state[name] = entries
    path.write_text(json.dumps(state))
    with pytest.raises(DataFilesError, match=rf"cache.json .*{said}.*; delete its folder and prepare it anew"):
        ClipCache(tmp_path)


def test_no_file_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "frames.bin").symlink_to(tmp_path / "mine.txt")
    with pytest.raises(DataFilesError, match="cannot be written"):
        write_cache(tmp_path / "cache", pieces(None), {"set": "made up"})
    assert (tmp_path / "mine.txt").read_text() == "precious"


def test_left_overs_of_killed_writers_are_removed(tmp_path: Path) -> None:
    interrupted(tmp_path)
    for name in (".cache.json.ab12cd", ".progress.json.1234-ab.partial", ".SHA256SUMS.xyz"):
        (tmp_path / name).write_text("half")
    write_cache(tmp_path, pieces(None), {"set": "made up"})
    assert {path.name for path in tmp_path.iterdir()} == {"cache.json", "SHA256SUMS"} | set(read_sums(tmp_path))


def test_places_on_the_way_are_spread_over_it_and_few() -> None:
    marks = Marks()
    for count in range(1, 5001):
        marks.update("a", b"x")
        marks.set(count)
    assert len(marks.stored()) <= 64
    again = as_marks(marks.stored())
    content = b"x" * 3000 + b"y" * 2000
    good = again.verify(lambda start, stop: [("a", content[start:stop])])
    assert 2500 < good <= 3000
    assert as_marks([["a"]]).last() == as_marks(None).last() == as_marks([[5, {"a": "zz"}]]).last() == 0


def write_slowly(folder: Path) -> None:
    """Writes the whole cache with a pause after every piece, so that another one comes in between."""

    def slowly(first: int):
        for batch in pieces(None)(first):
            time.sleep(0.02)
            yield batch

    print(write_cache(folder, slowly, {"set": "made up"}))


def test_two_processes_that_write_one_cache_leave_right_bytes(tmp_path: Path) -> None:
    both = [Forked(write_slowly, tmp_path / "cache") for _ in range(2)]
    assert [process.output() for process in both] == [f"{VIDEOS}\n"] * 2
    assert is_right(tmp_path / "cache")


def test_one_who_finds_a_writer_waits_for_it_and_says_so(tmp_path: Path) -> None:
    import threading

    from slotbench.locks import Lock

    held = Lock(tmp_path / ".prepare.lock")
    held.acquire()
    done: list[int] = []
    writer = threading.Thread(target=lambda: done.append(write_cache(tmp_path, pieces(None), {"set": "made up"})))
    writer.start()
    writer.join(0.5)
    assert writer.is_alive()
    assert not (tmp_path / "frames.bin").exists()
    held.release()
    writer.join(60)
    assert done == [VIDEOS]
