"""TFRecord files and `tf.train.Example` without TensorFlow: records by number, their features as arrays.

A record is its length (8 bytes, little endian), a checksum of that (4 bytes), the content, and the content's checksum
(4 bytes). An `Example` is a map from names to lists of byte strings, of floats, or of integers; parsing finds where the
lists are and copies nothing, so that a record of megabytes of which a few frames are wanted costs little.

Source: the descriptions of the TFRecord format and of protocol buffers' wire format; `example.proto`, `feature.proto`.
"""

from __future__ import annotations

import gzip
import io
import math
import mmap
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Int64, UInt8

from slotbench.errors import DataFilesError
from slotbench.io import open_file

__all__ = ["Example", "TFRecords", "masked_crc32c", "stream_gzip"]

_HEADER, _FOOTER = 12, 4
_POLYNOMIAL = 0x82F63B78  # of CRC-32C, lowest bit first
_ADVICE = "copy it again, for it is incomplete or damaged"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types
_KINDS = {"bytes": 1, "floats": 2, "ints": 3}
_DAMAGED = (IndexError, ValueError, KeyError)


class TFRecords:
    """The records of one or several TFRecord files, by index, in the order of the files."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = [Path(file) for file in files]
        found = [_scan(file) for file in self.files]
        self._starts, self._lengths = np.concatenate(found).reshape(-1, 2).T
        self._shards = np.repeat(np.arange(len(found)), [len(records) for records in found])

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int) -> memoryview:
        """The content of record `index`, mapped into memory."""
        start, length = int(self._starts[index]), int(self._lengths[index])
        with open_file(self.files[self._shards[index]]) as file:
            # the view keeps the map alive
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))[start : start + length]

    def where(self, index: int) -> str:
        """File and position of a record, for messages."""
        return f"{self.files[self._shards[index]]} (record at byte {int(self._starts[index]) - _HEADER:,})"


def stream_gzip(path: Path, first: int = 0, report: Callable[[int], None] | None = None) -> Iterator[bytes]:
    """The records of a TFRecord file, gzipped or not, from number `first` on."""
    with open_file(path) as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        file = io.BufferedReader(gzip.GzipFile(fileobj=raw), 1 << 20) if packed else raw  # type: ignore[type-var]
        number = 0
        try:
            while header := file.read(_HEADER):
                length = _length(header)
                content, footer = file.read(length), file.read(_FOOTER)
                if len(content) < length or len(footer) < _FOOTER:
                    raise EOFError("it ends within one")
                if number >= first:
                    yield content
                if report is not None:
                    report(raw.tell())
                number += 1
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise DataFilesError(f"{path} cannot be read beyond record {number} ({error}): {_ADVICE}") from error


def _scan(path: Path) -> np.ndarray:
    """Start and length of each record of a file: "records 2"."""
    found: list[tuple[int, int]] = []
    with open_file(path) as file:
        size, position = file.seek(0, io.SEEK_END), 0
        while position < size:
            file.seek(position)
            header = file.read(_HEADER)
            if not position and header[:2] == b"\x1f\x8b":
                raise DataFilesError(f"{path} is compressed by gzip, so its records cannot be read by index")
            try:
                found.append((position + _HEADER, _length(header)))
            except ValueError as error:
                raise DataFilesError(f"{path}, record {len(found)} at byte {position:,}: {error}; {_ADVICE}") from error
            position = sum(found[-1]) + _FOOTER
        if position > size:
            raise DataFilesError(f"{path} ends within record {len(found) - 1}: {_ADVICE}")
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def _length(header: bytes) -> int:
    """The length in a record's header, believed if its sum is right: a wrong one would ask for any memory."""
    if len(header) < _HEADER or masked_crc32c(header[:8]) != int.from_bytes(header[8:], "little"):
        raise ValueError("this is no TFRecord file, or the record is damaged")
    return int.from_bytes(header[:8], "little")


def masked_crc32c(data: bytes) -> int:
    """The checksum of some bytes as a TFRecord file stores it: `((crc >> 15) | (crc << 17)) + 0xa282ead8`."""
    crc, table = 0xFFFFFFFF, _table()
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


@lru_cache(maxsize=1)
def _table() -> list[int]:
    values = np.arange(256, dtype=np.int64)
    for _ in range(8):
        values = np.where(values & 1, (values >> 1) ^ _POLYNOMIAL, values >> 1)
    return [int(value) for value in values]


