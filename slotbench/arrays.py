"""Numpy's files that may be damaged or hostile: the header is compared with the file before anything is allocated.

Nothing is unpickled. Imports neither torch nor anything of slotbench beyond `errors` and `files`.
"""

from __future__ import annotations

import io
import math
import os
import struct
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from slotbench.errors import FileError
from slotbench.files import open_regular

__all__ = ["ARRAY_LIMIT", "map_npy", "npz_names", "parse_npy", "read_npz"]

ARRAY_LIMIT = 1 << 30
"""Bytes that the arrays of a file may have which is read as a whole."""

_MOST_AXES = 32
_MOST_BYTES = (1 << 63) - 1
_PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # all that numpy writes; others may ask for any memory
_BAD_HEADER = (ValueError, TypeError, SyntaxError, OverflowError, RecursionError, MemoryError, EOFError)
_BAD_ARCHIVE = (zipfile.BadZipFile, OSError, ValueError, EOFError, RuntimeError, KeyError, struct.error, zlib.error)


class _Layout(NamedTuple):
    """Header of an npy file; values begin at `start`."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    order: Any
    start: int
    size: int


def map_npy(path: str | Path) -> np.ndarray:
    """The array of an npy file, mapped into memory: only what is looked at is read.

    Raises:
        FileError: it is missing, is no npy file, has another size than in its header, or holds Python's objects.
    """
    with open_regular(path) as file:
        layout = _layout(file, path)
        size = os.fstat(file.fileno()).st_size
        if layout.start + layout.size != size:
            raise FileError(_wrong_size(path, layout, size - layout.start))
        if not layout.size:
            return np.empty(layout.shape, layout.dtype)
        try:
            return np.memmap(file, layout.dtype, "r", layout.start, layout.shape, layout.order)
        except (OSError, ValueError, OverflowError) as error:
            raise FileError(f"{path} cannot be mapped into memory: {error}") from error


def parse_npy(content: bytes, where: str | Path) -> np.ndarray:
    """The array of an npy file that has been read already.

    Args:
        content: the file.
        where: what it was read from, for messages.

    Raises:
        FileError: see `map_npy`.
    """
    layout = _layout(io.BytesIO(content), where)
    if layout.start + layout.size != len(content):
        raise FileError(_wrong_size(where, layout, len(content) - layout.start))
    return _array(bytearray(content[layout.start :]), layout, where)


def npz_names(path: str | Path) -> list[str]:
    """The names of the arrays in an npz file, in its order.

    Raises:
        FileError: it is missing, or no npz file.
    """
    with open_regular(path) as file, _archive(file, path) as archive:
        return [info.filename.removesuffix(".npy") for info in archive.infolist()]


def read_npz(path: str | Path, names: Collection[str] | None = None, limit: int = ARRAY_LIMIT) -> dict[str, np.ndarray]:
    """Arrays of an npz file by name.

    Args:
        path: the file.
        names: those to read; all if None.
        limit: bytes that they may have together, unpacked.

    Raises:
        FileError: it is missing, no npz file, damaged, larger than `limit`, or holds Python's objects.
    """
    found: dict[str, np.ndarray] = {}
    left = limit
    with open_regular(path) as file, _archive(file, path) as archive:
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if names is not None and name not in names:
                continue
            where = f"{path} ({name})"
            if info.compress_type not in _PACKED:
                raise FileError(f"{where} is packed in a way that numpy does not use")
            left -= info.file_size
            if left < 0:
                raise FileError(f"{path} holds more than the {limit:,} bytes that such a file may have")
            try:
                with archive.open(info) as member:
                    layout = _layout(member, where)
                    if layout.start + layout.size != info.file_size:
                        raise FileError(_wrong_size(where, layout, info.file_size - layout.start))
                    values = bytearray(layout.size)
                    read = member.readinto(values) if layout.size else 0  # type: ignore[attr-defined]
                    # the sum of the content is compared at its end only
                    if read != layout.size or member.read(1):
                        raise FileError(f"{where} ends early: it is damaged")
            except FileError:
                raise
            except _BAD_ARCHIVE as error:
                raise FileError(f"{where} is damaged: {_one_line(error)}") from error
            found[name] = _array(values, layout, where)
    return found


def _archive(file: IO[bytes], path: str | Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except _BAD_ARCHIVE as error:
        raise FileError(f"{path} is no npz file, or not a whole one: {_one_line(error)}") from error


def _layout(file: Any, where: str | Path) -> _Layout:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a damaged header is a strange expression
            version = np.lib.format.read_magic(file)
            if version not in ((1, 0), (2, 0)):
                raise ValueError(f"version {version[0]}.{version[1]}")
            read = np.lib.format.read_array_header_1_0 if version[0] == 1 else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(file)
    except (*_BAD_HEADER, *_BAD_ARCHIVE, tokenize.TokenError) as error:
        raise FileError(f"{where} is no npy file, or its header is damaged: {_one_line(error)}") from error
    if dtype.hasobject or not dtype.itemsize or dtype.subdtype is not None:
        raise FileError(f"{where} holds {dtype} values; expected numbers")
    if len(shape) > _MOST_AXES or any(isinstance(length, bool) or length < 0 for length in shape):
        raise FileError(f"{where} has a damaged header: its shape is {_one_line(ValueError(shape))}")
    # an array without values has to be one that numpy can make, too
    if 0 in shape and math.prod(length or 1 for length in shape) * dtype.itemsize > _MOST_BYTES:
        raise FileError(f"{where} has a damaged header: its shape is {_one_line(ValueError(shape))}")
    return _Layout(shape, dtype, "F" if fortran else "C", file.tell(), math.prod(shape) * dtype.itemsize)


def _array(values: bytearray, layout: _Layout, where: str | Path) -> np.ndarray:
    try:
        return np.frombuffer(values, layout.dtype).reshape(layout.shape, order=layout.order)
    except (ValueError, OverflowError) as error:
        raise FileError(f"{where} has a damaged header: {_one_line(error)}") from error


def _wrong_size(where: str | Path, layout: _Layout, size: int) -> str:
    shape = _one_line(ValueError(layout.shape))
    return (
        f"{where} is damaged or incomplete: its header has shape {shape} of {layout.dtype}, {_some(layout.size)} "
        f"bytes, and it has {max(size, 0):,}"
    )


def _some(size: int) -> str:
    return f"{size:,}" if size < 1 << 70 else "far too many"


def _one_line(error: BaseException) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:120]
