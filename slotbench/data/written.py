"""How much of what is being written is on the disk for good, told by check sums, and by whom it is written."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from slotbench.data.files import DataFilesError
from slotbench.files import remove_partials

__all__ = ["Marks", "as_marks", "sole_writer"]

_MOST_MARKS = 64
_LOCK = ".prepare.lock"
_FORMER_PARTIALS = (".cache.json.*", ".progress.json.*", ".*.progress.json.*", ".SHA256SUMS.*")
_DIGEST = re.compile("[0-9a-f]{64}")


class Marks:
    """The check sums of what has been written so far, remembered at up to 64 places on the way.

    What lies on the disk is compared with them before writing goes on: it goes on behind the last place up to which all
    is as it was written. As the work grows places are forgotten, so that those that stay are spread over all of it.

    Args:
        known: the places of an earlier process, each a number of pieces and the check sums of the files up to there.
    """

    def __init__(self, known: Iterable[tuple[int, dict[str, str]]] = ()) -> None:
        self._marks = list(known)
        self._digests: dict[str, Any] = {}

    def update(self, name: str, content: Any) -> None:
        """Takes note of bytes that are written to the file `name`."""
        self._digests.setdefault(name, hashlib.sha256()).update(content)

    def set(self, count: int) -> None:
        """Says that so many pieces are on the disk for good."""
        self._marks.append((count, self.sums()))
        if len(self._marks) > _MOST_MARKS:
            # the one whose neighbours are nearest to each other, so that those that stay are spread over the way
            gaps = [self._marks[i + 1][0] - self._marks[i - 1][0] for i in range(1, len(self._marks) - 1)]
            del self._marks[1 + gaps.index(min(gaps))]

    def sums(self) -> dict[str, str]:
        """The check sums of what was noted, by file."""
        return {name: digest.hexdigest() for name, digest in self._digests.items()}

    def verify(self, read: Callable[[int, int], Iterable[tuple[str, Any]]]) -> int:
        """Reads again what an earlier process has written, and forgets the places behind the first damage.

        Args:
            read: gives what lies on the disk of the pieces from one number to another, as file and bytes.

        Returns:
            how many pieces are as they were written.
        """
        good, kept = 0, self._digests
        digests: dict[str, Any] = {}
        for count, sums in self._marks:
            for name, content in read(good, count):
                digests.setdefault(name, hashlib.sha256()).update(content)
            if {name: digest.hexdigest() for name, digest in digests.items()} != sums:
                break
            good, kept = count, {name: digest.copy() for name, digest in digests.items()}
        self._marks = [mark for mark in self._marks if mark[0] <= good]
        self._digests = kept
        return good

    def last(self) -> int:
        """How many pieces have been said to be on the disk."""
        return self._marks[-1][0] if self._marks else 0

    def stored(self) -> list[Any]:
        """The places in JSON's types."""
        return [[count, sums] for count, sums in self._marks]


def as_marks(stored: Any) -> Marks:
    """What `Marks.stored` gave, read back from a file; nothing is remembered if that is not in its form."""
    known: list[tuple[int, dict[str, str]]] = []
    for entry in stored if isinstance(stored, list) else []:
        if not isinstance(entry, list) or len(entry) != 2:
            return Marks()
        count, sums = entry
        if not isinstance(count, int) or isinstance(count, bool) or not isinstance(sums, dict):
            return Marks()
        if count < 1 or (known and count <= known[-1][0]) or len(known) >= 2 * _MOST_MARKS:
            return Marks()
        if not all(isinstance(digest, str) and _DIGEST.fullmatch(digest) for digest in sums.values()):
            return Marks()
        known.append((count, sums))
    return Marks(known)


@contextlib.contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Makes the folder, waits while another process writes to it, and removes what killed writers have left.

    Raises:
        DataFilesError: the folder cannot be made, or nothing can be written there.
    """
    lock = FileLock(folder / _LOCK)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            print(f"waiting for another process that writes {folder}", file=sys.stderr, flush=True)
            lock.acquire()
    except (OSError, NotImplementedError) as error:
        raise DataFilesError(f"nothing can be written to {folder}: {getattr(error, 'strerror', error)}") from error
    try:
        remove_partials(folder, older_than=0.0)
        for pattern in _FORMER_PARTIALS:
            for partial in folder.glob(pattern):
                if not partial.name.endswith(".partial"):
                    with contextlib.suppress(OSError):
                        partial.unlink()
        yield
        # complete: those who wait find nothing left to be written, so none of them needs the name
        with contextlib.suppress(OSError):
            os.unlink(folder / _LOCK)
    finally:
        lock.release()
