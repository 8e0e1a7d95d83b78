"""The configuration files of a command line as one tree: laid over each other, parts exchanged, components imported.

The parser then reads one configuration, and the settings of the command line that the tree has no place for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

import yaml
from jsonargparse import get_loader

from slotbench import registry
from slotbench.errors import FileError, UserError, did_you_mean, lines
from slotbench.io import read_text
from slotbench.runs.differences import is_material

__all__ = ["Given", "Typed", "config_files", "lay_over", "material_settings", "read_config", "read_tree", "set_element"]
__all__ += ["typed_settings"]

_SILENT = ("class_path", "init_args")  # words of a key that add nothing to the rest of it
_NAME = re.compile(r"[A-Za-z_]\w*")
_CLASS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_OPTION = re.compile(r"--?(?!inf\b|nan\b)[A-Za-z]")
_PLACE = re.compile(r"-?\d+")
# the last word of a key -> the kind of component that stands there
_KINDS = {singular: kind for kind, singular in registry.KINDS.items()} | {"model": "tasks", "data": "datasets"}


class Typed(NamedTuple):
    """A setting of a command line: its key, () for a word that stands alone; its value, if it has one; its words."""

    key: tuple[str, ...]
    value: str | None
    words: list[str]


class Given(NamedTuple):
    """The tree of a command line and its files, the words left to the parser, what is typed, and elements of lists."""

    tree: dict[str, Any]
    rest: list[str]
    typed: dict[str, str | None]
    elements: list[Typed]


def typed_settings(arguments: Sequence[str]) -> Iterator[Typed]:
    """The settings of a command line in order; that of a file has the key ("config",)."""
    index = 0
    while index < len(arguments):
        words = [arguments[index]]
        option, equals, value = arguments[index].partition("=")
        index += 1
        if not option.startswith("-"):
            yield Typed((), words[0], words)
            continue
        if not equals and index < len(arguments) and not _OPTION.match(arguments[index]):
            value = arguments[index]
            words.append(value)
            index += 1
        key = "config" if option == "-c" else re.sub(r"\[(-?\d+)\]", r".\1", option.lstrip("-"))
        parts = tuple(part for part in key.split(".") if part not in _SILENT)
        yield Typed(parts, value if equals or len(words) > 1 else None, words)


def material_settings(arguments: Sequence[str]) -> dict[str, str | None]:
    """The settings of a command line by key, without files and what only says where and how a run is run."""
    typed = ((".".join(one.key), one.value) for one in typed_settings(arguments))
    return {key: value for key, value in typed if key and is_material(key)}


def config_files(arguments: Sequence[str]) -> list[Path]:
    """The configuration files of a command line that are in use."""
    files = [Path(one.value or "") for one in typed_settings(arguments) if one.key == ("config",)]
    whole = [index for index, file in enumerate(files) if _is_whole(read_config(file))]
    return files[whole[-1] if whole else 0 :]


def read_tree(arguments: Sequence[str]) -> Given:
    """Reads the files and settings of a command line, and imports the components that they name.

    What is missing or no configuration, and a component that is unknown, is said before any is imported.
    """
    tree: dict[str, Any] = {}
    settings: list[Typed] = []
    for one in typed_settings(arguments):
        if one.key != ("config",):
            settings.append(one)
        elif one.value is None:
            raise UserError("--config needs a file")
        else:
            tree = lay_over(tree, read_config(Path(one.value)))
    named = [(one.key[-1], one.value) for one in settings if one.key[:1] in (("model",), ("data",))]
    for key, name in (*named, *((key, name) for key, _, name in _parts(tree))):
        _check_name(key, name)
    elements = [one for one in settings if any(map(_PLACE.fullmatch, one.key))]
    rest = [one for one in settings if one not in elements and not _set(tree, one)]
    _name_classes(tree)
    for name in sorted(set(_names_in([tree, *(one.value for one in (*rest, *elements))]))):
        for kind in registry.kinds_of(name):
            registry.load(kind, name)
    typed = {re.split(r"\.-?\d+\b", ".".join(one.key))[0]: one.value for one in settings}
    # in one word: a value such as -1e-3 is no option
    return Given(tree, ["=".join(one.words) for one in rest], typed, elements)


def set_element(tree: dict[str, Any], one: Typed) -> None:
    """Sets an element of a list of a complete configuration, or a setting of an element."""
    key, place, holder = ".".join(one.key), "", {"": tree}
    for depth, part in enumerate(one.key):
        holder = holder[place]
        if isinstance(holder, dict):
            holder, place = holder.setdefault("init_args", {}) if "class_path" in holder else holder, part
            holder.setdefault(part, {})  # of no such name: the parser says which is near
        elif isinstance(holder, list) and _PLACE.fullmatch(part) and -len(holder) <= int(part) < len(holder):
            place = int(part)
        else:
            name, found = ".".join(one.key[:depth]), shorten(str(holder), 60, placeholder=" ...")
            expected = f"an element that is there, or the whole list: --{name} '[..., ...]'"
            raise UserError(lines(f"{name} is {found}, without an element {part}", key=key, expected=expected))
    if one.value is None:
        raise UserError(f"--{key} needs a value")
    value, is_part = _value(one), isinstance(holder[place], dict) and "class_path" in holder[place]
    holder[place] = {"class_path": value} if is_part and isinstance(value, str) else value


def read_config(path: Path) -> dict[str, Any]:
    """What a configuration file holds; an error says what is wrong with it."""
    if (path / "run.json").is_file():
        raise UserError(lines(f"{path} is a run", **{"to resume it": f"slotbench fit --resume {path}"}))
    if not path.is_file():
        here = [str(file) for folder in (path.parent, Path("experiments")) for file in folder.glob("*.y*ml")]
        near = did_you_mean(str(path), here) or did_you_mean(path.stem, {Path(file).stem: file for file in here})
        raise UserError(f"no file {path}{near}")
    try:
        # as the parser reads it: 1e-3 is a number
        found = get_loader("yaml")(read_text(path))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise FileError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict):
        raise UserError(lines(f"{path} holds no settings", expected="a mapping with the keys model, data, trainer"))
    if "base" in found:
        raise UserError(f"{path} is a grid, not an experiment: slotbench grid run {path}")
    return found


def lay_over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """A configuration over another one: a part of another class starts clean, and so does a whole experiment."""
    return above if _is_whole(above) else _merged(below, above)


def _merged(below: Any, above: Any) -> Any:
    named = _class_of(above)
    if isinstance(above, str) and named and named == _class_of(below):
        return below
    if not (isinstance(below, dict) and isinstance(above, dict)) or (named and named != _class_of(below)):
        return above
    return below | {key: _merged(below[key], item) if key in below else item for key, item in above.items()}


def _is_whole(tree: dict[str, Any]) -> bool:
    """Whether a configuration names both a task and a data set."""
    return all(_class_of(tree.get(part)) for part in ("model", "data"))


def _class_of(part: Any) -> str:
    """The name of the class of a part; empty if it names none."""
    path = part.get("class_path") if isinstance(part, dict) else part
    return path.rpartition(".")[2] if isinstance(path, str) else ""


def _set(tree: dict[str, Any], one: Typed) -> bool:
    """Sets a value of the task or the data in the tree; False where that is left to the parser."""
    if one.value is None or one.key[:1] not in (("model",), ("data",)) or one.key[-1] == "help":
        return False
    *path, name = one.key
    holder: Any = tree
    for part in path:
        if isinstance(holder.get(part), str) and part in _KINDS:
            holder[part] = {"class_path": holder[part]}
        if not isinstance(holder.get(part), dict):
            return False
        holder = holder[part]
        if "class_path" in holder:
            holder["init_args"] = holder.get("init_args") or {}
            holder = holder["init_args"]
    value, before = _value(one), holder.get(name)
    if value is None or (isinstance(value, dict) and "class_path" in value):
        holder[name] = value
    elif isinstance(value, str) and (name in _KINDS or (isinstance(before, dict) and "class_path" in before)):
        if not _CLASS.fullmatch(value):
            return False
        holder[name] = _exchanged(name, before, value)
    elif name.endswith("+") or isinstance(before, dict):
        return False
    else:
        holder[name] = one.value  # as typed: the parser knows whether a text or a number is meant
    return True


def _value(one: Typed) -> Any:
    """What is typed, read as YAML."""
    try:
        return get_loader("yaml")(one.value)
    except yaml.YAMLError:
        return one.value


def _exchanged(key: str, before: Any, name: str) -> dict[str, Any]:
    """A part of another class, with the arguments given for the old one that the new one takes."""
    if isinstance(before, dict) and _class_of(before) == name.rpartition(".")[2]:
        return before
    given = before.get("init_args") if isinstance(before, dict) else None
    kinds = registry.kinds_of(name.rpartition(".")[2])
    if not given or not kinds:
        return {"class_path": name}
    from slotbench.config.jsonargparse_compat import still_taken

    cls = registry.load(_KINDS[key] if _KINDS.get(key) in kinds else kinds[0], name.rpartition(".")[2])
    return {"class_path": name, "init_args": still_taken(cls, given)}


def _check_name(key: str, name: str | None) -> None:
    kind = _KINDS.get(key)
    if kind and name not in (None, "null") and _NAME.fullmatch(str(name)) and name not in registry.names(kind):
        raise registry.unknown(kind, str(name))


def _name_classes(tree: dict[str, Any]) -> None:
    """Names registered components by where they are defined: another module may have a class of the same name."""
    for key, holder, name in list(_parts(tree)):
        if beside := [str(item) for item in holder or () if item not in (*_SILENT, "dict_kwargs")]:
            raise UserError(lines(f"{beside[0]} stands beside class_path: {name}", expected="below init_args: {...}"))
        if holder is not None and (kinds := registry.kinds_of(name)):
            cls = registry.load(_KINDS[key] if _KINDS.get(key) in kinds else kinds[0], name)
            holder["class_path"] = f"{cls.__module__}.{cls.__qualname__}"


def _parts(tree: Any, key: str = "") -> Iterator[tuple[str, dict[str, Any] | None, str]]:
    """The last word of the key, the mapping and the class of every part; a part may be its class's name alone."""
    if isinstance(tree, str) and key in _KINDS:
        yield key, None, tree
    if isinstance(tree, list) and key == "objectives":
        for item in tree:
            yield from _parts(item, "objective")
    if not isinstance(tree, dict):
        return
    if isinstance(tree.get("class_path"), str):
        yield key, tree, tree["class_path"]
        tree = tree.get("init_args") or {}
    for name, item in tree.items():
        yield from _parts(item, str(name))


def _names_in(value: Any) -> Iterator[str]:
    """Every word within some values that could be the name of a component."""
    if isinstance(value, str) and value.startswith(("{", "[")):
        yield from _NAME.findall(value)
    elif isinstance(value, str) and _NAME.fullmatch(value):
        yield value
    elif isinstance(value, dict | list | tuple):
        items: Iterable[Any] = value.values() if isinstance(value, dict) else value
        for item in items:
            yield from _names_in(item)
