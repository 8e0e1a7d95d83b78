"""Reading type hints: which class an argument wants, and how to say in words what it accepts."""

from __future__ import annotations

import collections.abc
import enum
import inspect
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeGuard, Union, get_args, get_origin

__all__ = ["Wanted", "describe_type", "wanted_class"]

_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    type(None): "null",
    Path: "a path",
}
_COLLECTIONS = (list, tuple, set, collections.abc.Sequence, collections.abc.Iterable)


@dataclass(frozen=True)
class Wanted:
    """An argument that is a component.

    Attributes:
        base: the class that it must be a subclass of.
        supplied: how many leading arguments of the constructor are not the user's: those of a factory.
        many: whether a list of them is wanted.
        only: whether nothing but a component is accepted (and null).
    """

    base: type
    supplied: int
    many: bool = False
    only: bool = True


def wanted_class(hint: Any) -> Wanted | None:
    """The component that an argument of this type is, or None where it is a plain value."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        options = [option for option in arguments if option is not type(None)]
        found = [wanted for option in options if (wanted := wanted_class(option)) is not None]
        if not found:
            return None
        best = next((wanted for wanted in found if wanted.many), found[0])
        return Wanted(best.base, best.supplied, best.many, len(found) == len(options))
    if origin is collections.abc.Callable:
        result = arguments[-1] if arguments else None
        supplied = len(arguments[0]) if arguments and isinstance(arguments[0], list) else 0
        return Wanted(result, supplied) if _is_component(result) else None
    if origin in _COLLECTIONS:
        item = wanted_class(arguments[0]) if arguments else None
        return Wanted(item.base, item.supplied, True) if item else None
    return Wanted(hint, 0) if _is_component(hint) else None


def _is_component(hint: Any) -> TypeGuard[type]:
    if not isinstance(hint, type) or get_origin(hint) is not None or issubclass(hint, enum.Enum | Path):
        return False
    return hint.__module__ not in ("builtins", "typing", "datetime", "collections.abc", "jsonargparse.typing")


def describe_type(hint: Any) -> str:
    """What an argument of this type accepts, in words."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _WORDS:
        return _WORDS[hint]
    if origin is Literal:
        return "one of " + ", ".join(map(str, arguments))
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(describe_type(option) for option in arguments))
    if origin is tuple and Ellipsis not in arguments:
        return f"a list of {len(arguments)}: " + ", ".join(describe_type(item) for item in arguments)
    if origin in _COLLECTIONS:
        return f"a list, each {describe_type(arguments[0])}" if arguments else "a list"
    if origin is dict or hint is dict:
        return "a mapping"
    if inspect.isclass(hint) and issubclass(hint, enum.Enum):
        return "one of " + ", ".join(member.name for member in hint)
    if inspect.isclass(hint):
        return f"a {hint.__name__}"
    return str(hint).replace("typing.", "")
