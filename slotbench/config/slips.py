"""A refusal of the parser as one sentence: the setting, what was given, what is expected, and the nearest name."""

from __future__ import annotations

import difflib
import inspect
import pkgutil
import re
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from textwrap import shorten
from typing import Any, get_type_hints

from slotbench import registry
from slotbench.errors import did_you_mean, lines, listing

__all__ = ["argument_names", "nearest_option", "options_of", "raised_by_component", "sentence"]

_KEY = re.compile(r'Parser key "([\w.+]+)"')
_CLASS = re.compile(r"class_path(?: |=)'([\w.]+)'")
_UNKNOWN = re.compile(r"(?:Group '(?P<group>[\w.]+)' does not accept o|accept o|O)ption '(?P<name>[\w.+]+)'")
_UNRECOGNIZED = re.compile(r"[Uu]nrecognized arguments: (?P<dashes>-*)(?P<name>[^\s=]*)")
_EXPECTED = re.compile(r"Expected (?:an? )?(?:<class '([\w.]+)'>|typing\.Literal\[(.*?)\]|(tuple with \d+ elements))")
_BELOW = re.compile(r"NestedArg\(key='([\w.]+)', val=")
_GIVEN = re.compile(r"(?:Given value|Got value): (.*?)(?:\. Got value: .*)?$", re.MULTILINE)
_DENIED = re.compile(r"Importing '([\w.]+)' is not allowed")
_REQUIRED = re.compile(r"arguments are required: ([\w., ]+)")
_NOT_IMPORTED = re.compile(r"Expected a dot import path string: (\S+)")


def sentence(message: str, options: Sequence[str]) -> str:
    """The sentence for a message of jsonargparse; the message itself where it is none of the usual slips.

    Args:
        message: that the parser has refused with.
        options: the parser's own, without dashes, and those of the run.
    """
    # a list of classes is tried as one class too, and that is refused in words that help nobody
    message, _, rest = message.partition("Problem with given class_path 'lightning.Callback'")
    required = _REQUIRED.search(message)
    keys, classes = _KEY.findall(message), _CLASS.findall(message[: required.start()] if required else message)
    owner = classes[-1] if classes else ""
    key = ".".join(keys)
    inner = message[message.rindex("Parser key") :] if keys else message
    given = _GIVEN.search(inner) or _GIVEN.search(rest)
    below = given and _BELOW.match(given[1])
    if (denied := _DENIED.search(message)) and not below:
        path = denied[1]
        allow = f"--allow-import {path.rpartition('.')[0]}  (only if you trust what it runs)"
        return lines(
            f"{path} is not allowed in a configuration: it is not registered", key=key, **{"to allow it": allow}
        )
    if unknown := _UNKNOWN.search(message) or _UNRECOGNIZED.search(message):
        found = unknown.groupdict()
        name = f"{found['group']}.{found['name']}" if found.get("group") else found["name"]
        if not owner:
            return nearest_option(name, options, dashes=found.get("dashes", "--"))
        known = argument_names(owner)
        near = did_you_mean(name, known) or did_you_mean(f".{name}", [one for one in known if one.endswith(f".{name}")])
        return lines(f"{_short(owner)} has no argument {name}{near}", key=f"{key}.{name}", arguments=listing(known))
    if below:
        return lines(f"{keys[-1]} has no setting {below[1]}", key=f"{key}.{below[1]}")
    part = required[1].rpartition(".")[2].strip() if required else key
    nameless = not owner if required else given is not None and given[1].startswith("{'init_args'")
    if part in ("model", "data") and nameless:
        return f"the configuration names no {'task' if part == 'model' else 'data set'}: expected --{part} NAME"
    if required:
        return lines(f"{_short(owner)} needs {part}", expected=f"--{key}.{part.partition(',')[0]} VALUE")
    # what follows is expected of the part that the setting belongs to
    expected = [next(filter(None, found)) for found in _EXPECTED.findall(inner[: given and given.end()])]
    if (missing := _NOT_IMPORTED.search(message)) and not {"int", "float"} & {*expected}:
        return lines(f"no class named {missing[1]}", key=key)
    if given:
        of, value = f" of {_short(owner)}" if owner else "", shorten(given[1], 200, placeholder=" ...")
        a_list = "a list" if value[:1] in "{[N" else f"a list, as [{value.strip('()')}]"
        in_yaml = {"NoneType": "null", "tuple": a_list, "list": a_list}
        wanted = " or ".join(in_yaml.get(one, one) for one in dict.fromkeys(expected))
        return lines(f"{keys[-1]}{of} cannot be {value}", key=key, expected=wanted.replace("tuple with", "a list of"))
    return message


def raised_by_component(error: BaseException) -> BaseException:
    """What a component has raised, under what the parser wraps around it while it builds."""
    while "jsonargparse" in traceback.extract_tb(error.__traceback__)[-1].filename:
        if (inner := error.__cause__ or error.__context__) is None:
            break
        error = inner
    return error


def nearest_option(name: str, options: Sequence[str], dashes: str = "--") -> str:
    """The sentence for an option that there is not, with the nearest one: by its whole name, its first or last word."""
    if not dashes:
        meant = (
            f"--config {name}" if name.endswith((".yaml", ".yml")) else f"--{name}" if "." in name else "--KEY VALUE"
        )
        return lines(f"{name} stands alone", expected=meant)
    name = name.lstrip("-").replace("-", "_")
    first, _, below = name.partition(".")
    by_last = {option.rpartition(".")[2]: option for option in options}
    by_first = {option.partition(".")[0]: f"{option.partition('.')[0]}.{below}" for option in options}
    by_name = {option: option for option in options}
    for word, known in ((name, by_name), (name.rpartition(".")[2], by_last), *([(first, by_first)] if below else [])):
        if near := difflib.get_close_matches(word, known, n=1, cutoff=0.75):
            return f"no option --{name}; did you mean --{known[near[0]]}?"
    return lines(f"no option --{name}", expected="a setting such as --model.core.ARGUMENT, or an option of --help")


def options_of(tree: Any, key: str = "") -> Iterator[str]:
    """The settings of the parts that a configuration names, such as "model.core.num_slots"."""
    if not isinstance(tree, dict):
        return
    if isinstance(path := tree.get("class_path"), str):
        name = path.rpartition(".")[2]
        for kind in registry.kinds_of(name)[:1]:
            yield from (f"{key}.{one}" for one in argument_names(registry.load(kind, name)))
        tree = tree.get("init_args") or {}
    for name, item in tree.items():
        yield from options_of(item, f"{key}.{name}" if key else name)


def argument_names(path: str | type) -> list[str]:
    """The arguments of a class's constructor, those of a dataclass by their fields."""
    try:
        cls = pkgutil.resolve_name(path) if isinstance(path, str) else path
        parameters, hints = inspect.signature(cls).parameters, get_type_hints(cls.__init__)  # type: ignore[misc]
    except (ImportError, AttributeError, TypeError, ValueError, NameError):
        return []
    names = []
    for name in parameters:
        hint = hints.get(name)
        names += [f"{name}.{one.name}" for one in fields(hint)] if is_dataclass(hint) else [name]
    return names


def _short(path: str) -> str:
    return path.rpartition(".")[2]
