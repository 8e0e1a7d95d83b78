"""The walk over the settings of a configuration that checks them against signatures.

It stops at the first setting that is wrong, with a sentence that names the setting, where it stands and what would be
right. `refusals` runs it before torch is imported, beside signatures that are read from sources; `explanation` runs it
beside the classes themselves once the parser has refused something.
"""

from __future__ import annotations

import difflib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from slotbench import registry
from slotbench.config.options import flags
from slotbench.config.settings import Node, Setting, tree_of
from slotbench.config.usual_names import USUAL
from slotbench.errors import FileError, UserError, did_you_mean, lines, listing
from slotbench.files import read_text
from slotbench.sources import Argument, Part, spelled
from slotbench.yaml_files import CONFIG_LIMIT

__all__ = ["LINKED", "PARTS", "Walk", "unknown_component"]

LINKED = frozenset({"data_spec"})
"""Arguments that the command line fills in from the data."""
PARTS = ("model", "data", "trainer")

_KINDS = {"model": "tasks", "data": "datasets"}
_TRAINER = "the trainer"
_PARTS_OF_MODEL = ("encoder", "core", "decoder", "optimizer", "schedule")
_ANCHORS = "write an anchor where it is first used, `core: &mine {...}`, and *mine from there on; no key holds them"


class Walk(ABC):
    """Checks settings against the signatures of the classes that they configure, depth first.

    Attributes:
        is_final: whether everything is known, so that what is missing is an error too.
    """

    is_final = False

    @abstractmethod
    def signature(self, kind: str, name: str) -> Mapping[str, Argument] | None:
        """The arguments of a registered task or data set; None if they are not known."""

    @abstractmethod
    def trainer(self) -> Mapping[str, Argument] | None:
        """The arguments of the trainer; None if they are not known."""

    @abstractmethod
    def resolve(
        self, node: Node, part: Part, default: Any, key: str
    ) -> tuple[str, Mapping[str, Argument], Iterable[str]] | None:
        """The class that a setting names, its arguments, and those that come from the data; None if not known."""

    @abstractmethod
    def value(self, node: Node, argument: Argument, key: str, owner: str) -> None:
        """Checks what is given for one argument."""

    def check(self, settings: Iterable[Setting], options: Mapping[str, Argument] | None) -> None:
        """Raises the sentence for the first setting that is wrong; returns if all of them look right.

        Args:
            settings: the user's settings, in order.
            options: top-level keys besides model, data and trainer, such as "ckpt_path"; None if any may be one.

        Raises:
            UserError: says what is wrong, where, and what would be right.
        """
        settings = list(settings)
        for setting in settings:
            if not setting.key:
                raise _stands_alone(setting)
            if self.is_final and setting.value is None and setting.on_command_line:
                raise UserError(lines(f"{setting.text} needs a value", example=f"{setting.text} VALUE"))
        root = tree_of(settings)
        for name, node in root.children.items():
            if options is None:
                break
            if name in options:
                self.value(node, options[name], name, "")
            elif name not in PARTS and (self.is_final or name != "config"):
                raise _unknown_key(name, node.first_setting(), [*PARTS, *options], self._owner_of(name, root))
        for name, kind in _KINDS.items():
            if name in root.children and root.children[name].value is not None:
                self.component(root.children[name], Part(self.interface(kind)), None, name)
            elif self.is_final:
                raise UserError(
                    lines(
                        f"the configuration names no {registry.KINDS[kind]}",
                        expected=f"--config FILE, or --{name} NAME",
                        available=listing(registry.names(kind)),
                    )
                )
        if "trainer" in root.children and (trainer := self.trainer()) is not None:
            self.arguments(root.children["trainer"], _TRAINER, trainer, (), "trainer")

    def interface(self, kind: str) -> Any:
        """The value of `Part.base` for a kind of component."""
        return registry.INTERFACES[kind]

    def component(self, node: Node, part: Part, default: Any, key: str) -> None:
        """Checks a component: its name, and its arguments."""
        if (found := self.resolve(node, part, default, key)) is not None:
            self.arguments(node, *found, key)

    def arguments(self, node: Node, owner: str, known: Mapping[str, Argument], linked: Iterable[str], key: str) -> None:
        """Checks the arguments of one class.

        Args:
            node: the settings of the component.
            owner: the class, in words.
            known: its arguments.
            linked: those of them that come from the data.
            key: of the component.
        """
        for name, child in node.children.items():
            setting = child.setting or child.first_setting()
            if name in linked:
                raise UserError(
                    lines(
                        f"{key}.{name} is not for the configuration: it comes from the data",
                        given=setting.text if setting else None,
                    )
                )
            if name.endswith("+") or name in ("<<", *LINKED & set(known)):
                continue  # "+" appends to a list, "<<" is YAML's
            if name not in known:
                if child.outdated:
                    continue
                raise _unknown_argument(owner, name, known, setting)
            argument = known[name]
            named = str(child.value or "").rpartition(".")[2]
            whole = named not in ("", getattr(argument.hint, "__name__", argument.hint))
            if not argument.fields or not child.children or whole:
                self.value(child, argument, f"{key}.{name}", owner)
                continue
            for part, inner in child.children.items():
                if part in argument.fields:
                    self.value(inner, argument.fields[part], f"{key}.{name}.{part}", owner)
                elif not inner.outdated:
                    raise _unknown_argument(owner, f"{name}.{part}", known, inner.first_setting())

    def _owner_of(self, name: str, root: Node) -> str | None:
        """The part that has an argument of this name, the user having left it out: "data.loader" for "batch_size"."""
        for part in ("data", "trainer", "model"):
            node = root.children.get(part)
            if part == "trainer":
                known = self.trainer()
            elif node is not None and node.value in registry.names(_KINDS[part]):
                known = self.signature(_KINDS[part], node.value)
            else:
                known = None
            for argument in spelled(known or {}):
                if f".{argument}".endswith(f".{_word(name)}"):
                    return f"{part}.{argument}".removesuffix(f".{_word(name)}")
        return None


