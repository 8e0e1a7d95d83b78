"""A file system that refuses for a moment, or does what it is told and says that it has not."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slotbench.files import (
    append_whole_line,
    cut_torn_line,
    make_folder,
    remove_file,
    retrying,
    write_anew,
    write_atomically,
)
from slotbench.runs.checkpoints import link

FAULTS = (
    *(("os.open", number) for number in ("EBUSY", "ESTALE", "EIO", "EINTR", "ETIMEDOUT")),
    *(("os.replace", number) for number in ("EBUSY", "ESTALE", "EIO", "ENOENT")),
    *(("os.link", number) for number in ("EBUSY", "ESTALE", "EEXIST")),
    *(("os.unlink", number) for number in ("EBUSY", "ESTALE", "ENOENT")),
    *(("os.makedirs", number) for number in ("EBUSY", "ESTALE", "EEXIST")),
    *(("os.fsync", number) for number in ("EIO", "ESTALE")),
    *(("os.ftruncate", number) for number in ("EIO", "ESTALE")),
    *(("os.close", number) for number in ("EIO",)),
)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "WAITS", (0.0, 0.0, 0.0))


def everything_written(folder: Path) -> None:
    make_folder(folder / "deep" / "er")
    write_atomically(folder / "record", "old")
    write_atomically(folder / "record", "new")
    write_anew(folder / "weights", b"first")
    link(folder / "weights", folder / "previous")
    write_anew(folder / "more", b"second")
    link(folder / "more", folder / "previous")
    remove_file(folder / "weights")
    remove_file(folder / "weights")
    append_whole_line(folder / "rows", "1")
    with open(folder / "rows", "ab") as file:
        file.write(b"half")
    cut_torn_line(folder / "rows")
    append_whole_line(folder / "rows", "2")


def content(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def failing(
    monkeypatch: pytest.MonkeyPatch, name: str, number: str, when: Callable[[int], bool], done: bool
) -> list[int]:
    """Lets the calls of these numbers fail, after they were carried out if `done`; returns the count of calls."""
    real = getattr(os, name.partition(".")[2])
    calls = [0]

    def call(*arguments: Any, **more: Any) -> Any:
        calls[0] += 1
        fails = when(calls[0])
        if fails and not done:
            raise OSError(getattr(errno, number), os.strerror(getattr(errno, number)), "a file")
        result = real(*arguments, **more)
        if fails:
            if name == "os.open":
                os.close(result)
            raise OSError(getattr(errno, number), os.strerror(getattr(errno, number)), "a file")
        return result

    monkeypatch.setattr(name, call)
    return calls


@pytest.mark.parametrize("done", [False, True], ids=["refused", "done and denied"])
@pytest.mark.parametrize(("name", "number"), FAULTS, ids=lambda value: value)
def test_each_call_may_fail_once(tmp_path, monkeypatch, name, number, done):
    if name == "os.close" and not done:
        pytest.skip("a file whose closing fails is closed")
    if number in ("ENOENT", "EEXIST") and not done and name != "os.replace":
        pytest.skip("is true then")
    everything_written(tmp_path / "calm")
    with monkeypatch.context() as patched:
        count = failing(patched, name, number, lambda call: False, done)
        everything_written(tmp_path / "counted")
    assert count[0] > 0
    for which in range(1, count[0] + 1):
        folder = tmp_path / f"faulty-{which}"
        with monkeypatch.context() as patched:
            failing(patched, name, number, lambda call, which=which: call == which, done)
            everything_written(folder)
        assert content(folder) == content(tmp_path / "calm"), which


@pytest.mark.parametrize("name", ["os.open", "os.replace", "os.fsync"])
def test_what_fails_always_is_raised_after_a_few_tries_and_leaves_the_old_file(tmp_path, monkeypatch, name):
    write_atomically(tmp_path / "record", "old")
    with monkeypatch.context() as patched:
        calls = failing(patched, name, "ESTALE", lambda call: True, done=False)
        with pytest.raises(OSError, match="a file"):
            write_atomically(tmp_path / "record", "new")
    assert calls[0] == 1 + len(retrying.WAITS)
    assert content(tmp_path) == {"record": b"old"}


def test_a_full_disk_is_not_asked_again(tmp_path, monkeypatch):
    calls = failing(monkeypatch, "os.fsync", "ENOSPC", lambda call: True, done=False)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(tmp_path / "record", "new")
    assert calls[0] == 1
    assert list(tmp_path.iterdir()) == []
