"""The arguments of a class as the parser sees them."""

from __future__ import annotations

import argparse
import inspect
from dataclasses import dataclass
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser, Namespace

from slotbench.commands.settings import Setting

__all__ = ["Parameter", "fits", "parameters_of", "plain"]


@dataclass(frozen=True)
class Parameter:
    """One argument: its type, its default, and whether it must be given."""

    hint: Any
    default: Any
    required: bool


def parameters_of(cls: type, supplied: int) -> dict[str, Parameter]:
    """The arguments of a class as the parser sees them, without the first `supplied`, which are not the user's."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(cls, "it", fail_untyped=False, sub_configs=True, skip={supplied} if supplied else None)
    signature = inspect.signature(cls).parameters
    found = {}
    for action in parser._actions:
        if action.dest.startswith("it.") and not isinstance(action, argparse._HelpAction) and "help" not in action.dest:
            name = action.dest.removeprefix("it.")
            declared = signature.get(name)
            required = declared is not None and declared.default is inspect.Parameter.empty
            default = action.default if declared is None or required else declared.default
            found[name] = Parameter(getattr(action, "_typehint", action.type), default, required)
    return found


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
