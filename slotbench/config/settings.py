"""Settings of a command line and its YAML files, each with its place in them.

It is read before the parser reads it, for three purposes: to import exactly the components that are named, to report
unreadable files, and to explain, when the parser refuses, which setting is wrong and where it stands.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from slotbench import registry
from slotbench.configurations import first_in_use
from slotbench.errors import FileError, UserError, did_you_mean, lines
from slotbench.files import read_text
from slotbench.yaml_files import CONFIG_LIMIT, parse_yaml, yaml_node

__all__ = [
    "Node",
    "Setting",
    "check_value_text",
    "command_line_settings",
    "config_files",
    "load_named",
    "names_in",
    "read_settings",
    "tree_of",
    "without_replaced",
]

_NAME = re.compile(r"[A-Za-z_]\w*")
_CONFIG_OPTIONS = ("--config", "-c")
# a value in a file of its own, with a value in a file of its own, ...
_DEEPEST, _MOST_FILES = 8, 100
_SHORT = 256
_EXPERIMENTS = Path("experiments")
# Words of a key that add nothing to the rest of it.
_SILENT = ("class_path", "init_args", "dict_kwargs")


@dataclass(frozen=True)
class Setting:
    """One value, or one class name, given by the user.

    Attributes:
        key: where it belongs, e.g. ("model", "core", "num_slots"); () for an argument without a key.
        value: a string if it stands on the command line, else what YAML makes of it; None if the value is missing.
        text: how the user wrote it and where, for messages.
        on_command_line: whether it stands there.
        file: the file in which it stands otherwise.
    """

    key: tuple[str, ...]
    value: Any
    text: str
    on_command_line: bool
    file: Path | None = None


def config_files(arguments: list[str]) -> list[Path]:
    """The files given with --config FILE, -c FILE or --config=FILE, in order."""
    return [
        Path(setting.value)
        for setting in command_line_settings(arguments)
        if setting.key == ("config",) and setting.value is not None
    ]


def without_replaced(arguments: list[str]) -> tuple[list[str], list[Path]]:
    """The arguments without the files that have no part in the experiment, and these files.

    See `slotbench.configurations.first_in_use`.

    Raises:
        UserError: a file cannot be read.
    """
    words = list(_words(arguments))
    files = [index for index, (setting, _) in enumerate(words) if setting.key == ("config",) and setting.value]
    first = first_in_use([_classes(Path(words[index][0].value)) for index in files]) if len(files) > 1 else 0
    replaced = files[:first]
    kept = [part for index, (_, parts) in enumerate(words) if index not in replaced for part in parts]
    return kept, [Path(words[index][0].value) for index in replaced]


def read_settings(arguments: list[str]) -> list[Setting]:
    """Every setting of the files and of the command line, in the order in which they apply.

    Raises:
        UserError: a file is not there, is not valid YAML, or is not a mapping.
    """
    settings: list[Setting] = []
    for setting in command_line_settings(without_replaced(arguments)[0]):
        if setting.key == ("config",):
            if not setting.value:
                raise UserError(lines("--config needs a file", example="--config experiments/blinking_balls.yaml"))
            settings += _from_file(Path(setting.value))
        else:
            settings.append(setting)
    return settings


def load_named(settings: Iterable[Setting]) -> None:
    """Imports every registered component whose bare name is the value of a setting.

    Raises:
        RegistryError: a component that is named cannot be imported.
    """
    for name in sorted({name for setting in settings for name in names_in(setting.value)}):
        for kind in registry.kinds_of(name):
            registry.load(kind, name)


def command_line_settings(arguments: list[str]) -> Iterator[Setting]:
    """The settings of a command line alone; that of a file has the key ("config",)."""
    for setting, _ in _words(arguments):
        yield setting


def _words(arguments: list[str]) -> Iterator[tuple[Setting, list[str]]]:
    """The settings of a command line, each with its words."""
    index = 0
    while index < len(arguments):
        start = index
        argument = arguments[index]
        index += 1
        if not argument.startswith("-") or argument == "-":
            yield Setting((), argument, argument, True), [argument]
            continue
        option, equals, value = argument.partition("=")
        text = argument
        if not equals and index < len(arguments) and not _is_option(arguments[index]):
            value = arguments[index]
            text = f"{argument} {value}"
            equals = "="
            index += 1
        key = ("config",) if option in _CONFIG_OPTIONS else tuple(option.lstrip("-").split("."))
        yield Setting(_without_silent(key), value if equals else None, text, True), arguments[start:index]


def _classes(path: Path) -> set[str]:
    """The parts of which a file names the class."""
    return {setting.key[0] for setting in _from_file(path) if len(setting.key) == 1}


def _is_option(argument: str) -> bool:
    return re.match(r"--?[A-Za-z]", argument) is not None


def _without_silent(key: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part for part in key if part not in _SILENT)


@dataclass
class _Reading:
    """The nested files being read, and the number of files so far."""

    within: tuple[Path, ...] = ()
    count: int = 0


def _from_file(path: Path, prefix: tuple[str, ...] = (), reading: _Reading | None = None) -> list[Setting]:
    reading = _Reading() if reading is None else reading
    if not path.exists() or path.is_dir():
        raise UserError(_missing_file(path))
    outer, place = reading.within, path.resolve()
    reading.count += 1
    if len(outer) >= _DEEPEST or place in outer or reading.count > _MOST_FILES:
        raise UserError(
            lines(
                f"{outer[0]} leads to more and more files, or back to itself, by way of {path}",
                expected=f"at most {_MOST_FILES} files, and at most {_DEEPEST - 1} within one another",
            )
        )
    node = yaml_node(read_text(path, CONFIG_LIMIT), path)
    if not isinstance(node, yaml.MappingNode):
        what = "is empty" if node is None else f"holds {_describe(node)}"
        raise UserError(lines(f"{path} {what}", expected="a mapping with the keys model, data, trainer"))
    reading.within = (*outer, place)
    try:
        return list(_from_node(node, prefix, path, reading))
    finally:
        reading.within = outer


def _from_node(node: yaml.Node, key: tuple[str, ...], path: Path, reading: _Reading) -> Iterator[Setting]:
    if isinstance(node, yaml.MappingNode):
        children: dict[str, yaml.Node] = {}
        for name_node, child in node.value:
            name = str(name_node.value)
            if name in children:
                raise UserError(
                    lines(
                        f"{path}, line {name_node.start_mark.line + 1}: the key {name} is given twice",
                        first=f"line {children[name].start_mark.line + 1}",
                    )
                )
            children[name] = child
        # the class comes first: its arguments are judged by it
        for name, child in sorted(children.items(), key=lambda item: item[0] != "class_path"):
            yield from _from_node(child, key if name in _SILENT else (*key, name), path, reading)
        return
    if isinstance(node, yaml.SequenceNode) and any(_is_class(item) for item in node.value):
        for index, item in enumerate(node.value):
            yield from _from_node(item, (*key, str(index)), path, reading)
        return
    try:
        value = yaml.SafeLoader("").construct_object(node, deep=True)
    except (yaml.YAMLError, ValueError, TypeError, OverflowError) as error:
        line = node.start_mark.line + 1
        raise UserError(f"{path}, line {line}: {'.'.join(key)} is not a valid value: {error}") from error
    for text in _texts_in(value):
        check_value_text(text, f"{path}, line {node.start_mark.line + 1}: {'.'.join(key)}")
    if isinstance(value, str) and Path(value).suffix in (".yaml", ".yml") and (path.parent / value).exists():
        # the value of an argument may be written in a file of its own
        yield from _from_file(path.parent / value, key, reading)
        return
    shown = node.value if isinstance(node, yaml.ScalarNode) else str(value)
    yield Setting(key, value, f"{'.'.join(key)}: {shown}  ({path}, line {node.start_mark.line + 1})", False, path)


def _is_class(node: yaml.Node) -> bool:
    return isinstance(node, yaml.MappingNode) and any(name.value == "class_path" for name, _ in node.value)


def check_value_text(text: str, where: str) -> None:
    """Refuses a text that, read as YAML, would be nested too deeply or multiplied by aliases.

    Raises:
        FileError: it would.
    """
    if len(text) > _SHORT or ("&" in text and "*" in text):
        try:
            yaml_node(text, where)
        except FileError as error:
            if not isinstance(error.__cause__, yaml.YAMLError):
                raise


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _texts_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts_in(item)
    elif isinstance(value, str):
        yield value


def names_in(value: Any) -> Iterator[str]:
    """Every word within a value that could be the name of a component."""
    for text in _texts_in(value):
        if _NAME.fullmatch(text):
            yield text
        elif text.startswith(("{", "[")):
            try:
                yield from names_in(parse_yaml(text, "a setting"))
            except FileError:
                continue  # the parser will say so, with the key


def _missing_file(path: Path) -> str:
    if path.is_dir():
        if (path / "run.json").is_file():
            resume = {"to resume it": f"slotbench fit --resume {path}"}
            return lines(f"{path} is a run; --config takes a YAML file", **resume)
        return lines(
            f"{path} is a directory; --config takes a YAML file",
            files=", ".join(str(file) for file in sorted(path.glob("*.yaml"))[:8]),
        )
    if not path.parent.is_dir():
        return lines(f"no file {path}: there is no directory {path.parent}", **{"looked in": str(Path.cwd())})
    there = [str(file) for file in sorted(path.parent.iterdir()) if file.suffix in (".yaml", ".yml")]
    near = did_you_mean(str(path), there) or _experiment_near(path)
    what_is_there = ", ".join(there[:8]) or f"no YAML file in {path.parent.resolve()}"
    return lines(f"no file {path}{near}", there=None if near else what_is_there)


def _experiment_near(path: Path) -> str:
    """The experiment in experiments/ that a name without a folder is meant for, as a question; nothing if none is."""
    if path.name != str(path):
        return ""
    by_name = {file.stem: file for folder in (_EXPERIMENTS / "paper", _EXPERIMENTS) for file in folder.glob("*.yaml")}
    near = difflib.get_close_matches(path.stem, by_name, n=1, cutoff=0.7)
    return f"; did you mean {by_name[near[0]]}?" if near else ""


def _describe(node: yaml.Node) -> str:
    return "a list" if isinstance(node, yaml.SequenceNode) else f"one value, {str(node.value)[:40]!r}"


@dataclass
class Node:
    """The settings of one key: its own value, and those of the keys below it.

    Attributes:
        setting: the last setting of the key itself.
        children: the keys below it.
        appended: what `--KEY+ NAME` appends to the list, each with the arguments that follow it on the command line.
        outdated: whether it was given for a class that a later setting replaced: the parser drops what does not fit.
    """

    setting: Setting | None = None
    children: dict[str, Node] = field(default_factory=dict)
    appended: list[Node] = field(default_factory=list)
    outdated: bool = False

    @property
    def value(self) -> Any:
        """The last value of the key itself."""
        return None if self.setting is None else self.setting.value

    def first_setting(self) -> Setting | None:
        """A setting to show for this key: its own, else the first below it."""
        if self.setting is not None:
            return self.setting
        return next(filter(None, (node.first_setting() for node in self._below())), None)

    def mark_outdated(self) -> None:
        """Marks this key and all below it."""
        self.outdated = True
        for node in self._below():
            node.mark_outdated()

    def _below(self) -> list[Node]:
        return [*self.children.values(), *self.appended]


def tree_of(settings: Iterable[Setting]) -> Node:
    """The settings in one tree; those without a key are left out."""
    root = Node()
    for setting in settings:
        node = root
        for part in setting.key:
            if node.appended and setting.on_command_line:
                node = node.appended[-1]
            appends = setting.on_command_line and part.endswith("+")
            node = node.children.setdefault(part.removesuffix("+") if appends else part, Node())
            if appends:
                node.appended.append(Node())
                node = node.appended[-1]
        if node is root:
            continue
        if node.setting is not None and node.setting.value != setting.value:
            for child in node.children.values():
                child.mark_outdated()
        node.setting, node.appended, node.outdated = setting, [], False
    return root
