"""Writing files: whole or not at all, never through a link, and more than once where the disk refuses for a moment.

Everything that slotbench writes into a folder of a run or of a grid goes through here. A folder may come from a
third party: in the place of a file may be a link, a named pipe, or another name of a file elsewhere.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from slotbench.errors import FileError
from slotbench.files.folders import remove_partials
from slotbench.files.reading import kind_of
from slotbench.files.retrying import persist, remove_file, replace_file

__all__ = [
    "append_whole_line",
    "cut_torn_line",
    "open_atomically",
    "open_own",
    "open_to_append",
    "write_anew",
    "write_atomically",
]

_BLOCK = 1 << 16


def open_own(path: str | Path, flags: int) -> int:
    """The descriptor of a regular file, made if `flags` have `O_CREAT`; a link in its place is not followed.

    Raises:
        FileError: in its place is a link, a folder, a named pipe, a socket or a device.
        OSError: it is not there, cannot be made, or may not be written.
    """
    # without O_NONBLOCK, opening a FIFO waits for the other end
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        descriptor = persist(lambda: os.open(path, flags, 0o666))
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            _check_kind(path, os.lstat(path).st_mode)
        raise
    try:
        _check_kind(path, os.fstat(descriptor).st_mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_to_append(path: str | Path) -> IO[bytes]:
    """A regular file to append to, unbuffered: one write is handed to the operating system at once.

    A file that has a second name gets a copy of its own first: the other may belong to someone else.

    Raises:
        FileError: see `open_own`.
        OSError: see `open_own`.
    """
    _part_from_others(Path(path))
    return os.fdopen(open_own(path, os.O_RDWR | os.O_CREAT | os.O_APPEND), "ab", buffering=0)


def write_atomically(path: str | Path, content: str | bytes | memoryview) -> None:
    """Replaces a file in one step; see `open_atomically`."""
    data = content.encode("utf-8") if isinstance(content, str) else content

    def write() -> None:
        with open_atomically(path) as file:
            file.write(data)

    persist(write)


@contextlib.contextmanager
def open_atomically(path: str | Path) -> Iterator[IO[bytes]]:
    """A file to write, which replaces the one at `path` in one step once the block has ended well.

    A reader, or a process killed half-way, finds the old content or the new. The file gets the permissions that the
    user's umask gives to any new file. What a killed writer of the same file has left beside it is removed.

    Raises:
        OSError: the disk is full, or the folder is not there or not writable; the old file is untouched.
    """
    path = Path(path)
    partial, descriptor = persist(lambda: _begin(path), also=lambda error: isinstance(error, FileExistsError))
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        replace_file(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            remove_file(partial)  # of a disk that is full it holds what little is left
        raise
    remove_partials(path.parent, path.name)


def write_anew(path: Path, content: bytes | memoryview) -> None:
    """Writes a new file in the place of whatever is there, and waits until the disk has it.

    Raises:
        OSError: it could not be written whole; then it is removed.
    """

    def write() -> None:
        remove_file(path)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    try:
        persist(write, also=lambda error: isinstance(error, FileExistsError))
    except BaseException:
        with contextlib.suppress(OSError):
            remove_file(path)
        raise


def cut_torn_line(path: Path) -> None:
    """Removes what a killed writer left after the last newline, so that the next line starts on its own.

    Raises:
        FileError: see `open_own`.
        OSError: see `open_own`.
    """
    if not os.path.lexists(path):
        return
    _part_from_others(path)

    def cut() -> None:
        descriptor = open_own(path, os.O_RDWR)
        try:
            size = os.fstat(descriptor).st_size
            if (kept := _whole_bytes(descriptor, size)) != size:
                os.ftruncate(descriptor, kept)
        finally:
            os.close(descriptor)

    persist(cut)


def append_whole_line(path: Path, line: str) -> None:
    """Adds a line and hands it to the operating system at once.

    Raises:
        FileError: see `open_own`.
        OSError: it could not be written whole; what was written of it is taken back.
    """
    data = (line + "\n").encode()
    before: int | None = None

    def append() -> None:
        nonlocal before
        with open_to_append(path) as file:
            size = os.fstat(file.fileno()).st_size
            if before is None:
                before = size
            elif size > before:
                there = os.pread(file.fileno(), len(data) + 1, before)
                if there == data:
                    return  # written, and denied
                if data.startswith(there):
                    file.truncate(before)
            try:
                written = file.write(data)
            except OSError:
                with contextlib.suppress(OSError):
                    file.truncate(before)
                raise
            if written != len(data):
                # a full disk takes a part and fails only at the next write
                file.truncate(before)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    persist(append)


def _begin(path: Path) -> tuple[Path, int]:
    """A new file beside `path` with a name of its own, by path and descriptor."""
    partial = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.partial")
    try:
        return partial, os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
    except OSError:
        with contextlib.suppress(OSError):  # made, and denied
            os.unlink(partial)
        raise


def _part_from_others(path: Path) -> None:
    """Lets a file that has a second name be one of its own."""
    try:
        found = os.lstat(path)
    except OSError:
        return
    if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
        with open(path, "rb") as source, open_atomically(path) as copy:
            shutil.copyfileobj(source, copy)


def _whole_bytes(descriptor: int, size: int) -> int:
    """How many bytes there are up to the last newline."""
    end = size
    while end > 0:
        start = max(0, end - _BLOCK)
        if (last := os.pread(descriptor, end - start, start).rfind(b"\n")) >= 0:
            return start + last + 1
        end = start
    return 0


def _check_kind(path: str | Path, mode: int) -> None:
    """Raises FileError unless these are the bits of a regular file."""
    if not stat.S_ISREG(mode):
        raise FileError(f"{path} is {kind_of(mode)}, and nothing is written through it; expected a file: remove it")
