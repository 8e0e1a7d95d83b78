"""Names in a configuration that mean nothing: refused before torch is imported, in the same words as afterwards.

Nothing is refused early that the parser would take. Where the sources do not say (a component of a `--plugin` file, a
class that is made at run time, an argument that is no component), the setting is left to the parser, and to
`explanation` if that refuses it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from slotbench import registry
from slotbench.config.options import RunOptions
from slotbench.config.settings import Node, Setting, config_files, tree_of
from slotbench.errors import FileError, UserError, did_you_mean, lines, listing
from slotbench.files import read_text
from slotbench.sources import SourceArgument, arguments_from_source, defines_class
from slotbench.yaml_files import CONFIG_LIMIT, read_yaml

__all__ = [
    "LINKED",
    "PARTS",
    "given_by_user",
    "owner_of",
    "refuse_early",
    "refuse_grids",
    "stands_alone",
    "unknown_argument",
    "unknown_component",
    "unknown_key",
]

LINKED = frozenset({"data_spec"})
"""Arguments that the command line fills in from the data."""
PARTS = ("model", "data", "trainer")

_KINDS = {interface: kind for kind, interface in registry.INTERFACES.items()}
_TRAINER = "lightning.pytorch.trainer.trainer:Trainer"
# what the trainer's methods are given by the command and not by the user
_OURS = ("model", "dataloaders", "train_dataloaders", "val_dataloaders", "datamodule")
_NAME = re.compile(r"[A-Za-z_]\w*")
_ASKS = ("help", "h", "print_config")
_IN_FILE = re.compile(r"\((?P<path>.*), line \d+\)$")
_ANCHORS = "write an anchor where it is first used, `core: &mine {...}`, and *mine from there on; no key holds them"


def refuse_grids(arguments: list[str], settings: Iterable[Setting]) -> None:
    """A grid file has keys of its own, which the parser would refuse one by one.

    Raises:
        UserError: a file is a grid; says what to type.
    """
    if not any(setting.key[:1] == ("base",) for setting in settings):
        return
    for path in config_files(arguments):
        content = read_yaml(path)
        if isinstance(content, dict) and "base" in content:
            raise UserError(
                lines(
                    f"{path} is a grid, not an experiment",
                    **{"to run its points": f"slotbench grid run {path}", "to see them": f"slotbench grid show {path}"},
                )
            )


def refuse_early(command: str, settings: Iterable[Setting], options: RunOptions) -> None:
    """Raises what `explanation.explain` would say of a name that means nothing.

    Args:
        command: fit, validate, test or predict.
        settings: what the user has given, in order.
        options: of the run.

    Raises:
        UserError: there is such a name.
    """
    settings = list(settings)
    if any(set(setting.key[-1:]) & set(_ASKS) for setting in settings):
        return
    for setting in settings:
        if not setting.key:
            raise stands_alone(setting)
    root = tree_of(settings)
    is_open = _is_open(command, options)
    trainer = arguments_from_source(_TRAINER)
    method = arguments_from_source(_TRAINER, command)
    # where a part is not known, it may be the owner of the argument, which the parser's refusal names
    if trainer is not None and method is not None and not is_open:
        known = [*PARTS, "seed_everything", *(argument.name for argument in method if argument.name not in _OURS)]
        for name, node in root.children.items():
            if name not in known and name != "config":
                raise unknown_key(name, node.first_setting(), known, _owner_of(name, root, trainer))
    walk = _Walk(is_open)
    for part, kind in (("model", "tasks"), ("data", "datasets")):
        if part in root.children:
            walk.component(root.children[part], kind, 0)
    if trainer is not None and "trainer" in root.children:
        walk.arguments(root.children["trainer"], trainer, "the trainer")


def unknown_component(kind: str, name: str, setting: Setting | None) -> UserError:
    """No component of that kind has the name."""
    names = registry.names(kind)
    elsewhere = [registry.KINDS[other] for other in registry.kinds_of(name)]
    also = f" ({name} is another kind: {', '.join(elsewhere)})" if elsewhere else ""
    return UserError(
        lines(
            f"no {registry.KINDS[kind]} named {name}{also}{did_you_mean(name, names)}",
            given=setting.text if setting else None,
            available=listing(names),
        )
    )


def unknown_argument(owner: str, name: str, arguments: Iterable[str], setting: Setting | None) -> UserError:
    """A component, or the trainer, has no such argument; those of a dataclass are named as in "loader.batch_size"."""
    known = [argument for argument in arguments if argument not in LINKED]
    # one of a dataclass may be given without it
    ends = {argument.rpartition(".")[2]: argument for argument in reversed(known)}
    near = difflib.get_close_matches(name.rpartition(".")[2].lower(), ends, n=1, cutoff=0.5)
    return UserError(
        lines(
            f"{owner} has no argument {name}" + (f"; did you mean {ends[near[0]]}?" if near else ""),
            given=setting.text if setting else None,
            arguments=listing(known, 12),
        )
    )


def unknown_key(name: str, setting: Setting | None, known: list[str], owner: str | None) -> UserError:
    """The configuration has no such top-level key.

    Args:
        name: of the key.
        setting: that gave it.
        known: the keys that there are.
        owner: what has an argument of the name, such as "trainer" or "data.loader".
    """
    key = list(setting.key) if setting else [name]
    dashes = "--" if setting and setting.on_command_line else ""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    # somebody may have left out the part that the argument belongs to
    meant = [owner, *key] if owner else [near[0], *key[1:]] if near else []
    return UserError(
        lines(
            f"no argument {dashes}{'.'.join(key)}" + (f"; did you mean {dashes}{'.'.join(meant)}?" if meant else ""),
            given=setting.text if setting else None,
            expected=f"one of {listing(known)}" + ("" if meant else ", or a part's, such as --model.core.ARGUMENT"),
            anchors=_ANCHORS if _holds_anchor(key[0], setting) else None,
        )
    )


def owner_of(name: str, arguments: Mapping[str, Iterable[str]]) -> str | None:
    """The part that has an argument of this name, the user having left it out: "data.loader" for "batch_size".

    Args:
        name: of the argument.
        arguments: of each part, those of a dataclass as "loader.batch_size".
    """
    for part, known in arguments.items():
        for argument in known:
            if f".{argument}".endswith(f".{name}"):
                return f"{part}.{argument}".removesuffix(f".{name}")
    return None


def _holds_anchor(name: str, setting: Setting | None) -> bool:
    """Whether the key of a file is there to hold an anchor, `name: &anchor`."""
    found = _IN_FILE.search(setting.text) if setting is not None and not setting.on_command_line else None
    if found is None:
        return False
    try:
        text = read_text(found["path"], CONFIG_LIMIT)
    except FileError:
        return False
    block = re.search(rf"^{re.escape(name)}:(.*\n?)((?:[ \t#-].*\n?|\n)*)", text, re.MULTILINE)
    return block is not None and re.search(r"[:\-\s]&\w", f" {block[1]}{block[2]}") is not None


def stands_alone(setting: Setting) -> UserError:
    """A word of the command line belongs to no key."""
    expected = "an argument with a key, such as --model.core.num_slots 3"
    if setting.text.endswith((".yaml", ".yml")):
        expected = f"--config {setting.text}"
    return UserError(lines(f"{setting.text} stands alone", expected=expected))


class _Walk:
    """Checks names beside the sources of the components that they belong to, depth first.

    Args:
        is_open: whether there may be components that no package declares.
    """

    def __init__(self, is_open: bool) -> None:
        self.is_open = is_open

    def component(self, node: Node, kind: str, supplied: int) -> None:
        name = node.value
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name in ("null", "None"):
            return
        if name not in registry.names(kind):
            if not self.is_open and not Path(name).exists() and not _may_be_a_class(name):
                raise unknown_component(kind, name, node.setting)
            return
        entry = registry.find(kind, name)
        arguments = arguments_from_source(entry.target) if entry is not None else None
        if arguments is not None:
            self.arguments(node, given_by_user(kind, arguments, supplied), name)

    def arguments(self, node: Node, arguments: list[SourceArgument], owner: str) -> None:
        known = {argument.name: argument for argument in arguments}
        for name, child in node.children.items():
            # "+" appends to a list, "<<" is YAML's
            if name.endswith("+") or name == "<<" or name in LINKED:
                continue
            if name not in known:
                if child.outdated:
                    continue
                raise unknown_argument(owner, name, _spelled(arguments), child.setting or child.first_setting())
            argument = known[name]
            for part, inner in child.children.items() if argument.fields else ():
                if part not in argument.fields and not inner.outdated:
                    raise unknown_argument(owner, f"{name}.{part}", _spelled(arguments), inner.first_setting())
            if (kind := _KINDS.get(argument.interface)) is not None:
                self.component(child, kind, argument.supplied)


def given_by_user(kind: str, arguments: list[SourceArgument], supplied: int) -> list[SourceArgument]:
    """The arguments of a component that a configuration may give; see `config.schedule_arguments`."""
    if kind != "schedules":
        return arguments[supplied:]
    return [argument for argument in arguments[1:] if argument.name != "total_steps" or argument.default is not None]


def _is_open(command: str, options: RunOptions) -> bool:
    """Whether there may be components that no package declares: from a file, from elsewhere, or those of a run."""
    of_a_run = command != "fit" or options.resume or (options.run_dir and options.run_dir.exists())
    return bool(options.plugin or options.allow_import or of_a_run)


def _may_be_a_class(name: str) -> bool:
    """Whether a class of that name may be imported though it is not registered: the parser finds it if it is."""
    if registry.kinds_of(name):
        return False
    return any(defines_class(module, name) for module in ("slotbench", "slotbench_plugins", *registry.modules()))


def _owner_of(name: str, root: Node, trainer: list[SourceArgument]) -> str | None:
    """The part that has an argument of this name; the user may have left it out."""

    def arguments(part: str, kind: str) -> Iterable[str]:
        node = root.children.get(part)
        entry = registry.find(kind, node.value) if node is not None and isinstance(node.value, str) else None
        return _spelled((entry and arguments_from_source(entry.target)) or ())

    parts = {"data": arguments("data", "datasets"), "trainer": _spelled(trainer), "model": arguments("model", "tasks")}
    return owner_of(name, parts)


def _spelled(arguments: Iterable[SourceArgument]) -> list[str]:
    """The names of arguments as they are given: those of a dataclass by their fields."""
    return [
        name
        for argument in arguments
        for name in ([f"{argument.name}.{part}" for part in argument.fields] or [argument.name])
    ]
