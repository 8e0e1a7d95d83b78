"""Functions compiled by numba at their first call ever, and read from disk by later processes.

Such a function uses names of its own file only: the cache on disk notices a change of that file, not of an import.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

__all__ = ["compiled", "interpreted"]

_interpreted = ContextVar("interpreted", default=False)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The compiled form of a function of numbers and arrays; within `interpreted` the function as Python runs it."""
    return inspect.unwrap(function) if _interpreted.get() else _compiled(function)


@contextmanager
def interpreted() -> Iterator[None]:
    """Context in which nothing is compiled: for a few small clips that takes longer than to simulate them."""
    token = _interpreted.set(True)
    try:
        yield
    finally:
        _interpreted.reset(token)


@lru_cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    import numba  # takes half a second, so only those who call one wait for it

    # beneath a checker of types, if one is wrapped around it
    return numba.njit(cache=True, nogil=True)(inspect.unwrap(function))
