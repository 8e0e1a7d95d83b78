"""TFRecord files without TensorFlow: their records by number, or one after the other while they are unpacked.

A record is its length (8 bytes, little endian), a checksum of that (4 bytes), the content, and the content's checksum
(4 bytes). `slotbench.data.formats.tf_example` reads the content.

Source: the description of the TFRecord format.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import mmap
import os
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from slotbench.arrays import read_npz
from slotbench.data.compiled import compiled
from slotbench.data.descriptors import share_of_descriptors, too_many_open
from slotbench.errors import DataFilesError, FileError
from slotbench.files import cache_home, open_regular, write_atomically

__all__ = ["TFRecords", "is_gzip", "masked_crc32c", "stream_gzip"]

_HEADER, _FOOTER = 12, 4
_MOST_BYTES = 1 << 28  # of a record; those of MOVi-E have 1 to 10 million
_MOST_OPEN = 128  # files mapped at a time
_SMALL = 1 << 20
_POLYNOMIAL = 0x82F63B78  # of CRC-32C, lowest bit first
_SHORT = 16  # bytes that are not worth loading a compiler for
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