class Example:
    """The features of one record as arrays; errors name the record and the feature.

    A feature is decoded when it is asked for; one without any value is empty as a list of any kind.
    """

    def __init__(self, record: memoryview, where: str, expected: str) -> None:
        self.where, self._expected = where, expected
        self._features: dict[str, memoryview] = {}
        try:
            for number, features in _messages(record):
                for _, entry in _messages(features) if number == 1 else ():
                    parts = dict(_messages(entry))  # 1 is the name, 2 the feature
                    self._features[str(parts.get(1, b""), "utf-8")] = parts.get(2, entry[:0])
        except _DAMAGED as error:
            raise self.damaged(f"is no tf.train.Example ({error})") from error

    def __contains__(self, name: str) -> bool:
        return name in self._features

    def floats(self, name: str, shape: tuple[int, ...] | None) -> Float32[np.ndarray, ...]:
        """Floats in this shape; all of them for None."""
        return self._shaped(self._read(name, "floats", _floats), name, shape)

    def ints(self, name: str, shape: tuple[int, ...] | None) -> Int64[np.ndarray, ...]:
        """Integers in this shape; all of them for None."""
        return self._shaped(self._read(name, "ints", _ints), name, shape)

    def number(self, name: str) -> int:
        """A single integer."""
        return int(self.ints(name, (1,))[0])

    def bytes_of(self, name: str, shape: tuple[int, ...] | None) -> UInt8[np.ndarray, ...]:
        """All byte strings as one array in this shape."""
        return self._shaped(self._read(name, "bytes", _joined), name, shape)

    def byte_strings(self, name: str) -> list[memoryview]:
        """Byte strings, as views of the record."""
        return self._read(name, "bytes", _contents)

    def damaged(self, reason: str) -> DataFilesError:
        """The error of a damaged record, with its place."""
        return DataFilesError(f"{self.where} {reason}")

    def _read(self, name: str, kind: str, decode: Callable[[memoryview], Any]) -> Any:
        if name not in self._features:
            known = ", ".join(sorted(self._features)) or "nothing"
            raise self.damaged(f"has no {name}; expected {self._expected}, and found {known}")
        try:
            number, values = next(_messages(self._features[name]), (0, self._features[name][:0]))
            if len(values) and number != _KINDS[kind]:
                raise ValueError(f"a list of another kind than {kind}")
            return decode(values)
        except _DAMAGED as error:
            raise self.damaged(f"is damaged at {name} ({error})") from error

    def _shaped(self, values: np.ndarray, name: str, shape: tuple[int, ...] | None) -> np.ndarray:
        if shape is not None and values.size != math.prod(shape):
            raise self.damaged(f"has {values.size:,} values of {name}; expected {math.prod(shape):,}, of shape {shape}")
        return values if shape is None else values.reshape(shape)


def _joined(values: memoryview) -> np.ndarray:
    """All byte strings as one array; fast where each is a single byte, as in the multi-object data sets."""
    encoded = np.frombuffer(values, np.uint8)
    if len(encoded) % 3 == 0:
        triples = encoded.reshape(-1, 3)  # tag of field 1, length, the byte
        if (triples[:, 0] == 0x0A).all() and (triples[:, 1] == 1).all():
            return triples[:, 2].copy()
    return np.frombuffer(b"".join(_contents(values)), np.uint8)


def _floats(values: memoryview) -> np.ndarray:
    # whether they were written as one block or one by one
    return np.frombuffer(b"".join(_contents(values)), "<f4").astype(np.float32)


def _ints(values: memoryview) -> np.ndarray:
    encoded = np.frombuffer(b"".join(_contents(values)), np.uint8)
    if not len(encoded) or encoded.max() < 0x80:
        return encoded.astype(np.int64)
    # base 128, lowest digits first; a number ends with the first byte below 128
    ends = np.flatnonzero(encoded < 0x80)
    starts = np.concatenate([[0], ends[:-1] + 1])
    if encoded[-1] >= 0x80 or (ends - starts).max() >= 10:
        raise ValueError("an integer without an end")
    digit = np.arange(len(encoded)) - np.repeat(starts, ends - starts + 1)
    shifted = (encoded & 0x7F).astype(np.uint64) << (7 * digit).astype(np.uint64)
    return np.add.reduceat(shifted, starts).view(np.int64)


def _contents(values: memoryview) -> list[memoryview]:
    return [values[start:stop] for _, _, start, stop in _fields(values)]


def _messages(view: memoryview) -> Iterator[tuple[int, memoryview]]:
    for number, wire, start, stop in _fields(view):
        if wire != _BYTES:
            raise ValueError(f"wire type {wire} where a message was expected")
        yield number, view[start:stop]


def _fields(view: memoryview) -> Iterator[tuple[int, int, int, int]]:
    """Number and wire type of each field of a message, and where its content starts and stops."""
    position, end = 0, len(view)
    while position < end:
        tag = view[position]
        position += 1
        if tag >= 0x80:
            tag, position = _varint(view, position - 1)
        number, wire = tag >> 3, tag & 7
        start = position
        if wire == _BYTES:
            # most lengths are of one byte, and a call takes longer than reading it
            length = view[position]
            start += 1
            if length >= 0x80:
                length, start = _varint(view, position)
            position = start + length
        elif wire == _VARINT:
            _, position = _varint(view, position)
        elif wire in (_FIXED32, _FIXED64):
            position += 4 if wire == _FIXED32 else 8
        else:
            raise ValueError(f"wire type {wire} does not exist")
        if position > end:
            raise ValueError("a field continues beyond the end")
        yield number, wire, start, position


def _varint(view: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than ten bytes")
