"""What a configuration may import.

A configuration names classes, and importing and calling whatever a file names would let a file from somebody else run
any program. So a class is taken only where the parameter's type asks for one, and it is a registered component (the
user has installed its package, or named its file), a class of `allowed_classes`, or below what the user allows on the
command line. Functions are never taken.
"""

from __future__ import annotations

import importlib
import inspect
import typing
from collections.abc import Iterable, Iterator
from dataclasses import is_dataclass

from slotbench import registry
from slotbench.commands.allowed_classes import named_classes
from slotbench.commands.class_changes import keep_only_what_was_said, take_null_for_a_value
from slotbench.commands.parser_guards import Refusal, guard_parser
from slotbench.commands.settings import Setting
from slotbench.errors import UserError, lines

__all__ = ["allowed_paths", "apply_policy", "is_allowed", "refusal_words"]

_BELOW = ".*"


def allowed_paths(extra: Iterable[str] = ()) -> list[str]:
    """Every class that a configuration may name, by its import path; below what ends in ".*", any class.

    Args:
        extra: import paths that the user allows.
    """
    components = [entry.target.replace(":", ".") for kind in registry.KINDS for entry in registry.entries(kind)]
    return [*named_classes(), *sorted(set(components)), *(f"{prefix}{_BELOW}" for prefix in extra)]


def apply_policy(extra: Iterable[str] = ()) -> None:
    """Tells the parser what may be imported; call it after the components that are named have been imported.

    Args:
        extra: import paths that the user allows.

    Raises:
        UserError: one of them is not an import path.
    """
    extra = list(extra)
    for prefix in extra:
        if not all(part.isidentifier() for part in prefix.split(".")):
            raise UserError(f"--allow-import takes an import path such as my_package.models; got {prefix}")
    keep_only_what_was_said()
    take_null_for_a_value()
    # a class is checked by the path that is given and by the one where it is defined
    named = [found for path in named_classes() if (found := _found(path)) is not None]
    classes = [*named, *registry.loaded()]
    classes += [asked for component in registry.loaded() for asked in _classes_of(component)]
    guard_parser({*allowed_paths(), *(f"{found.__module__}.{found.__qualname__}" for found in classes)}, extra)


def refusal_words(refused: Refusal, settings: Iterable[Setting]) -> str:
    """What the parser was kept from, with the setting that asked for it."""
    module, _, name = refused.named.rpartition(".")
    given = next((setting.text for setting in settings if name in str(setting.value)), None)
    way = f"--allow-import {module}  (only if you trust what it runs)" if refused.can_be_allowed else None
    return lines(f"{refused.named} {refused.reason}", given=given, **{"to allow it": way})


def is_allowed(path: str, allowed: Iterable[str]) -> bool:
    """Whether `path` is one of those that `allowed_paths` gave, or below one that ends in ".*"."""
    return any(
        path == entry or (entry.endswith(_BELOW) and f"{path}.".startswith(f"{entry.removesuffix(_BELOW)}."))
        for entry in allowed
    )


def _found(path: str) -> type | None:
    module, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, OSError):
        return None  # of another version of the library
    return found if inspect.isclass(found) else None


def _classes_of(component: type) -> Iterator[type]:
    """What a component itself asks for by name: the class that is an argument's default, or its type if that is data.

    A resolved configuration says both in full.
    """
    try:
        defaults = [parameter.default for parameter in inspect.signature(component).parameters.values()]
        hints = typing.get_type_hints(component.__init__)  # type: ignore[misc]
    except (TypeError, ValueError, NameError, AttributeError):
        return
    yield from (default for default in defaults if inspect.isclass(default) and default is not inspect.Parameter.empty)
    waiting = list(hints.values())
    while waiting:
        hint = waiting.pop()
        waiting += typing.get_args(hint) if not isinstance(hint, list) else hint
        if inspect.isclass(hint) and is_dataclass(hint):
            yield hint
