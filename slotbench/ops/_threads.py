"""Runs a compiled kernel that gives up the interpreter lock on as many threads as torch uses.

Not numba's own parallel loops: of their thread pools, one ends the process when two threads call it at once, another
when a data loader has forked since. Plain threads do neither, and hand out work as threads become free.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

import torch

_PIECES_PER_THREAD = 4  # so that a thread that was held up is helped out by the others


def run_in_threads(kernel: Callable[[int, int], None], num_tasks: int, *, parallel: bool = True) -> None:
    """Calls `kernel(first, last)` on ranges that cover `num_tasks` tasks, on `torch.get_num_threads()` threads.

    Args:
        kernel: does the tasks from `first` to `last` (exclusive); must be safe to call from several threads at once.
        num_tasks: how many independent tasks there are.
        parallel: whether they are worth more than one thread.
    """
    threads = min(torch.get_num_threads(), num_tasks) if parallel else 1
    if threads <= 1:
        kernel(0, num_tasks)
        return
    pieces = min(num_tasks, threads * _PIECES_PER_THREAD)
    bounds = [num_tasks * piece // pieces for piece in range(pieces + 1)]
    # `next` on it is atomic, so every range goes to one thread
    ranges = iter(list(pairwise(bounds)))

    def work() -> None:
        for first, last in ranges:
            kernel(first, last)

    helpers = [_pool(os.getpid(), threads - 1).submit(work) for _ in range(threads - 1)]
    work()
    for helper in helpers:
        helper.result()


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """One pool per process: threads do not survive a fork."""
    return ThreadPoolExecutor(threads, thread_name_prefix="slotbench-ops")
