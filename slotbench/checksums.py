"""Checksums of the files in a folder, kept in one small file beside them.

    FOLDER/checksums.json     {"sha256": {DIGEST: {"bytes": 12345, "step": 400}, ...}, "names": ["last.ckpt", ...]}

The digests are those of every content that a file under one of the `names` may rightly have, whatever its name: files
are renamed and linked, and a process that is killed between two renames must leave nothing that looks damaged. So the
digest of a new file is written down before the file is put in its place, and forgotten once the file is replaced.
Imports neither torch nor numpy.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from slotbench.errors import FileError
from slotbench.files import open_regular, read_json_object, write_atomically

__all__ = [
    "CHECKSUMS",
    "ChecksumError",
    "check_archive",
    "file_digest",
    "is_known",
    "known_digests",
    "remember",
    "verify",
]

CHECKSUMS = "checksums.json"
_CHUNK = 1 << 22


class ChecksumError(FileError):
    """A file is not what its checksum says."""


def file_digest(path: Path) -> str:
    """SHA-256 of a regular file, in hexadecimal.

    Raises:
        FileError: it cannot be read.
    """
    digest = hashlib.sha256()
    with open_regular(path) as file:
        try:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
        except OSError as error:
            raise FileError(f"{path} cannot be read: {error.strerror or error}") from error
    return digest.hexdigest()


def known_digests(folder: Path) -> dict[str, dict[str, Any]]:
    """What is known about the files of a folder: digest -> what was said about it; empty where there is no record.

    Raises:
        FileError: the record is damaged.
    """
    if not (folder / CHECKSUMS).exists():
        return {}
    found = read_json_object(folder / CHECKSUMS).get("sha256")
    if not isinstance(found, dict) or not all(isinstance(entry, dict) for entry in found.values()):
        raise FileError(f"{folder / CHECKSUMS} is damaged: expected a digest for each file under 'sha256'")
    return found


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
    names = read_json_object(record).get("names")
    if not isinstance(names, list) or path.name not in names:
        return None
    return file_digest(path) in known_digests(path.parent)


def verify(path: Path) -> None:
    """Compares a file with its checksum, if there is one.

    Raises:
        ChecksumError: they differ.
        FileError: the file, or the record of the checksums, cannot be read.
    """
    if is_known(path) is False:
        others = [other for other in sorted(path.parent.glob(f"*{path.suffix}")) if other != path]
        whole = [str(other) for other in others if _is_whole(other)]
        beside = f"whole beside it: {', '.join(whole)}" if whole else "no whole one is beside it"
        raise ChecksumError(
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
