"""Arguments of a class as the parser sees them: types, defaults, components, and descriptions of types."""

from __future__ import annotations

import collections.abc
import enum
import inspect
import types
from dataclasses import fields, is_dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeGuard, Union, get_args, get_origin

from jsonargparse import ArgumentError, ArgumentParser, Namespace

from slotbench.config.jsonargparse_compat import signature_of
from slotbench.config.schedule_arguments import supplied_arguments
from slotbench.config.settings import Setting
from slotbench.sources import Argument, Part

__all__ = ["describe_type", "fits", "parameters_of", "part_of", "plain"]

_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    type(None): "null",
    Path: "a path",
}
_COLLECTIONS = (list, tuple, set, collections.abc.Sequence, collections.abc.Iterable)


def part_of(hint: Any) -> Part | None:
    """The component that an argument of this type is, or None where it is a plain value."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        options = [option for option in arguments if option is not type(None)]
        found = [part for option in options if (part := part_of(option)) is not None]
        if not found:
            return None
        best = next((wanted for wanted in found if wanted.many), found[0])
        return Part(best.base, best.supplied, best.many, len(found) == len(options))
    if origin is collections.abc.Callable:
        result = arguments[-1] if arguments else None
        supplied = len(arguments[0]) if arguments and isinstance(arguments[0], list) else 0
        return Part(result, supplied) if _is_component(result) else None
    if origin in _COLLECTIONS:
        item = part_of(arguments[0]) if arguments else None
        return Part(item.base, item.supplied, True) if item else None
    return Part(hint, 0) if _is_component(hint) else None


def _is_component(hint: Any) -> TypeGuard[type]:
    if not isinstance(hint, type) or get_origin(hint) is not None:
        return False
    if issubclass(hint, enum.Enum | Path) or is_dataclass(hint):
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
    if is_dataclass(hint):
        return "a mapping of " + ", ".join(field.name for field in fields(hint))
    if inspect.isclass(hint):
        return f"a {hint.__name__}"
    return str(hint).replace("typing.", "")


def parameters_of(cls: type, supplied: int) -> dict[str, Argument]:
    """The arguments of a class as the parser sees them, without the first `supplied`, which are not the user's."""
    skip = supplied_arguments(cls, {supplied})
    first = max(count for count in skip if isinstance(count, int))
    given = islice(signature_of(cls).items(), first, None)
    return {name: _with_parts(argument) for name, argument in given if name not in skip}


def _with_parts(argument: Argument) -> Argument:
    fields = {name: _with_parts(inner) for name, inner in argument.fields.items()}
    return replace(argument, part=part_of(argument.hint), fields=fields)


def fits(setting: Setting, hint: Any) -> bool:
    """Whether the parser takes this value for an argument of this type."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--it", type=hint)
    try:
        if setting.on_command_line:
            parser.parse_args([f"--it={setting.value}"])
        else:
            parser.parse_object({"it": setting.value})
    except (ArgumentError, TypeError, ValueError):
        return False
    return True


def plain(value: Any) -> str:
    """A value as it would be written in YAML."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Namespace):
        return str(value.get("class_path", "")).rpartition(".")[2]
    return value.__name__ if inspect.isclass(value) else str(value)
