"""Preparing a data set: work in several processes, and checksums from which an interrupted writer resumes."""

from __future__ import annotations

import contextlib
import hashlib
import math
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from msgspec import Meta

from slotbench.errors import DataFilesError, FileError
from slotbench.files import remove_partials
from slotbench.locks import Lock
from slotbench.records import as_record

__all__ = ["Marks", "Preparable", "Report", "as_marks", "in_order", "processes_for", "sole_writer"]

Report = Callable[[str, int, int], None]
"""Called with the name of the work, the amount done, and the total (videos, or bytes of a file)."""

Piece = TypeVar("Piece")
Result = TypeVar("Result")

_WORTH_A_PROCESS = 4  # pieces; a process takes seconds to import torch
_MOST_MARKS = 64
_LOCK = ".prepare.lock"
_FORMER_PARTIALS = (".cache.json.*", ".progress.json.*", ".*.progress.json.*", ".SHA256SUMS.*")
_Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
_Stored = Annotated[list[tuple[Annotated[int, Meta(ge=1)], dict[str, _Digest]]], Meta(max_length=2 * _MOST_MARKS)]


class Preparable(ABC):
    """A data set that `slotbench prepare` can write to a cache, which its `path` may then name."""

    prepare_arguments: ClassVar[tuple[str, ...]]
    """The constructor's arguments that decide what the cache holds: those that the command takes."""

    @abstractmethod
    def prepare(self, out: Path, report: Report, jobs: int | None = None) -> None:
        """Writes everything below `out`, or resumes where an earlier call was interrupted.

        Args:
            out: the folder.
            report: called with the progress.
            jobs: processes that work on it, which change no byte of the result; None for as many as the machine has.
        """


def processes_for(asked: int | None, pieces: int) -> int:
    """The number of processes to use: the given one, or that of the cores if there is enough work for them.

    Raises:
        DataFilesError: fewer than one is asked for.
    """
    if asked is not None:
        if asked < 1:
            raise DataFilesError(f"jobs is {asked}; expected 1 or more")
        return asked
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, pieces // _WORTH_A_PROCESS))


def in_order(work: Callable[[Piece], Result], pieces: Iterable[Piece], jobs: int) -> Iterator[Result]:
    """Yields `work(piece)` for every piece in order, whichever process computes it.

    A few pieces are worked on ahead of the one that is waited for. With one job all is done in this process.

    Args:
        work: can be pickled if there are several jobs, and so can pieces and results.
        pieces: what it is given.
        jobs: processes.

    Raises:
        DataFilesError: what `work` raises, or a process has been killed.
    """
    if jobs == 1:
        yield from map(work, pieces)
        return
    # not forked: this process has threads, of which a copy has none
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, context, initializer=_start_worker)
    waiting: deque[Future[Result]] = deque()
    try:
        for piece in pieces:
            waiting.append(pool.submit(work, piece))
            if len(waiting) > 2 * jobs:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise DataFilesError(
            "a process that worked on the data set has been killed, perhaps for its memory: the same command resumes "
            f"from here; with fewer than {jobs} --jobs it needs less"
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _start_worker() -> None:
    import torch

    # Ctrl-C reaches the whole group of processes; the first one ends the others
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Ends this worker when its parent is killed; it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


class Marks:
    """The checksums of what has been written so far, remembered at up to 64 places on the way.

    Before writing continues, the files on the disk are compared with them, and writing continues behind the last place
    up to which they match. As the work grows places are forgotten, so that those that stay are spread over all of it.

    Args:
        known: the places of an earlier process, each a number of pieces and the checksums of the files up to there.
    """

    def __init__(self, known: Iterable[tuple[int, dict[str, str]]] = ()) -> None:
        self._marks = list(known)
        self._digests: dict[str, Any] = {}

    def update(self, name: str, content: Any) -> None:
        """Adds bytes that are written to the file `name`."""
        self._digests.setdefault(name, hashlib.sha256()).update(content)

    def set(self, count: int) -> None:
        """Records that so many pieces are on the disk for good."""
        self._marks.append((count, self.sums()))
        if len(self._marks) > _MOST_MARKS:
            # the one whose neighbours are nearest to each other, so that those that stay are spread over the way
            gaps = [self._marks[i + 1][0] - self._marks[i - 1][0] for i in range(1, len(self._marks) - 1)]
            del self._marks[1 + gaps.index(min(gaps))]

    def sums(self) -> dict[str, str]:
        """The checksums of what was noted, by file."""
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

    def resume(self, read: Callable[[int, int], Iterable[tuple[str, Any]]], noted: Any, where: Path) -> int:
        """`verify` of what lies at `where`; tells the user if there is less than the `noted` number of videos."""
        try:
            good = self.verify(read)
        except (FileError, OSError):  # a file that is not there, or that the disk cannot read
            good, self._marks, self._digests = 0, [], {}
        if isinstance(noted, int) and good < noted:
            print(
                f"{where}: {noted} videos had been written, and {good} of them are on the disk as they were; the "
                "others are written again",
                file=sys.stderr,
            )
        return good

    def last(self) -> int:
        """The number of pieces recorded as being on the disk."""
        return self._marks[-1][0] if self._marks else 0

    def stored(self) -> list[Any]:
        """The places in JSON's types."""
        return [[count, sums] for count, sums in self._marks]


def as_marks(stored: Any) -> Marks:
    """The marks that `Marks.stored` gave, read back from a file; no marks if they are not in that form."""
    try:
        known = as_record(stored, _Stored, "the progress")
    except FileError:
        return Marks()
    counts = [count for count, _ in known]
    return Marks(known) if counts == sorted(set(counts)) else Marks()


@contextlib.contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Makes the folder, waits while another process writes to it, and removes what killed writers have left.

    Raises:
        DataFilesError: the folder cannot be made, or nothing can be written there.
    """
    lock = Lock(folder / _LOCK)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(math.inf, f"waiting for another process that writes {folder}")
    except OSError as error:
        raise DataFilesError(f"nothing can be written to {folder}: {error.strerror}") from error
    except FileError as error:
        raise DataFilesError(f"nothing can be written to {folder}: {error}") from error
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
