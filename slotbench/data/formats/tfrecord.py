"""TFRecord files, and the `tf.train.Example` in each record, without TensorFlow.

A record is its length (8 bytes, little endian), a checksum of that (4 bytes), the content, and the content's checksum
(4 bytes). An `Example` is a map from feature names to lists of byte strings, of floats, or of integers; parsing finds
where the lists are and copies nothing, so that a record of megabytes of which a few frames are wanted costs little.

Source: the descriptions of the TFRecord format and of protocol buffers' wire format; `example.proto`, `feature.proto`.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import math
import mmap
import os
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32, Int64, UInt8

from slotbench.arrays import read_npz
from slotbench.data.compiled import compiled
from slotbench.data.descriptors import share_of_descriptors, too_many_open
from slotbench.errors import DataFilesError, FileError
from slotbench.files import cache_home, open_regular, write_atomically

__all__ = ["Example", "Feature", "TFRecords", "is_gzip", "masked_crc32c", "parse_example", "stream_gzip"]

Kind = Literal["bytes", "floats", "ints"]

_HEADER, _FOOTER = 12, 4
_MOST_BYTES = 1 << 28  # of a record; those of MOVi-E have 1 to 10 million
_MOST_OPEN = 128  # files mapped at a time
_SMALL = 1 << 20
_POLYNOMIAL = 0x82F63B78  # of CRC-32C, lowest bit first
_SHORT = 16  # bytes that are not worth loading a compiler for
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types
_KINDS: dict[int, Kind] = {1: "bytes", 2: "floats", 3: "ints"}
_ADVICE = "copy it again, for it is incomplete or damaged"


class TFRecords:
    """The records of one or several TFRecord files, by index, in the order of the files.

    Where each record lies is found out once, and kept in a small file beside the first one (`.slotbench-NAME.npz`), or
    else in the user's cache folder, until a file's size or time changes. Files are mapped into memory; as each map
    keeps a file open, those that were not read for longest are closed again.

    Args:
        files: the files, in order.
        verify: whether the checksum of a record is compared each time that it is read.

    Raises:
        DataFilesError: a file is missing, compressed, cut off, or no TFRecord file.
    """

    def __init__(self, files: Sequence[Path], verify: bool = False) -> None:
        self.files = [Path(file) for file in files]
        self.verify = verify
        for file in self.files:
            if not file.is_file():
                raise DataFilesError(f"there is no file {file}; expected a TFRecord file")
        self._shards, self._starts, self._lengths = _index(self.files)
        self._maps: OrderedDict[int, mmap.mmap] = OrderedDict()
        self._most_open = min(_MOST_OPEN, share_of_descriptors())

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int) -> memoryview:
        """The content of record `index`, not copied."""
        shard, start, length = int(self._shards[index]), int(self._starts[index]), int(self._lengths[index])
        whole = memoryview(self._map(shard))
        content = whole[start : start + length]
        if self.verify and masked_crc32c(content) != _number(whole[start + length : start + length + _FOOTER]):
            raise DataFilesError(f"record {index} of {self.files[shard]} does not have its checksum: {_ADVICE}")
        return content

    def where(self, index: int) -> str:
        """File and position of a record, for messages."""
        return f"{self.files[int(self._shards[index])]} (record at byte {int(self._starts[index]) - _HEADER:,})"

    def _map(self, shard: int) -> mmap.mmap:
        if shard in self._maps:
            self._maps.move_to_end(shard)
            return self._maps[shard]
        while len(self._maps) >= self._most_open:
            # not closed by hand: a record that is still in use keeps its map alive
            self._maps.popitem(last=False)
        path = self.files[shard]
        try:
            with open_regular(path) as file:
                self._maps[shard] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, FileError) as error:
            reason = too_many_open(error) or f"{path} cannot be mapped into memory: {error}"
            raise DataFilesError(reason) from error
        except ValueError as error:
            raise DataFilesError(f"{path} is empty, and was not before: {_ADVICE}") from error
        return self._maps[shard]

    def __getstate__(self) -> dict[str, Any]:
        # a mapping cannot be sent to another process, which opens its own
        return self.__dict__ | {"_maps": OrderedDict()}


def is_gzip(path: Path) -> bool:
    """Whether a file begins as a gzip file does."""
    with open_regular(path) as file:
        return file.read(2) == b"\x1f\x8b"


def stream_gzip(path: Path, first: int = 0, report: Callable[[int], None] | None = None) -> Iterator[memoryview]:
    """The records of a gzipped TFRecord file from number `first` on; those before are unpacked and thrown away.

    Args:
        path: the file.
        first: records to pass over.
        report: called after each record with the number of bytes of the file read.

    Raises:
        DataFilesError: the file is cut off, damaged, or no gzipped TFRecord file.
    """
    with open_regular(path) as raw, io.BufferedReader(gzip.GzipFile(fileobj=raw), 1 << 20) as file:  # type: ignore[type-var]
        number = 0
        try:
            while header := file.read(_HEADER):
                length = _number(header[:8])
                # the length's own sum is always compared: it costs nothing, and a wrong length would take all memory
                if len(header) < _HEADER or masked_crc32c(header[:8]) != _number(header[8:]):
                    raise DataFilesError(f"{path} is no TFRecord file, or damaged at record {number}: {_ADVICE}")
                if length > _MOST_BYTES:
                    raise DataFilesError(_too_long(path, number, length))
                content, footer = file.read(length), file.read(_FOOTER)
                if len(content) < length or len(footer) < _FOOTER:
                    raise DataFilesError(f"{path} ends within record {number}: {_ADVICE}")
                if number >= first:
                    yield memoryview(content)
                if report is not None:
                    report(raw.tell())
                number += 1
        except (OSError, EOFError, zlib.error) as error:
            raise DataFilesError(f"{path} cannot be unpacked beyond record {number} ({error}): {_ADVICE}") from error


def _index(files: list[Path]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shard, start and length of every record, from the index file if it is there and belongs to these files."""
    stats = [file.stat() for file in files]
    key = {
        "names": np.array([file.name for file in files]),
        "sizes": np.array([stat.st_size for stat in stats]),
        "times": np.array([stat.st_mtime_ns for stat in stats]),
    }
    places = _index_places(files[0])
    for place in places:
        try:
            # three numbers per record, and no record without a header
            stored = read_npz(place, limit=_SMALL + 2 * sum(stat.st_size for stat in stats))
            if all(np.array_equal(stored[name], value) for name, value in key.items()) and _is_index(stored, key):
                return stored["shards"], stored["starts"], stored["lengths"]
        except (FileError, KeyError):
            continue  # not there, or not ours: it is made again
    found = [_scan(file) for file in files]
    starts, lengths = np.concatenate(found).reshape(-1, 2).T.copy()
    shards = np.repeat(np.arange(len(files)), [len(records) for records in found])
    content = io.BytesIO()
    np.savez(content, **key, shards=shards, starts=starts, lengths=lengths)  # type: ignore[arg-type]
    for place in places:
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(place, content.getvalue())
            break
        except OSError:
            continue  # without the file the next process finds out again
    return shards, starts, lengths


