"""Files: text, JSON, YAML, numpy's arrays, whole writes, locks, and where the cache is.

What is wrong with a file is a `FileError`, one sentence with the path. Nothing that is read can run code.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import uuid
import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar, cast
from zipfile import BadZipFile

import msgspec
import numpy as np
import yaml
from filelock import BaseFileLock, FileLock, Timeout

from slotbench.errors import FileError

_YamlLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# what numpy and zipfile raise for files that are damaged
_BAD_ARRAY = (ValueError, TypeError, SyntaxError, EOFError, OSError, KeyError, RuntimeError, zlib.error, BadZipFile)

T = TypeVar("T")


class LockedError(Exception):
    """Another process holds a lock."""


def open_file(path: str | Path) -> IO[bytes]:
    """Opens a file to read; a `FileError` where it is not there, is a folder, or may not be read."""
    try:
        return open(path, "rb")
    except FileNotFoundError as error:
        raise FileError(f"there is no file {path}") from error
    except (OSError, ValueError) as error:
        raise FileError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def read_bytes(path: str | Path) -> bytes:
    """The content of a file."""
    with open_file(path) as file:
        return file.read()


def read_text(path: str | Path) -> str:
    """The content of a file of text in UTF-8."""
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileError(f"{path} is not text in UTF-8: {error.reason} at byte {error.start}") from error


def read_json(path: str | Path) -> Any:
    """What a JSON file holds."""
    return parse_json(read_text(path), path)


def read_json_object(path: str | Path) -> dict[str, Any]:
    """What a JSON file holds, an object ({...})."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise FileError(f"{path} holds a {type(found).__name__}; expected a JSON object")
    return found


def read_json_object_or_none(path: str | Path) -> dict[str, Any] | None:
    """What a JSON file holds; None where it is not there or holds no object."""
    try:
        return read_json_object(path)
    except FileError:
        return None


def parse_json(text: str | bytes, where: str | Path) -> Any:
    """JSON as Python's values; `where` is what it was read from, for messages."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{where} is not valid JSON: {error}") from error


def read_yaml(path: str | Path) -> Any:
    """What a YAML file holds, as plain values."""
    return parse_yaml(read_text(path), path)


def parse_yaml(text: str, where: str | Path) -> Any:
    """YAML of one document as plain values; `where` is what it was read from, for messages."""
    try:
        return yaml.load(text, Loader=_YamlLoader)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise FileError(f"{where} is not valid YAML: {' '.join(str(error).split())}") from error


def read_record(path: str | Path, kind: type[T]) -> T:
    """The record in a JSON file, a `TypedDict`, dataclass or msgspec struct."""
    return as_record(read_json(path), kind, path)


def as_record(value: Any, kind: type[T], where: str | Path) -> T:
    """JSON's values as a record; a `TypedDict` keeps entries that it does not name."""
    try:
        converted = msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise FileError(f"{where} is damaged: {error}") from error
    return cast(T, value) if isinstance(converted, dict) else converted


def real(value: Any) -> float | None:
    """A logged value as a float, non-finite ones from their words; None for what is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and value not in ("NaN", "Infinity", "-Infinity"):
        return None
    return float(value)


def numbers(values: Any) -> dict[str, float]:
    """The numbers of a mapping, by name."""
    read = {str(name): real(value) for name, value in values.items()} if isinstance(values, Mapping) else {}
    return {name: value for name, value in read.items() if value is not None}


def plain(value: Any) -> Any:
    """`value` as what strict JSON can hold: non-finite floats are words that `real` reads, other objects their text."""
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return plain(value.tolist()) if hasattr(value, "tolist") else str(value)


def dump_json(value: Any, indent: int | None = None) -> str:
    """Strict JSON of `plain(value)`."""
    return json.dumps(plain(value), indent=indent, allow_nan=False)


def write_atomically(path: str | Path, content: str | bytes | memoryview) -> None:
    """Replaces a file in one step; see `open_atomically`."""
    with open_atomically(path) as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)


@contextlib.contextmanager
def open_atomically(path: str | Path) -> Iterator[IO[bytes]]:
    """A file to write, which replaces the one at `path` in one step once the block has ended well.

    A reader, or a process killed half-way, finds the old content or the new.
    """
    path = Path(path)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.partial")
    try:
        with open(partial, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)  # of a disk that is full it holds what little is left
        raise


def append_line(path: Path, line: str) -> None:
    """Adds a line and hands it to the operating system at once; a full disk leaves no half of it."""
    data = (line + "\n").encode()
    with open(path, "ab", buffering=0) as file:
        before = file.tell()
        try:
            if file.write(data) != len(data):
                raise OSError(28, os.strerror(28), str(path))  # a full disk takes a part first
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(before)
            raise


def cut_torn_line(path: Path) -> None:
    """Removes what a killed writer left after the last newline, so that the next line starts on its own."""
    if path.exists():
        with open(path, "r+b") as file:
            content = file.read()
            if not content.endswith(b"\n"):
                file.truncate(content.rfind(b"\n") + 1)


def map_npy(path: str | Path) -> np.ndarray:
    """The array of an npy file, mapped into memory: only what is looked at is read."""
    open_file(path).close()
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except _BAD_ARRAY as error:
        raise FileError(f"{path} is damaged or no npy file: {' '.join(str(error).split())[:200]}") from error


def npz_names(path: str | Path) -> list[str]:
    """The names of the arrays in an npz file, in its order."""
    with open_file(path) as file, _archive(file, path) as archive:
        return list(archive.files)


def read_npz(path: str | Path, names: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """Arrays of an npz file by name: those of `names` that are there, or all."""
    with open_file(path) as file, _archive(file, path) as archive:
        try:
            return {name: archive[name] for name in archive.files if names is None or name in names}
        except _BAD_ARRAY as error:
            raise FileError(f"{path} is damaged: {' '.join(str(error).split())[:200]}") from error


def _archive(file: IO[bytes], path: str | Path) -> Any:
    try:
        archive = np.load(file, allow_pickle=False)
    except _BAD_ARRAY as error:
        raise FileError(f"{path} is no npz file, or not a whole one: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise FileError(f"{path} is no npz file")
    return archive


def lock(path: str | Path, timeout: float = 0.5) -> BaseFileLock:
    """A held lock between processes on a file, which ends with the process; release it, or leave its `with` block.

    After `timeout` seconds in which another process has it, a `LockedError`.
    """
    held = FileLock(path, thread_local=False)
    try:
        held.acquire(timeout=timeout)
    except Timeout as error:
        raise LockedError(f"another process has {path}") from error
    return held


def is_locked(path: str | Path) -> bool:
    """Whether a process holds the lock on a file."""
    if not Path(path).exists():
        return False
    try:
        lock(path, timeout=0).release()
    except LockedError:
        return True
    return False


def cache_home() -> Path:
    """The user's folder for what can be made again: $SLOTBENCH_CACHE, or the system's place for caches."""
    from platformdirs import user_cache_path

    named = os.environ.get("SLOTBENCH_CACHE")
    return Path(named).expanduser() if named else user_cache_path("slotbench")
