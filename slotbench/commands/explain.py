"""Explains why the parser refused: which setting, where it stands, what would have been right.

The parser's own message wraps the reason in one layer per level of nesting. So when it has refused, the settings are
walked again, beside the classes that they configure, until the first one that is wrong is found.
"""

from __future__ import annotations

import argparse
import difflib
import inspect
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser, Namespace
from lightning.pytorch import Trainer

from slotbench import registry
from slotbench.commands.failures import UserError, did_you_mean, lines, listing
from slotbench.commands.hints import Wanted, describe_type, wanted_class
from slotbench.commands.policy import is_allowed
from slotbench.commands.settings import Setting
from slotbench.data.base import SlotDataModule
from slotbench.interfaces import Aggregation, Decoder, Encoder, TemporalCore
from slotbench.tasks.base import SlotTask

__all__ = ["explain"]

_INTERFACES = {
    "encoders": Encoder,
    "cores": TemporalCore,
    "decoders": Decoder,
    "aggregations": Aggregation,
    "tasks": SlotTask,
    "datasets": SlotDataModule,
}
# Filled in by the command line from the data.
_LINKED = {"data_spec"}


@dataclass
class _Node:
    """The settings of one key: its own value, and those of the keys below it."""

    setting: Setting | None = None
    children: dict[str, _Node] = field(default_factory=dict)
    outdated: bool = False  # given for a class that a later setting replaced: the parser drops what does not fit


@dataclass(frozen=True)
class _Parameter:
    hint: Any
    default: Any
    required: bool


def explain(settings: Iterable[Setting], options: Iterable[str], allowed: list[str]) -> None:
    """Raises the explanation of the first setting that is wrong; returns if all of them look right.

    Args:
        settings: what the user has given, in order.
        options: top-level keys besides model, data and trainer, such as "ckpt_path".
        allowed: import paths below which classes may be named.

    Raises:
        UserError: says what is wrong, where, and what would be right.
    """
    settings = list(settings)
    for setting in settings:
        if not setting.key:
            _explain_loose(setting)
        if setting.value is None and setting.on_command_line:
            raise UserError(lines(f"{setting.text} needs a value", example=f"{setting.text} VALUE"))
    root = _tree(settings)
    for name, node in root.children.items():
        if name not in ("model", "data", "trainer", *options):
            raise _unknown_key(name, node, root, ["model", "data", "trainer", *options])
    walk = _Walk(allowed)
    for name, base in (("model", SlotTask), ("data", SlotDataModule)):
        if name not in root.children or _given(root.children[name]) is None:
            what, kind = ("a task", "tasks") if name == "model" else ("a data set", "datasets")
            raise UserError(
                lines(
                    f"the configuration names no {what.split(' ', 1)[1]}",
                    expected=f"--config FILE, or --{name} NAME",
                    available=listing(registry.names(kind)),
                )
            )
        walk.component(root.children[name], Wanted(base, 0), None, name)
    if "trainer" in root.children:
        walk.arguments(root.children["trainer"], Trainer, 0, "trainer", "the trainer")


