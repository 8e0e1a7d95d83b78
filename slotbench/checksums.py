"""SHA-256 checksums of the files in a folder, kept in one small file beside them.

    FOLDER/SHA256SUMS         of prepared data: one "DIGEST  NAME" per line, as `sha256sum -c SHA256SUMS` reads it
    FOLDER/checksums.json     of checkpoints: {"sha256": {DIGEST: {"bytes": 12345, "step": 400}, ...}, "names": [...]}

Checkpoints are renamed and linked, and a process that is killed between two renames must leave nothing that looks
damaged. So `checksums.json` has the digest of every content that a file under one of the `names` may rightly have,
whatever its name: that of a new file is written down before the file is put in its place, and forgotten once the file
is replaced. Imports neither torch nor numpy.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Required, TypedDict

from slotbench.errors import DataFilesError, FileError
from slotbench.files import open_regular, read_text, write_atomically
from slotbench.records import read_record

__all__ = [
    "CHECKSUMS",
    "SUMS",
    "add_sums",
    "check_archive",
    "damaged_files",
    "file_digest",
    "is_known",
    "known_digests",
    "read_sums",
    "remember",
    "verify",
]

CHECKSUMS, SUMS = "checksums.json", "SHA256SUMS"
_CHUNK = 1 << 22
_DIGEST = re.compile("[0-9a-f]{64}")


class _Checksums(TypedDict, total=False):
    """What `checksums.json` holds: by digest what is known of the file, and the names that it is about."""

    sha256: Required[dict[str, dict[str, Any]]]
    names: list[str]


def file_digest(path: Path, report: Callable[[int], None] | None = None) -> str:
    """SHA-256 of a regular file, in hexadecimal.

    Args:
        path: the file.
        report: is told how many bytes each block had that has been read.

    Raises:
        FileError: it cannot be read.
    """
    digest = hashlib.sha256()
    with open_regular(path) as file:
        try:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                if report is not None:
                    report(len(chunk))
        except OSError as error:
            raise FileError(f"{path} cannot be read: {error.strerror or error}") from error
    return digest.hexdigest()


def known_digests(folder: Path) -> dict[str, dict[str, Any]]:
    """Checksums of the files of a folder: digest -> its line; empty where there is no record.

    Raises:
        FileError: the record is damaged.
    """
    if not (folder / CHECKSUMS).exists():
        return {}
    return read_record(folder / CHECKSUMS, _Checksums)["sha256"]


def remember(folder: Path, names: Iterable[str], digests: Mapping[str, Mapping[str, Any]]) -> None:
    """Writes down, in one step, all the digests that the files of these names may have.

    Raises:
        OSError: the disk is full, or the folder cannot be written to.
    """
    content = {"sha256": {digest: dict(entry) for digest, entry in digests.items()}, "names": list(names)}
    write_atomically(folder / CHECKSUMS, json.dumps(content, indent=1))


def is_known(path: Path) -> bool | None:
    """Whether the content of a file is one that is written down; None if nothing is written down about its name.

    Raises:
        FileError: the file, or the record of the checksums, cannot be read.
    """
    record = path.parent / CHECKSUMS
    if not record.exists():
        return None
    known = read_record(record, _Checksums)
    return file_digest(path) in known["sha256"] if path.name in known.get("names", ()) else None


def verify(path: Path) -> None:
    """Compares a file with its checksum, if there is one.

    Raises:
        FileError: they differ; or the file, or the record of the checksums, cannot be read.
    """
    if is_known(path) is False:
        others = [other for other in sorted(path.parent.glob(f"*{path.suffix}")) if other != path]
        whole = [str(other) for other in others if _is_whole(other)]
        beside = f"whole beside it: {', '.join(whole)}" if whole else "no whole one is beside it"
        raise FileError(
            f"{path} is not as it was written: its content does not fit its checksum in {CHECKSUMS} (a damaged disk, a "
            f"copy that went wrong, or another file put in its place); {beside}"
        )


def _is_whole(path: Path) -> bool:
    try:
        return bool(is_known(path))
    except FileError:
        return False


def check_archive(path: Path, contents: bool = True) -> None:
    """Whether a file that torch has written is whole: it is a zip archive, of files that are not packed.

    Args:
        path: the file.
        contents: whether the checksums inside are compared too; torch does not.

    Raises:
        FileError: it is no archive, cut off, damaged, or would unpack to more than it is.
    """
    with open_regular(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                members = archive.infolist()
                packed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
                if packed or sum(member.file_size for member in members) > os.fstat(file.fileno()).st_size:
                    raise FileError(f"{path} is no file of torch's: it would unpack to more than it is")
                broken = archive.testzip() if contents else None
        except (zipfile.BadZipFile, EOFError, RuntimeError, LookupError, ValueError, OSError, struct.error) as error:
            if isinstance(error, FileError):
                raise
            raise FileError(f"{path} is cut off or overwritten ({error})") from error
    if broken is not None:
        raise FileError(f"{path} is damaged: the checksum of {broken} in it is wrong")


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
        # of files beside it: a foreign list must not point elsewhere
        if not _DIGEST.fullmatch(digest) or not name or Path(name).name != name:
            raise DataFilesError(f"{path} is damaged at the line {line[:200]!r}: delete it, and run the command again")
        found[name] = digest
    return found


def damaged_files(folder: Path, report: Callable[[int], None] | None = None) -> dict[str, str]:
    """Files of a folder that differ from its list, by name, each with the reason.

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
