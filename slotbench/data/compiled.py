"""Functions compiled by numba at their first call ever, and read from disk by later processes.

Such a function uses names of its own file only: the cache on disk notices a change of that file, not of an import.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any

__all__ = ["compiled"]


@lru_cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The compiled form of a function of numbers and arrays."""
    import numba  # takes half a second, so only those who call one wait for it

    # beneath a checker of types, if one is wrapped around it
    return numba.njit(cache=True, nogil=True)(inspect.unwrap(function))
