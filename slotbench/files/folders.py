"""Contents of a folder that may come from a third party, and whether a folder can be written."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from slotbench.errors import FileError
from slotbench.files.reading import kind_of

__all__ = [
    "cache_home",
    "check_own_folder",
    "check_writable",
    "fsync_folder",
    "is_inside",
    "own_file",
    "regular_files",
    "remove_partials",
    "why_unwritable",
]

_ABANDONED = 3600.0
_PROBE_BYTES = 1 << 16
_WHY_UNWRITABLE = {
    errno.EROFS: "it is on a file system that can only be read",
    errno.EACCES: "its permissions do not allow it",
    errno.EPERM: "its permissions do not allow it",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your quota on this disk is used up",
}
# a run has media/EVALUATION/file; deeper are only files that others have written
_DEPTH = 3


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
        raise FileError(f"{folder / name} is a link that leads out of {folder}")
    return folder / name


def check_own_folder(folder: Path, depth: int = _DEPTH) -> None:
    """Refuses to write into a folder from which the way leads elsewhere.

    A folder from a third party may hold a link in the place of a file that is appended to, or of a folder that is
    written into. The folder may itself be reached through links: those the user has made. A link to a place within the
    folder is none that leads out.

    Args:
        folder: of a run, or of a grid; need not be there.
        depth: of folders that are looked into.

    Raises:
        FileError: a link in it leads out of it, or it holds a named pipe, a socket or a device; the message names it.
    """
    for entry in _entries(folder, depth):
        if entry.is_symlink():
            if not is_inside(folder, entry.path):
                raise FileError(
                    f"{entry.path} is a link that leads out of {folder}, and nothing is written through it: "
                    "remove it, or put what it leads to in its place"
                )
        elif not entry.is_file() and not entry.is_dir():
            kind = kind_of(entry.stat(follow_symlinks=False).st_mode)
            raise FileError(f"{entry.path} is {kind}; expected a file or a folder: remove it")


def _entries(folder: Path, depth: int) -> Iterator[os.DirEntry[str]]:
    """What lies in a folder, and in those in it, without following links."""
    try:
        with os.scandir(folder) as found:
            entries = list(found)
    except FileNotFoundError:
        return
    except OSError as error:
        raise FileError(f"{folder} may not be read: {error.strerror or error}") from error
    for entry in entries:
        yield entry
        if depth > 1 and entry.is_dir(follow_symlinks=False):
            # what lies deeper in the folder of W&B is W&B's own, links to the user's files among it
            yield from _entries(Path(entry.path), 1 if entry.name == "wandb" else depth - 1)


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


def remove_partials(folder: str | Path, name: str | None = None, older_than: float = _ABANDONED) -> None:
    """Removes the leftovers of killed writers: hidden files that end in `.partial`.

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
        FileError: it cannot be written; the message has the reason and what to type.
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
        raise FileError(f"{folder} cannot be written: {why_unwritable(error)}; {mend}") from error
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)


def why_unwritable(error: OSError) -> str:
    """Why something could not be written, in words."""
    return _WHY_UNWRITABLE.get(error.errno or 0, error.strerror or str(error))


def cache_home() -> Path:
    """The user's folder for what can be made again: $SLOTBENCH_CACHE, else $XDG_CACHE_HOME/slotbench, else
    ~/.cache/slotbench."""
    if named := os.environ.get("SLOTBENCH_CACHE"):
        return Path(named).expanduser()
    general = os.environ.get("XDG_CACHE_HOME")
    return (Path(general) if general else Path.home() / ".cache") / "slotbench"
