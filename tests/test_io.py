"""Files are read or refused with their path, written whole, and locked between processes."""

from __future__ import annotations

import errno
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from slotbench import io
from slotbench.errors import FileError


def test_json_and_yaml_come_back_as_they_were_written(tmp_path: Path) -> None:
    value = {"a": [1, 2.5, None, True], "b": {"c": "d"}}
    path = tmp_path / "value.json"
    io.write_atomically(path, io.dump_json(value))
    assert io.read_json_object(path) == value
    assert io.read_yaml(path) == value  # JSON is YAML


def test_numbers_that_json_cannot_hold_are_words_and_numbers_again(tmp_path: Path) -> None:
    written = json.loads(io.dump_json({"a": float("nan"), "b": float("-inf"), "c": 1, "d": "word", "e": True}))
    found = io.numbers(written)
    assert np.isnan(found.pop("a"))
    assert found == {"b": float("-inf"), "c": 1.0}


@pytest.mark.parametrize(
    ("read", "content"),
    [
        (io.read_text, b"\xff\xfe"),
        (io.read_json, b'{"a": '),
        (io.read_json_object, b"[1]"),
        (io.read_yaml, b"a: [1"),
        (io.read_yaml, b"!!python/object/apply:os.getcwd []"),
        (io.map_npy, b"\x93NUMPY\x01\x00"),
        (io.read_npz, b"PK\x03\x04 truncated"),
        (io.npz_names, b""),
        (io.map_npy, pickle.dumps({"a": 1})),
    ],
)
def test_a_damaged_file_is_one_error_with_its_path(tmp_path: Path, read, content) -> None:
    path = tmp_path / "damaged"
    path.write_bytes(content)
    with pytest.raises(FileError, match="damaged"):
        read(path)
    path.unlink()
    with pytest.raises(FileError, match=r"there is no file .*damaged"):
        read(path)


def test_arrays_of_objects_are_not_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", values=np.array([{}], dtype=object))
    with pytest.raises(FileError, match=r"a\.npz"):
        io.read_npz(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", first=np.arange(3), second=np.zeros(2))
    assert io.npz_names(tmp_path / "b.npz") == ["first", "second"]
    assert list(io.read_npz(tmp_path / "b.npz", {"first", "absent"})) == ["first"]


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    io.write_atomically(path, "old")
    with pytest.raises(OSError, match="full"), io.open_atomically(path) as file:  # noqa: PT012
        file.write(b"half")
        raise OSError(errno.ENOSPC, "full")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_torn_line_is_cut_before_the_next(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    io.append_line(path, "one")
    with open(path, "a") as file:
        file.write("tor")
    io.cut_torn_line(path)
    io.append_line(path, "two")
    assert path.read_text() == "one\ntwo\n"


def test_a_lock_is_held_against_other_processes_until_it_is_released(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    program = f"from slotbench import io; import sys; sys.exit(io.is_locked({str(path)!r}))"
    held = io.lock(path)
    assert subprocess.run([sys.executable, "-c", program]).returncode == 1
    with pytest.raises(io.LockedError):
        io.lock(path, timeout=0)
    held.release()
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
