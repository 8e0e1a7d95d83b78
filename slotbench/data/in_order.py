"""Work on the pieces of a data set in several processes, with the results in the order of the pieces."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from slotbench.data.files import DataFilesError

__all__ = ["in_order", "processes_for"]

Piece = TypeVar("Piece")
Result = TypeVar("Result")

_WORTH_A_PROCESS = 4  # pieces; a process takes seconds to import torch


def processes_for(asked: int | None, pieces: int) -> int:
    """How many processes to work with: as many as asked for, or as cores if there is enough to do for them.

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
    """`work` of every piece, one after the other as they come, whatever process has done it.

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
            "a process that worked on the data set has been killed, perhaps for its memory: the same command goes on "
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
    """A parent that is killed cannot say so: its workers would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)
