"""Reading files that may be damaged, hostile, or half-written: regular ones, within bounds.

Whatever slotbench reads back (a run, a grid, a cache, a configuration) may come from a third party or from a disk that
was full. No length is believed before it has been checked, and what is wrong is a `FileError`, one sentence with the
path. Imports neither torch nor numpy.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, cast

from slotbench.errors import FileError
from slotbench.files.retrying import persist

__all__ = [
    "RECORD_LIMIT",
    "check_regular",
    "dump_json",
    "kind_of",
    "number",
    "open_regular",
    "parse_json",
    "plain",
    "read_bytes",
    "read_json",
    "read_json_object",
    "read_json_object_or_none",
    "read_text",
]

_MOST_MEMORY = 1 << 30
RECORD_LIMIT = 64 << 20
"""Bytes that a JSON record (run.json, result.json, grid.json, cache.json) may have."""


def open_regular(path: str | Path) -> IO[bytes]:
    """Opens a regular file to read; a FIFO, a device, a socket or a folder is refused without waiting for it.

    Links are followed: what they lead to must be a regular file. Where a link must not lead out of a folder, ask
    `is_inside` first.

    Raises:
        FileError: there is no such file, it is not a regular one, or it may not be read.
    """
    path = Path(path)
    try:
        # without O_NONBLOCK, opening a FIFO waits for its writer
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
        descriptor = persist(lambda: os.open(path, flags))
    except (OSError, ValueError) as error:
        raise FileError(_cannot_open(path, error)) from error
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise FileError(f"{path} is {kind_of(mode)}; expected a file")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def check_regular(path: str | Path) -> Path:
    """The path, if a regular file is there that may be read: for libraries that open files by name.

    Raises:
        FileError: see `open_regular`.
    """
    open_regular(path).close()
    return Path(path)


def read_bytes(path: str | Path, limit: int = RECORD_LIMIT) -> bytes:
    """The content of a regular file of at most `limit` bytes.

    Raises:
        FileError: see `open_regular`; or it is larger, or the disk cannot read it.
    """
    with open_regular(path) as file:
        try:
            content = file.read(limit + 1)
        except OSError as error:
            raise FileError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(content) > limit:
        raise FileError(f"{path} is larger than the {limit:,} bytes that such a file may have")
    return content


def read_text(path: str | Path, limit: int = RECORD_LIMIT) -> str:
    """The content of a UTF-8 file of at most `limit` bytes.

    Raises:
        FileError: see `read_bytes`; or it is not UTF-8.
    """
    try:
        return read_bytes(path, limit).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileError(f"{path} is not text in UTF-8: {_byte_at(error)}") from error


def read_json(path: str | Path, limit: int = RECORD_LIMIT) -> Any:
    """What a JSON file holds.

    Raises:
        FileError: see `read_text`; or it is not JSON, is nested too deeply, has an integer of thousands of digits, or
            would take more than 1 GiB of memory.
    """
    text = read_text(path, limit)
    if _memory_of(text) > _MOST_MEMORY:
        raise FileError(f"{path} would take more than {_MOST_MEMORY >> 20:,} MiB of memory: it is no file of ours")
    return parse_json(text, path)


def read_json_object(path: str | Path, limit: int = RECORD_LIMIT) -> dict[str, Any]:
    """What a JSON file holds, if that is an object ({...}).

    Raises:
        FileError: see `read_json`; or it holds anything else.
    """
    found = read_json(path, limit)
    if not isinstance(found, dict):
        raise FileError(f"{path} holds {_described(found)}; expected a JSON object")
    return found


def read_json_object_or_none(path: str | Path, limit: int = RECORD_LIMIT) -> dict[str, Any] | None:
    """What a JSON file holds; None where it is not there, cannot be read, or holds no object."""
    try:
        return read_json_object(path, limit)
    except FileError:
        return None


def parse_json(text: str | bytes, where: str | Path) -> Any:
    """JSON as Python's values.

    Args:
        text: the JSON.
        where: what it was read from, for messages.

    Raises:
        FileError: it is not JSON, is nested too deeply, or has an integer of thousands of digits.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise FileError(f"{where} is not valid JSON: line {error.lineno}, column {error.colno}: {error.msg}") from error
    except UnicodeDecodeError as error:
        raise FileError(f"{where} is not text in UTF-8: {_byte_at(error)}") from error
    except RecursionError as error:
        raise FileError(f"{where} is not a file of ours: its JSON is nested too deeply") from error
    except ValueError as error:
        raise FileError(f"{where} is not a file of ours: it holds a number of thousands of digits") from error


def dump_json(value: Any, indent: int | None = None) -> str:
    """Strict JSON: non-finite floats become strings that `float` reads back, other objects become their text."""
    return json.dumps(plain(value), indent=indent, allow_nan=False)


def plain(value: Any) -> Any:
    """`value` as what strict JSON can hold."""
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, float) or hasattr(value, "__float__"):
        real = float(value)
        if math.isfinite(real):
            return real
        return "NaN" if math.isnan(real) else ("Infinity" if real > 0 else "-Infinity")
    return str(value)


def number(value: Any) -> Any:
    """What `plain` made of a number, as the number again."""
    return float(value) if value in ("NaN", "Infinity", "-Infinity") else value


def _cannot_open(path: Path, error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"there is no file {path}"
    if isinstance(error, PermissionError):
        return f"{path} may not be read: its permissions do not allow it"
    return f"{path} cannot be opened: {getattr(error, 'strerror', None) or error}"


def kind_of(mode: int) -> str:
    """What is no regular file, in words: "a folder", "a named pipe", "a socket", "a link", "a device"."""
    kinds = (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a named pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISLNK, "a link"),
    )
    return next((name for test, name in kinds if test(mode)), "a device")


def _described(value: Any) -> str:
    names: Iterator[tuple[Any, str]] = iter(((list, "a list"), (str, "a text"), (bool, "true or false")))
    return next((name for kind, name in names if isinstance(value, kind)), "nothing" if value is None else "a number")


def _memory_of(text: str) -> int:
    """Bytes that JSON takes as Python's values, at most; of `{}`, two characters, it is 64."""
    return 3 * len(text) + 240 * text.count("{") + 96 * text.count("[") + 96 * text.count(",")


def _byte_at(error: UnicodeDecodeError) -> str:
    return f"byte {error.start:,} is 0x{cast(bytes, error.object)[error.start]:02x}"
