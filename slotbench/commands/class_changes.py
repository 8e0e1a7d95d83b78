"""What a part's arguments become when the part is exchanged for another class, or one of them is set to null."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from jsonargparse import ActionConfigFile, ArgumentParser, Namespace, _typehints, _util

from slotbench.commands.settings import Setting

__all__ = ["keep_only_what_was_said", "said", "take_null_for_a_value"]

_discard = _typehints.discard_init_args_on_class_path_change
_apply_config = ActionConfigFile.apply_config

# (class, argument) that somebody gave, the class "" where none had been named
_said: ContextVar[frozenset[tuple[str, str]]] = ContextVar("_said", default=frozenset())
_in_file: ContextVar[bool] = ContextVar("_in_file", default=False)


def keep_only_what_was_said() -> None:
    """Lets an exchanged part keep the arguments that somebody gave, and none that were the old class's defaults.

    jsonargparse carries every argument over that the new class takes too, defaults included: a task whose default
    optimiser is AdamW would hand AdamW's decay of 0.01 to an Adam, which decays by another rule and learns nothing.
    Where the new class is named in a file, or with arguments of its own, what was said of the old one goes as well.
    """
    # no public place to say it
    _typehints.discard_init_args_on_class_path_change = _discard_unsaid
    ActionConfigFile.apply_config = staticmethod(_apply_file)  # type: ignore[method-assign]


@contextmanager
def said(settings: Iterable[Setting]) -> Iterator[None]:
    """While the parser works, these settings are what somebody gave: a value that equals a default is no default."""
    token = _said.set(frozenset(_given(settings)))
    try:
        yield
    finally:
        _said.reset(token)


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
            # "" is the class that the part has by default
            yield from ((owner, argument) for owner in (before[-1] if before else "", *later))


def _apply_file(parser: ArgumentParser, cfg: Namespace, dest: str, value: Any) -> None:
    token = _in_file.set(True)
    try:
        _apply_config(parser, cfg, dest, value)
    finally:
        _in_file.reset(token)


def take_null_for_a_value() -> None:
    """Lets `--model.core.ARGUMENT null` mean null.

    jsonargparse hands the arguments of a part within a part on as text, and writes null as Python does, "None", which
    it then reads as a word.
    """
    # no public place to say it
    _util.NestedArg.__new__ = _new_nested_argument  # type: ignore[method-assign, assignment]


def _new_nested_argument(cls: Any, key: str, val: Any) -> tuple[Any, ...]:
    made: tuple[Any, ...] = tuple.__new__(cls, (key, "null" if val is None else val))
    return made


def _discard_unsaid(parser_or_action: Any, prev_val: Any, value: Any) -> None:
    # without arguments there is nothing to drop, and the class may be one that no configuration may import
    given = prev_val.get("init_args") if isinstance(prev_val, Namespace) else None
    if given and prev_val["class_path"] != value["class_path"]:
        added = getattr(parser_or_action, "sub_add_kwargs", {})
        parser = _typehints.ActionTypeHint.get_class_parser(prev_val["class_path"], added)
        defaults = parser.get_defaults()
        name = prev_val["class_path"].rpartition(".")[2]
        starts_clean = _in_file.get() or isinstance(value.get("init_args"), Namespace | dict)
        for key, kept in list(given.items(branches=True, nested=False)):
            is_default = key in defaults and defaults[key] == kept
            was_said = bool({(name, key), ("", key)} & _said.get())
            if starts_clean or (is_default and not was_said):
                given.pop(key)
    _discard(parser_or_action, prev_val, value)