class _Walk:
    """Checks settings beside the classes that they configure, depth first."""

    def __init__(self, allowed: list[str]) -> None:
        self.allowed = allowed

    def component(self, node: _Node, wanted: Wanted, default: Any, key: str) -> None:
        given = _given(node)
        if given is None:
            chosen = default if inspect.isclass(default) else None
            if chosen is None and node.children:
                setting = _first_setting(node)
                raise UserError(
                    lines(
                        f"{key} has arguments but no class",
                        given=setting.text if setting else None,
                        expected=f"--{key} NAME before them",
                        available=self.available(wanted.base),
                    )
                )
        else:
            chosen = self.resolve(str(given), node, wanted.base, key)
        if chosen is not None:
            self.arguments(node, chosen, wanted.supplied, key, chosen.__name__)

    def resolve(self, name: str, node: _Node, base: type, key: str) -> type:
        kind = _kind(base)
        noun = registry.KINDS[kind] if kind else base.__name__
        given = node.setting.text if node.setting else None
        if "." not in name:
            known = {cls.__name__: cls for cls in _subclasses(base)}
            names = registry.names(kind) if kind else sorted(name for name in known if not name.startswith("_"))
            if kind and name in names:
                return registry.load(kind, name)
            if name in known and not inspect.isabstract(known[name]):
                return known[name]
            elsewhere = [registry.KINDS[other] for other in registry.kinds_of(name)]
            also = f" ({name} is the name of: {', '.join(elsewhere)})" if elsewhere else ""
            raise UserError(
                lines(
                    f"no {noun} named {name}{did_you_mean(name, names)}{also}",
                    given=given,
                    available=listing(names),
                )
            )
        if not is_allowed(name, self.allowed):
            raise UserError(
                lines(
                    f"{name} may not be named in a configuration: it is neither registered nor part of slotbench",
                    given=given,
                    allowed=self.available(base) if kind else f"classes below {listing(self.allowed[:4])}",
                    **{"to allow it": f"--allow-import {name.rpartition('.')[0]}  (only if you trust what it runs)"},
                )
            )
        try:
            module_name, _, attribute = name.rpartition(".")
            found = getattr(__import__(module_name, fromlist=[attribute]), attribute)
        except Exception as error:
            raise UserError(
                lines(f"{name} cannot be imported: {type(error).__name__}: {error}", given=given)
            ) from error
        if not (inspect.isclass(found) and issubclass(found, base)):
            raise UserError(
                lines(
                    f"{name} is not a {noun}: {key} takes a subclass of {base.__module__}.{base.__name__}",
                    given=given,
                    available=self.available(base),
                )
            )
        return found

    def arguments(self, node: _Node, cls: type, supplied: int, key: str, owner: str) -> None:
        parameters = _parameters(cls, supplied)
        for name, child in node.children.items():
            setting = child.setting or _first_setting(child)
            given = setting.text if setting else None
            if name in _LINKED & _signature_names(cls):
                raise UserError(
                    lines(f"{key}.{name} is not for the configuration: it comes from the data", given=given)
                )
            if name.endswith("+"):
                continue  # the parser's way of appending to a list
            if name not in parameters:
                if child.outdated:
                    continue
                known = [parameter for parameter in parameters if parameter not in _LINKED]
                raise UserError(
                    lines(
                        f"{owner} has no argument {name}{did_you_mean(name, known, 0.5)}",
                        given=given,
                        arguments=listing(known, 40),
                    )
                )
            self.value(child, parameters[name], f"{key}.{name}", owner)
        for name, parameter in parameters.items():
            if parameter.required and name not in node.children and name not in _LINKED:
                wanted = wanted_class(parameter.hint)
                raise UserError(
                    lines(
                        f"{owner} needs {name}",
                        expected=f"--{key}.{name} {'NAME' if wanted else describe_type(parameter.hint)}",
                        available=self.available(wanted.base) if wanted else None,
                    )
                )

    def value(self, node: _Node, parameter: _Parameter, key: str, owner: str) -> None:
        wanted = wanted_class(parameter.hint)
        if wanted is not None and wanted.many:
            for index, child in node.children.items():
                self.component(child, wanted, None, f"{key}.{index}")
            if node.children or node.setting is None or not isinstance(node.setting.value, str):
                return
        if wanted is not None:
            # text that is no class's name is for the parser to judge where the argument may be a plain value as well
            if node.children or wanted.only:
                self.component(node, wanted, parameter.default, key)
            return
        setting = node.setting
        if setting is None or node.outdated or parameter.hint in (inspect.Parameter.empty, None, Any):
            return
        if not _fits(setting, parameter.hint):
            default = "" if parameter.required else f"  (default: {_plain(parameter.default)})"
            raise UserError(
                lines(
                    f"{key.rpartition('.')[2]} of {owner} cannot be {_plain(setting.value)}",
                    given=setting.text,
                    expected=f"{describe_type(parameter.hint)}{default}",
                )
            )

    def available(self, base: type) -> str:
        kind = _kind(base)
        if kind:
            return listing(registry.names(kind))
        return listing(sorted({cls.__name__ for cls in _subclasses(base) if is_allowed(cls.__module__, self.allowed)}))


