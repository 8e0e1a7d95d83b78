"""Arguments the user set explicitly, so that a part that changes its class keeps these and no defaults."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from slotbench.config.settings import Setting

__all__ = ["explicit", "is_explicit"]

# (class, argument) that the user set, the class "" where none had been named
_explicit: ContextVar[frozenset[tuple[str, str]]] = ContextVar("_explicit", default=frozenset())


@contextmanager
def explicit(settings: Iterable[Setting]) -> Iterator[None]:
    """Within the block these settings count as set by the user, also where a value equals the default."""
    token = _explicit.set(frozenset(_owned(settings)))
    try:
        yield
    finally:
        _explicit.reset(token)


def is_explicit(class_name: str, argument: str) -> bool:
    """Whether the user set this argument of a part while the part was of this class, or of its class by default."""
    return not _explicit.get().isdisjoint({(class_name, argument), ("", argument)})


def _owned(settings: Iterable[Setting]) -> Iterator[tuple[str, str]]:
    """Class and argument of every setting: the class of its part at that point, and those that replace it later."""
    settings = list(settings)
    classes: dict[tuple[str, ...], list[tuple[int, str]]] = {}
    for index, setting in enumerate(settings):
        if isinstance(setting.value, str):
            classes.setdefault(setting.key, []).append((index, setting.value.rpartition(".")[2]))
    for index, setting in enumerate(settings):
        for depth, argument in enumerate(setting.key):
            named = classes.get(setting.key[:depth], [])
            before = [name for place, name in named if place < index]
            later = [name for place, name in named if place > index]
            # the fields of a dataclass are arguments too
            names = (argument, ".".join(setting.key[depth:]))
            # "" is the class that the part has by default
            yield from ((owner, name) for owner in (before[-1] if before else "", *later) for name in names)
