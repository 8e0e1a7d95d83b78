"""Check sums of the files of a folder, in the form that `sha256sum -c SHA256SUMS` reads as well."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

from slotbench.data.files import DataFilesError, write_atomically
from slotbench.errors import FileError
from slotbench.files import open_regular, read_text

__all__ = ["SUMS", "add_sums", "damaged_files", "file_digest", "read_sums"]

SUMS = "SHA256SUMS"
_BLOCK = 1 << 22
_DIGEST = re.compile("[0-9a-f]{64}")


def file_digest(path: Path, report: Callable[[int], None] | None = None) -> str:
    """SHA-256 of a file in hexadecimal.

    Args:
        path: the file.
        report: is told how many bytes each block had that has been read.

    Raises:
        FileError: there is no regular file, or it cannot be read.
    """
    digest = hashlib.sha256()
    with open_regular(path) as file:
        try:
            while block := file.read(_BLOCK):
                digest.update(block)
                if report is not None:
                    report(len(block))
        except OSError as error:
            raise DataFilesError(f"{path} cannot be read ({error.strerror or error})") from error
    return digest.hexdigest()


def add_sums(folder: Path, digests: dict[str, str]) -> None:
    """Adds digests of files, by name, to those that the folder's list has, or replaces them there."""
    known = (read_sums(folder) if (folder / SUMS).is_file() else {}) | digests
    content = "".join(f"{digest}  {name}\n" for name, digest in sorted(known.items()))
    write_atomically(folder / SUMS, content.encode())


def read_sums(folder: Path) -> dict[str, str]:
    """The digests of a folder's list by file name.

    Raises:
        DataFilesError: the list is not there, or cannot be read.
    """
    path = folder / SUMS
    if not path.is_file():
        raise DataFilesError(f"{folder} has no {SUMS}: the `slotbench prepare` command that wrote it adds one")
    found = {}
    for line in read_text(path).splitlines():
        digest, _, name = line.partition("  ")
        # of files beside it: a list from somebody else must not say what to read elsewhere
        if not _DIGEST.fullmatch(digest) or not name or Path(name).name != name:
            raise DataFilesError(f"{path} is damaged at the line {line[:200]!r}: delete it, and run the command again")
        found[name] = digest
    return found


def damaged_files(folder: Path, report: Callable[[int], None] | None = None) -> dict[str, str]:
    """The files of a folder that are not what its list says, by name, each with what is wrong.

    Args:
        folder: has a list.
        report: is told how many bytes have been read since it was last called.

    Raises:
        DataFilesError: the list is not there, or cannot be read.
    """
    found = {}
    for name, expected in read_sums(folder).items():
        path = folder / name
        if not path.is_file():
            found[name] = "is missing"
            continue
        try:
            if file_digest(path, report) != expected:
                found[name] = "has another content than when it was written"
        except FileError as error:
            found[name] = f"cannot be compared: {error}"
    return found
