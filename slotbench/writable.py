"""Whether a folder can be written, found out before hours are spent on what would be written there."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from pathlib import Path

from slotbench.errors import FileError

__all__ = ["check_writable"]

_ENOUGH = 1 << 16
_WORDS = {
    errno.EROFS: "it is on a file system that can only be read",
    errno.EACCES: "its permissions do not allow it",
    errno.EPERM: "its permissions do not allow it",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your quota on this disk is used up",
}


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
            os.write(descriptor, bytes(_ENOUGH))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        why = _WORDS.get(error.errno or 0, error.strerror or str(error))
        raise FileError(f"{folder} cannot be written: {why}; {mend}") from error
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)