def unknown_component(kind: str, name: str, setting: Setting | None) -> UserError:
    """The error for a name that no component of the kind has."""
    names = registry.names(kind)
    elsewhere = [registry.KINDS[other] for other in registry.kinds_of(name)]
    also = f" ({name} is another kind: {', '.join(elsewhere)})" if elsewhere else ""
    near = did_you_mean(name, names)
    if kind == "tasks" and elsewhere[:1] and elsewhere[0] in _PARTS_OF_MODEL:
        near = f"; did you mean {_dashes(setting)}model.{elsewhere[0]} {name}?"
    return UserError(
        lines(
            f"no {registry.KINDS[kind]} named {name}{also}{near}",
            given=setting.text if setting else None,
            available=listing(names),
        )
    )


def _unknown_argument(owner: str, name: str, arguments: Mapping[str, Argument], setting: Setting | None) -> UserError:
    known = [argument for argument in spelled(arguments) if argument not in LINKED]
    # an argument of a dataclass is often typed without it: batch_size for loader.batch_size
    ends = {argument.rpartition(".")[2]: argument for argument in reversed(known)}
    near = difflib.get_close_matches(name.rpartition(".")[2].lower(), ends, n=1, cutoff=0.5)
    meant = ends[near[0]] if near else None
    # --model.lr, --trainer.gpus: an argument of another part
    if setting is not None and len(setting.key) == 2 and name not in ends and name in USUAL:
        meant = f"{_dashes(setting)}{USUAL[name]}"
    return UserError(
        lines(
            f"{owner} has no argument {name}" + (f"; did you mean {meant}?" if meant else ""),
            given=setting.text if setting else None,
            arguments=listing(known, 12),
        )
    )


def _unknown_key(name: str, setting: Setting | None, known: list[str], owner: str | None) -> UserError:
    """The error for an unknown top-level key; `owner` is a part with such an argument, such as "data.loader"."""
    key = list(setting.key) if setting else [name]
    dashes, word = _dashes(setting), _word(name)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if dashes:
        near = difflib.get_close_matches(name, flags(), n=1, cutoff=0.8) or near
    meant = [USUAL[word]] if word in USUAL else [owner, word] if owner else near[:1]
    meant += key[1:] if meant else []
    return UserError(
        lines(
            f"no argument {dashes}{'.'.join(key)}" + (f"; did you mean {dashes}{'.'.join(meant)}?" if meant else ""),
            given=setting.text if setting else None,
            expected=f"one of {listing(known)}" + ("" if meant else ", or a part's, such as --model.core.ARGUMENT"),
            anchors=_ANCHORS if _holds_anchor(key[0], setting) else None,
        )
    )


def _dashes(setting: Setting | None) -> str:
    return "--" if setting is not None and setting.on_command_line else ""


def _word(name: str) -> str:
    """A key as it is spelled here, where other tools have dashes in it."""
    return name.replace("-", "_")


def _holds_anchor(name: str, setting: Setting | None) -> bool:
    """Whether the key of a file is there to hold an anchor, `name: &anchor`."""
    if setting is None or setting.file is None:
        return False
    try:
        text = read_text(setting.file, CONFIG_LIMIT)
    except FileError:
        return False
    block = re.search(rf"^{re.escape(name)}:(.*\n?)((?:[ \t#-].*\n?|\n)*)", text, re.MULTILINE)
    return block is not None and re.search(r"[:\-\s]&\w", f" {block[1]}{block[2]}") is not None


def _stands_alone(setting: Setting) -> UserError:
    """The error for a word of the command line without a key."""
    expected = "an argument with a key, such as --model.core.num_slots 3"
    if setting.text.endswith((".yaml", ".yml")):
        expected = f"--config {setting.text}"
    elif re.match(r"[\w.]+=", setting.text):
        expected = f"--{setting.text}"
    return UserError(lines(f"{setting.text} stands alone", expected=expected))
