"""`tf.train.Example`, the message in each record of a TFRecord file, without TensorFlow.

An `Example` is a map from feature names to lists of byte strings, of floats, or of integers. Parsing finds where the
lists are and copies nothing, so that a record of megabytes of which a few frames are wanted costs little.

Source: the description of protocol buffers' wire format; `example.proto`, `feature.proto`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Literal

import numpy as np
from jaxtyping import Float32, Int64, UInt8

from slotbench.errors import DataFilesError

__all__ = ["Example", "Feature", "parse_example"]

Kind = Literal["bytes", "floats", "ints"]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types
_KINDS: dict[int, Kind] = {1: "bytes", 2: "floats", 3: "ints"}


class Feature:
    """One list of an `Example`, decoded when it is asked for; one without any value is empty as a list of any kind."""

    def __init__(self, message: memoryview) -> None:
        self._message = message

    def byte_strings(self) -> list[memoryview]:
        """The byte strings, as views of the record."""
        return _contents(self._list("bytes"), "byte strings")

    def joined(self) -> UInt8[np.ndarray, " bytes"]:
        """All byte strings as one array; fast where each is a single byte, as in the multi-object data sets."""
        encoded = np.frombuffer(self._list("bytes"), np.uint8)
        if len(encoded) % 3 == 0:
            triples = encoded.reshape(-1, 3)  # tag of field 1, length, the byte
            if (triples[:, 0] == 0x0A).all() and (triples[:, 1] == 1).all():
                return triples[:, 2].copy()
        return np.frombuffer(b"".join(self.byte_strings()), np.uint8)

    def floats(self) -> Float32[np.ndarray, " values"]:
        """The floats."""
        encoded = self._packed("floats")
        if len(encoded) % 4:
            raise DataFilesError(f"a list of floats has {len(encoded):,} bytes; expected four for each")
        return np.frombuffer(encoded, "<f4").astype(np.float32)

    def ints(self) -> Int64[np.ndarray, " values"]:
        """The integers."""
        encoded = np.frombuffer(self._packed("ints"), np.uint8)
        if not len(encoded):
            return np.empty(0, np.int64)
        if encoded.max() < 0x80:
            return encoded.astype(np.int64)
        # base 128, lowest digits first; a number ends with the first byte below 128
        ends = np.flatnonzero(encoded < 0x80)
        if encoded[-1] >= 0x80:
            raise DataFilesError("a list of integers ends within one")
        starts = np.concatenate([[0], ends[:-1] + 1])
        if (ends - starts).max() >= 10:
            raise DataFilesError("a list of integers has one of more than ten bytes")
        digit = np.arange(len(encoded)) - np.repeat(starts, ends - starts + 1)
        shifted = (encoded & 0x7F).astype(np.uint64) << (7 * digit).astype(np.uint64)
        return np.add.reduceat(shifted, starts).view(np.int64)

    def _list(self, kind: Kind) -> memoryview:
        """The encoded list, which must be of this kind."""
        try:
            number, values = next(_messages(self._message), (0, self._message[:0]))
        except (IndexError, ValueError) as error:
            raise DataFilesError(f"a feature is damaged ({error})") from error
        if len(values) and _KINDS.get(number) != kind:
            raise DataFilesError(
                f"a feature holds {_KINDS.get(number)}; expected {kind}: this is a record of another layout"
            )
        return values

    def _packed(self, kind: Kind) -> bytes:
        """The numbers one after the other, whether they were written as one block or one by one."""
        return b"".join(_contents(self._list(kind), kind))


def parse_example(record: memoryview) -> dict[str, Feature]:
    """The features of an `Example` by name.

    Raises:
        DataFilesError: the bytes are no such message.
    """
    found = {}
    try:
        entries = (entry for number, features in _messages(record) if number == 1 for _, entry in _messages(features))
        for entry in entries:
            parts = dict(_messages(entry))  # 1 is the name, 2 the feature
            found[str(parts.get(1, b""), "utf-8")] = Feature(parts.get(2, entry[:0]))
    except (IndexError, ValueError) as error:
        raise DataFilesError(f"a record of {len(record):,} bytes is not a tf.train.Example ({error})") from error
    return found


class Example:
    """The features of one record as arrays; errors name the record and the feature.

    Args:
        record: its bytes.
        where: the record in words, for messages.
        expected: the records that a reader expects, in words.

    Raises:
        DataFilesError: the bytes are no `tf.train.Example`.
    """

    def __init__(self, record: memoryview, where: str, expected: str) -> None:
        self.where, self._expected = where, expected
        with self._named():
            self._features = parse_example(record)

    def __contains__(self, name: str) -> bool:
        return name in self._features

    def floats(self, name: str, shape: tuple[int, ...]) -> Float32[np.ndarray, ...]:
        """Floats in this shape."""
        with self._named(name):
            return self._shaped(self._feature(name).floats(), name, shape)

    def ints(self, name: str, shape: tuple[int, ...] | None) -> Int64[np.ndarray, ...]:
        """Integers in this shape; all of them for None."""
        with self._named(name):
            values = self._feature(name).ints()
        return values if shape is None else self._shaped(values, name, shape)

    def number(self, name: str) -> int:
        """A single integer."""
        return int(self.ints(name, (1,))[0])

    def bytes_of(self, name: str, shape: tuple[int, ...]) -> UInt8[np.ndarray, ...]:
        """All byte strings as one array in this shape."""
        with self._named(name):
            return self._shaped(self._feature(name).joined(), name, shape)

    def byte_strings(self, name: str) -> list[memoryview]:
        """Byte strings, as views of the record."""
        with self._named(name):
            return self._feature(name).byte_strings()

    def damaged(self, reason: str) -> DataFilesError:
        """The error of a damaged record, with its place."""
        return DataFilesError(f"{self.where} {reason}")

    def _feature(self, name: str) -> Feature:
        if name not in self._features:
            known = ", ".join(sorted(self._features)) or "nothing"
            raise self.damaged(f"has no {name}; expected {self._expected}, and found {known}")
        return self._features[name]

    def _shaped(self, values: np.ndarray, name: str, shape: tuple[int, ...]) -> np.ndarray:
        if values.size != math.prod(shape):
            raise self.damaged(f"has {values.size:,} values of {name}; expected {math.prod(shape):,}, of shape {shape}")
        return values.reshape(shape)

    @contextlib.contextmanager
    def _named(self, name: str = "") -> Iterator[None]:
        """Puts the place of the record, and the name of the feature, before what is wrong with it."""
        try:
            yield
        except DataFilesError as error:
            if str(error).startswith(self.where):
                raise
            raise DataFilesError(f"{self.where}: {name + ': ' if name else ''}{error}") from error


def _contents(values: memoryview, what: str) -> list[memoryview]:
    try:
        return [values[start:stop] for _, _, start, stop in _fields(values)]
    except (IndexError, ValueError) as error:
        raise DataFilesError(f"a list of {what} is damaged ({error})") from error


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