def _is_index(stored: dict[str, np.ndarray], key: dict[str, np.ndarray]) -> bool:
    """Whether a stored index places every record within one of the files."""
    shards, starts, lengths = arrays = [stored[name] for name in ("shards", "starts", "lengths")]
    if any(values.shape != (len(shards),) or values.dtype != np.int64 for values in arrays):
        return False
    if not len(shards):
        return bool((key["sizes"] == 0).all())
    if not (shards.min() >= 0 and shards.max() < len(key["sizes"]) and starts.min() >= _HEADER):
        return False
    if not (lengths.min() >= 0 and lengths.max() <= _MOST_BYTES):
        return False
    return bool((starts <= key["sizes"][shards] - lengths - _FOOTER).all())


def _index_places(first: Path) -> list[Path]:
    stem = first.name.partition(".tfrecord")[0]
    folder = hashlib.sha256(str(first.parent.resolve()).encode()).hexdigest()[:16]
    return [first.parent / f".slotbench-{stem}.npz", cache_home() / "tfrecord" / f"{folder}-{stem}.npz"]


def _scan(path: Path) -> np.ndarray:
    """Start and length of each record of a file: "records 2"."""
    found: list[tuple[int, int]] = []
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        position = 0
        while position < size:
            file.seek(position)
            header = file.read(_HEADER)
            if position == 0 and header[:2] == b"\x1f\x8b":
                raise DataFilesError(f"{path} is compressed by gzip, so its records cannot be read by index")
            start = position + _HEADER
            length = _number(header[:8]) if len(header) == _HEADER else size
            # a length is believed if its sum is right: a wrong one would take what follows for a header
            if len(header) == _HEADER and masked_crc32c(header[:8]) != _number(header[8:]):
                if position == 0:
                    raise DataFilesError(f"{path} is no TFRecord file: it begins with {header!r}")
                raise DataFilesError(
                    f"{path} is damaged at byte {position:,}, where record {len(found)} begins: {_ADVICE}"
                )
            position = start + length + _FOOTER
            if position > size:
                raise DataFilesError(
                    f"{path} ends within record {len(found)}: it has {size:,} bytes and the record would end at "
                    f"{position:,}: {_ADVICE}"
                )
            if length > _MOST_BYTES:
                raise DataFilesError(_too_long(path, len(found), length))
            found.append((start, length))
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def _too_long(path: Path, number: int, length: int) -> str:
    return f"record {number} of {path} has {length:,} bytes; expected at most {_MOST_BYTES:,}: {_ADVICE}"


def _number(little_endian: bytes | memoryview) -> int:
    return int.from_bytes(little_endian, "little")


def masked_crc32c(data: bytes | memoryview) -> int:
    """The checksum of `data` as a TFRecord file stores it.

    Source: the TFRecord format's description: `((crc >> 15) | (crc << 17)) + 0xa282ead8`, modulo 2^32.
    """
    if len(data) <= _SHORT:
        crc = _crc(bytes(data), _table().tolist())
    else:
        crc = int(compiled(_crc)(np.frombuffer(data, np.uint8), _table()))
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


@lru_cache(maxsize=1)
def _table() -> np.ndarray:
    values = np.arange(256, dtype=np.int64)
    for _ in range(8):
        values = np.where(values & 1, (values >> 1) ^ _POLYNOMIAL, values >> 1)
    return values


def _crc(data: Any, table: Any) -> int:
    crc = 0xFFFFFFFF
    for i in range(len(data)):
        crc = table[(crc ^ data[i]) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


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
