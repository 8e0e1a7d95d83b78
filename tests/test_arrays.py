"""Numpy's files: what is whole is read as it was written, and no header is believed before it is compared."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from slotbench.arrays import map_npy, npz_names, parse_npy, read_npz
from slotbench.errors import FileError


def npy(values: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, values)
    return out.getvalue()


def header(shape: str, dtype: str = "'|u1'") -> bytes:
    text = f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


@pytest.mark.parametrize(
    "values",
    [
        np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array(3),
        np.empty((0, 4), np.int32),
        np.array([True, False]),
    ],
)
def test_arrays_are_read_as_they_were_written(values: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", values)
    np.savez_compressed(tmp_path / "a.npz", first=values, second=values + values)
    mapped = map_npy(tmp_path / "a.npy")
    assert npz_names(tmp_path / "a.npz") == ["first", "second"]
    held = read_npz(tmp_path / "a.npz")
    for found, expected in (
        (mapped, values),
        (parse_npy(npy(values), "here"), values),
        (held["first"], values),
        (held["second"], values + values),
    ):
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        assert np.array_equal(found, expected)
    assert list(read_npz(tmp_path / "a.npz", ["second"])) == ["second"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (header("(8000000000,)"), r"has shape \(8000000000,\) of uint8, 8,000,000,000 bytes, and it has 0"),
        (header("(9" + "9" * 30 + ", 9" + "9" * 30 + ")"), "far too many bytes"),
        (header("(-1,)"), "its shape is"),
        (header(f"({1 << 63}, {1 << 63}, 0)"), "its shape is"),
        (header("(1,)", "'|O'"), "holds object values; expected numbers"),
        (header("(1000000000000,)", "'|V0'"), "expected numbers"),
        (npy(np.zeros(5))[:-1], "damaged or incomplete"),
        (npy(np.zeros(5)) + b"more", "damaged or incomplete"),
        (b"\x93NUMPY\x01\x00\xff\xff", "its header is damaged"),
        (header("(" * 90), "its header is damaged"),
        (b"", "no npy file"),
    ],
)
def test_a_header_that_cannot_be_is_refused_before_memory_is_taken(
    content: bytes, complaint: str, tmp_path: Path
) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(FileError, match=f"a.npy.*{complaint}"):
        map_npy(tmp_path / "a.npy")
    with pytest.raises(FileError, match=f"here.*{complaint}"):
        parse_npy(content, "here")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", content)
    with pytest.raises(FileError, match=rf"a.npz \(x\).*{complaint}"):
        read_npz(tmp_path / "a.npz")


def test_an_archive_that_unpacks_to_more_than_it_may_is_refused(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", a=np.zeros(1 << 20, np.uint8), b=np.zeros(1 << 20, np.uint8))
    assert len(read_npz(tmp_path / "a.npz", limit=(1 << 21) + 1000)) == 2
    with pytest.raises(FileError, match="holds more than the 1,500,000 bytes"):
        read_npz(tmp_path / "a.npz", limit=1_500_000)
    with zipfile.ZipFile(tmp_path / "b.npz", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("x.npy", npy(np.zeros(5)))
    with pytest.raises(FileError, match="packed in a way that numpy does not use"):
        read_npz(tmp_path / "b.npz")


def test_one_flipped_bit_is_seen(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", a=np.zeros(1000))
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[4000] ^= 1
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(FileError, match=r"a.npz \(a\) is damaged"):
        read_npz(tmp_path / "a.npz")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes are those of POSIX")
def test_pipes_and_devices_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.npy")
    (tmp_path / "a.npz").symlink_to("/dev/zero")
    with pytest.raises(FileError, match="is a named pipe; expected a file"):
        map_npy(tmp_path / "a.npy")
    with pytest.raises(FileError, match="is a device; expected a file"):
        read_npz(tmp_path / "a.npz")
