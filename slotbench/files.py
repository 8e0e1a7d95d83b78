"""Files that may be damaged, hostile, or half-written: bounded reads, whole writes, and where the cache is.

Whatever slotbench reads back (a run, a grid, a cache, a configuration) may come from somebody else or from a disk that
was full. Everything here opens regular files only, believes no length before it has checked it, and raises `FileError`,
one sentence with the path. Imports neither torch nor numpy.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import json
import math
import os
import secrets
import stat
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, cast

from slotbench.errors import FileError

__all__ = [
    "RECORD_LIMIT",
    "append_whole_line",
    "cache_home",
    "check_regular",
    "check_writable",
    "cut_torn_line",
    "dump_json",
    "fsync_folder",
    "is_inside",
    "number",
    "open_atomically",
    "open_regular",
    "own_file",
    "parse_json",
    "plain",
    "read_bytes",
    "read_json",
    "read_json_object",
    "read_json_object_or_none",
    "read_text",
    "regular_files",
    "remove_partials",
    "write_atomically",
]

RECORD_LIMIT = 64 << 20
"""Bytes that a JSON record (run.json, result.json, grid.json, cache.json) may have."""
_ABANDONED = 3600.0
_PROBE_BYTES = 1 << 16
_WHY_UNWRITABLE = {
    errno.EROFS: "it is on a file system that can only be read",
    errno.EACCES: "its permissions do not allow it",
    errno.EPERM: "its permissions do not allow it",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your quota on this disk is used up",
}


# --- reading ---------------------------------------------------------------------------------------------------------


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
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except (OSError, ValueError) as error:
        raise FileError(_cannot_open(path, error)) from error
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise FileError(f"{path} is {_kind(mode)}; expected a file")
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
        FileError: see `read_text`; or it is not JSON, is nested too deeply, or has an integer of thousands of digits.
    """
    return parse_json(read_text(path, limit), path)


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


# --- folders ---------------------------------------------------------------------------------------------------------


def is_inside(folder: str | Path, path: str | Path) -> bool:
    """Whether the real place of `path`, links followed, lies in the real place of `folder`."""
    try:
        return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
    except (OSError, ValueError):  # a loop of links, or a name that the system does not take
        return False


def own_file(folder: Path, name: str) -> Path:
    """A file of a folder, which must not be a link to somewhere else; it need not be there.

    Raises:
        FileError: it leads out of the folder.
    """
    if not is_inside(folder, folder / name):
        raise FileError(f"{folder / name} is a link that leads out of the run's folder")
    return folder / name


def regular_files(folder: str | Path, pattern: str = "*", limit: int = 100_000) -> list[Path]:
    """The regular files in `folder` that match, sorted; links that lead out of it, FIFOs and devices are left out.

    Raises:
        FileError: there are more than `limit` of them.
    """
    found: list[Path] = []
    for path in Path(folder).glob(pattern):
        with contextlib.suppress(OSError):
            if stat.S_ISREG(os.stat(path).st_mode) and is_inside(folder, path):
                found.append(path)
        if len(found) > limit:
            raise FileError(f"{folder} has more than {limit:,} files {pattern}")
    return sorted(found)


# --- writing ---------------------------------------------------------------------------------------------------------


def write_atomically(path: str | Path, content: str | bytes) -> None:
    """Replaces a file in one step; see `open_atomically`."""
    with open_atomically(path) as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)


@contextlib.contextmanager
def open_atomically(path: str | Path) -> Iterator[IO[bytes]]:
    """A file to write, which replaces the one at `path` in one step once the block has ended well.

    A reader, or a process killed half-way, finds the old content or the new. The file gets the permissions that the
    user's umask gives to any new file. What a killed writer of the same file has left beside it is removed.

    Raises:
        OSError: the disk is full, or the folder is not there or not writable; the old file is untouched.
    """
    path = Path(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)  # of a disk that is full it holds what little is left
        raise
    remove_partials(path.parent, path.name)


def cut_torn_line(path: Path) -> None:
    """Removes what a killed writer left after the last newline, so that the next line starts on its own."""
    if not path.exists():
        return
    with open(path, "rb+") as file:
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)


def append_whole_line(path: Path, line: str) -> None:
    """Adds a line and hands it to the operating system at once.

    Raises:
        OSError: it could not be written whole; what was written of it is taken back.
    """
    data = (line + "\n").encode()
    # unbuffered and in append mode: one line is one write
    with open(path, "ab", buffering=0) as file:
        before = file.tell()
        written = file.write(data)
        if written != len(data):
            # a disk that fills up takes a part and says so only at the next write
            file.truncate(before)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def remove_partials(folder: str | Path, name: str | None = None, older_than: float = _ABANDONED) -> None:
    """Removes what killed writers have left: hidden files that end in `.partial`.

    Args:
        folder: where to look; not below it.
        name: of the file that was written; None for any.
        older_than: seconds since the last change. 0 only where the caller holds the folder's lock.
    """
    now = time.time()
    for partial in Path(folder).glob(f".{'*' if name is None else glob.escape(name)}.*.partial"):
        with contextlib.suppress(OSError):
            if not partial.is_symlink() and partial.is_file() and now - partial.stat().st_mtime >= older_than:
                partial.unlink()


def fsync_folder(path: Path) -> None:
    """Makes the renames in a folder last through a crash of the machine."""
    with contextlib.suppress(OSError):  # some systems cannot, and need not
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def check_writable(folder: Path, mend: str) -> None:
    """Writes a small file into a folder, or where it would be made, and removes it.

    Args:
        folder: there already or not.
        mend: what to do about it.

    Raises:
        FileError: it cannot be written; says why, and what to type.
    """
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(place))
    if not there.is_dir():
        raise FileError(f"{folder} cannot be written: {there} is no folder; {mend}")
    probe = there / f".slotbench-{os.getpid()}-{secrets.token_hex(4)}.partial"
    try:
        descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(descriptor, bytes(_PROBE_BYTES))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        why = _WHY_UNWRITABLE.get(error.errno or 0, error.strerror or str(error))
        raise FileError(f"{folder} cannot be written: {why}; {mend}") from error
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)


def cache_home() -> Path:
    """The user's folder for what can be made again: $SLOTBENCH_CACHE, else $XDG_CACHE_HOME/slotbench, else
    ~/.cache/slotbench."""
    if named := os.environ.get("SLOTBENCH_CACHE"):
        return Path(named).expanduser()
    general = os.environ.get("XDG_CACHE_HOME")
    return (Path(general) if general else Path.home() / ".cache") / "slotbench"


# --- words -----------------------------------------------------------------------------------------------------------


def _cannot_open(path: Path, error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"there is no file {path}"
    if isinstance(error, PermissionError):
        return f"{path} may not be read: its permissions do not allow it"
    return f"{path} cannot be opened: {getattr(error, 'strerror', None) or error}"


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a named pipe"), (stat.S_ISSOCK, "a socket"))
    return next((name for test, name in kinds if test(mode)), "a device")


def _described(value: Any) -> str:
    names: Iterator[tuple[Any, str]] = iter(((list, "a list"), (str, "a text"), (bool, "true or false")))
    return next((name for kind, name in names if isinstance(value, kind)), "nothing" if value is None else "a number")


def _byte_at(error: UnicodeDecodeError) -> str:
    return f"byte {error.start:,} is 0x{cast(bytes, error.object)[error.start]:02x}"