def _tree(settings: list[Setting]) -> _Node:
    root = _Node()
    for setting in settings:
        node = root
        for part in setting.key:
            node = node.children.setdefault(part, _Node())
        if node is root:
            continue
        if node.setting is not None and node.setting.value != setting.value:
            for child in node.children.values():
                _mark_outdated(child)
        node.setting, node.outdated = setting, False
    return root


def _mark_outdated(node: _Node) -> None:
    node.outdated = True
    for child in node.children.values():
        _mark_outdated(child)


def _given(node: _Node) -> Any:
    return None if node.setting is None else node.setting.value


def _first_setting(node: _Node) -> Setting | None:
    if node.setting is not None:
        return node.setting
    return next(filter(None, map(_first_setting, node.children.values())), None)


def _kind(base: type) -> str | None:
    return next((kind for kind, interface in _INTERFACES.items() if issubclass(base, interface)), None)


def _subclasses(base: type) -> list[type]:
    found: list[type] = [base]
    for cls in found:
        for subclass in type.__subclasses__(cls):
            if subclass not in found:
                found.append(subclass)
    return found


def _signature_names(cls: type) -> set[str]:
    return set(inspect.signature(cls).parameters)


def _parameters(cls: type, supplied: int) -> dict[str, _Parameter]:
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
            found[name] = _Parameter(getattr(action, "_typehint", action.type), default, required)
    return found


def _fits(setting: Setting, hint: Any) -> bool:
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


def _plain(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Namespace):
        return str(value.get("class_path", "")).rpartition(".")[2]
    return value.__name__ if inspect.isclass(value) else str(value)


def _unknown_key(name: str, node: _Node, root: _Node, known: list[str]) -> UserError:
    setting = _first_setting(node)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    prefix = "--" if setting and setting.on_command_line else ""
    below = ".".join(setting.key[1:]) if setting else ""
    meant = f"; did you mean {prefix}{near[0]}{'.' + below if below else ''}?" if near else ""
    parts = [part for top in ("model", "data") if top in root.children for part in (f"{top}.{name}",)]
    where = f"{prefix}{parts[0]}" if parts and not near else None
    return UserError(
        lines(
            f"no argument {prefix}{'.'.join(setting.key) if setting else name}{meant}",
            given=setting.text if setting else None,
            expected=f"one of {listing(known)}"
            + (f"; arguments of a part have its key, like {where}" if where else ""),
        )
    )


def _explain_loose(setting: Setting) -> None:
    if setting.text.endswith((".yaml", ".yml")):
        raise UserError(lines(f"{setting.text} stands alone", expected=f"--config {setting.text}"))
    raise UserError(
        lines(f"{setting.text} stands alone", expected="an argument with a key, such as --model.core.num_slots 3")
    )


def explain_construction(error: BaseException, config: Namespace) -> str:
    """What a component, or the trainer, said when it refused a value, with the key that it is configured by."""
    while error.__cause__ is not None or (error.__context__ is not None and not error.__suppress_context__):
        error = error.__cause__ or error.__context__ or error
    paths = {
        str(value): key.removesuffix(".class_path") for key, value in config.items() if key.endswith(".class_path")
    }
    trace = error.__traceback__
    owner, key = "", ""
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code.co_name == "__init__" and (built := frame.f_locals.get("self")) is not None:
            for cls in type(built).__mro__:
                if (path := f"{cls.__module__}.{cls.__qualname__}") in paths:
                    owner, key = cls.__name__, paths[path].replace("init_args.", "")
                    break
            if isinstance(built, Trainer):
                owner, key = "the trainer", "trainer"
        trace = trace.tb_next
    text = str(error).strip()
    return lines(f"{owner} refuses its arguments: {text}" if owner else text, key=key)
