"""Calls that a network file system refuses for a moment, or carries out and denies.

A server that restarts, a lost answer and a stale handle (NFS, CephFS, Lustre) make a call fail that would succeed a
moment later, or that has succeeded: the client sends it again, and the server finds the file renamed already. Such
calls are repeated a few times with short waits, and what has been done is recognised.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

__all__ = ["TRANSIENT", "link_file", "make_folder", "persist", "remove_file", "replace_file"]

_T = TypeVar("_T")

_GIVEN_UP = "_given_up"

WAITS = (0.05, 0.25, 1.0)
"""Seconds before each new try."""

TRANSIENT = frozenset(
    getattr(errno, name)
    for name in ("EBUSY", "ESTALE", "EIO", "EAGAIN", "EINTR", "ETIMEDOUT", "EREMOTEIO", "ENOLCK", "ENOTCONN")
    if hasattr(errno, name)
)
"""Error numbers of what may be over in a moment."""


def persist(call: Callable[[], _T], also: Callable[[OSError], bool] = lambda error: False) -> _T:
    """What a call returns; made again a few times where it fails with an error that may be over in a moment.

    Args:
        call: may be made again after it has failed.
        also: whether a further error is of that kind.

    Raises:
        OSError: the last one.
    """
    waits = iter(WAITS)
    while True:
        try:
            return call()
        except OSError as error:
            wait = next(waits, None)
            if hasattr(error, _GIVEN_UP) or (error.errno not in TRANSIENT and not also(error)):
                raise
            if wait is None:
                # a nested call: what the inner one gives up on is not tried again
                setattr(error, _GIVEN_UP, True)
                raise
        time.sleep(wait)


def replace_file(source: Path, target: Path) -> None:
    """Renames a file to `target`, in one step; a rename that was carried out and denied counts as done.

    Raises:
        OSError: it could not be renamed.
    """
    before = _identity(source)

    def is_done() -> bool:
        return before is not None and _identity(target) == before and not os.path.lexists(source)

    _do(lambda: os.replace(source, target), is_done, lambda error: os.path.lexists(source) and target.parent.is_dir())


def link_file(source: Path, target: Path) -> None:
    """Gives a file a second name, `target`; a link that was made and denied counts as made.

    Raises:
        OSError: it could not be made, as on a file system without hard links.
    """

    def is_done() -> bool:
        return _identity(source) is not None and _identity(source) == _identity(target)

    _do(lambda: os.link(source, target), is_done, lambda error: source.is_file() and target.parent.is_dir())


def remove_file(path: Path) -> None:
    """Removes a file, or a link, that need not be there.

    Raises:
        OSError: it is there and could not be removed.
    """
    _do(lambda: os.unlink(path), lambda: not os.path.lexists(path))


def make_folder(path: Path) -> None:
    """Makes a folder, and those above it, that need not be absent.

    Raises:
        OSError: it could not be made, or is no folder.
    """
    _do(lambda: os.makedirs(path, exist_ok=True), path.is_dir)


def _do(
    call: Callable[[], None], is_done: Callable[[], bool], absent: Callable[[OSError], bool] = lambda error: False
) -> None:
    """Makes a call, perhaps again, until it succeeds or what it is to do has been done.

    Args:
        call: what to do.
        is_done: whether it has been.
        absent: whether "no such file" is wrong, and so may be over in a moment.
    """

    def once() -> None:
        try:
            call()
        except OSError:
            with contextlib.suppress(OSError):
                if is_done():
                    return
            raise

    persist(once, also=lambda error: isinstance(error, FileNotFoundError) and absent(error))


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file a path is the name of; None if it is not there."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
