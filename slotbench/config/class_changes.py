"""What somebody has said of a part's arguments, so that a part that is exchanged for another class keeps just these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from slotbench.config.settings import Setting

__all__ = ["said", "was_said"]

# (class, argument) that somebody gave, the class "" where none had been named
_said: ContextVar[frozenset[tuple[str, str]]] = ContextVar("_said", default=frozenset())


@contextmanager
def said(settings: Iterable[Setting]) -> Iterator[None]:
    """While the parser works, these settings are what somebody gave: a value that equals a default is no default."""
    token = _said.set(frozenset(_given(settings)))
    try:
        yield
    finally:
        _said.reset(token)


def was_said(class_name: str, argument: str) -> bool:
    """Whether somebody gave this argument to a part when it was of this class, or of its class by default."""
    return not _said.get().isdisjoint({(class_name, argument), ("", argument)})


def _given(settings: Iterable[Setting]) -> Iterator[tuple[str, str]]:
    """Class and argument of every setting: that of its part when it was given, and those exchanged for it later."""
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
