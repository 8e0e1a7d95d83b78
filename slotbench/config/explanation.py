"""Explains why the parser, or a component, refused: which setting, where it stands, what would have been right.

The parser's own message wraps the reason in one layer per level of nesting. So when it has refused, the settings are
walked again, beside the classes that they configure, until the first one that is wrong is found.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any

from jsonargparse import Namespace
from lightning.pytorch import Callback, Trainer
from torch.optim.lr_scheduler import LRScheduler

from slotbench import registry
from slotbench.config.arguments import (
    Parameter,
    Wanted,
    describe_type,
    fits,
    parameters_of,
    plain,
    spelled,
    wanted_class,
)
from slotbench.config.jsonargparse_compat import import_path
from slotbench.config.library_refusals import named_setting
from slotbench.config.policy import is_allowed
from slotbench.config.refusals import (
    LINKED,
    PARTS,
    owner_of,
    stands_alone,
    unknown_argument,
    unknown_component,
    unknown_key,
)
from slotbench.config.settings import Node, Setting, tree_of
from slotbench.data.base import SlotDataModule
from slotbench.errors import UserError, did_you_mean, lines, listing
from slotbench.tasks.schedule_calls import UNSUITABLE
from slotbench.tasks.task import Task

__all__ = ["explain", "explain_construction", "explain_monitor"]

# what EarlyStopping and ModelCheckpoint say of a metric that nobody logs
_MONITORS = (
    re.compile(r"conditioned on metric `(?P<name>.*?)` which is not available.*?following: (?P<known>`.*`)", re.DOTALL),
    re.compile(r"monitor='(?P<name>.*?)'.*?could not find the monitored key.*?metrics: (?P<known>\[.*?\])", re.DOTALL),
)


def explain(settings: Iterable[Setting], options: Mapping[str, Any], allowed: list[str]) -> None:
    """Raises the explanation of the first setting that is wrong; returns if all of them look right.

    Args:
        settings: what the user has given, in order.
        options: top-level keys besides model, data and trainer, such as "ckpt_path", with their types.
        allowed: import paths below which classes may be named.

    Raises:
        UserError: says what is wrong, where, and what would be right.
    """
    settings = list(settings)
    for setting in settings:
        if not setting.key:
            raise stands_alone(setting)
        if setting.value is None and setting.on_command_line:
            raise UserError(lines(f"{setting.text} needs a value", example=f"{setting.text} VALUE"))
    root = tree_of(settings)
    for name, node in root.children.items():
        if name in options:
            _check_value(node, Parameter(options[name], None, True), name, "")
        elif name not in PARTS:
            of_parts = {part: _arguments_of(root.children.get(part), part) for part in ("data", "trainer", "model")}
            raise unknown_key(name, node.first_setting(), [*PARTS, *options], owner_of(name, of_parts))
    walk = _Walk(allowed)
    for name, base, kind in (("model", Task, "tasks"), ("data", SlotDataModule, "datasets")):
        if name not in root.children or root.children[name].value is None:
            raise UserError(
                lines(
                    f"the configuration names no {registry.KINDS[kind]}",
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

    def component(self, node: Node, wanted: Wanted, default: Any, key: str) -> None:
        given = node.value
        if given is None:
            chosen = default if inspect.isclass(default) else None
            if chosen is None and node.children:
                setting = node.first_setting()
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

    def resolve(self, name: str, node: Node, base: type, key: str) -> type:
        kind = registry.kind_of_class(base)
        noun = registry.KINDS[kind] if kind else base.__name__
        given = node.setting.text if node.setting else None
        if issubclass(LRScheduler, base) and (reason := UNSUITABLE.get(name.rpartition(".")[2])) is not None:
            raise UserError(lines(f"{name} {reason}", given=given, available=self.available(LRScheduler)))
        if "." not in name:
            known = {cls.__name__: cls for cls in _subclasses(base)}
            names = registry.names(kind) if kind else sorted(name for name in known if not name.startswith("_"))
            if kind and name in names:
                return registry.load(kind, name)
            if name in known and not inspect.isabstract(known[name]):
                return known[name]
            if kind:
                raise unknown_component(kind, name, node.setting)
            raise UserError(
                lines(
                    f"no {noun} named {name}{did_you_mean(name, names)}",
                    given=given,
                    available=self.available(base),
                )
            )
        if not is_allowed(name, self.allowed):
            raise UserError(
                lines(
                    f"{name} may not be named here: it is neither registered nor allowed",
                    given=given,
                    allowed=self.available(base),
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
                    f"{name} is not a {noun}: {key} takes a subclass of {import_path(base)}",
                    given=given,
                    available=self.available(base),
                )
            )
        return found

    def arguments(self, node: Node, cls: type, supplied: int, key: str, owner: str) -> None:
        parameters = parameters_of(cls, supplied)
        for name, child in node.children.items():
            setting = child.setting or child.first_setting()
            given = setting.text if setting else None
            if name in LINKED & set(inspect.signature(cls).parameters):
                raise UserError(
                    lines(f"{key}.{name} is not for the configuration: it comes from the data", given=given)
                )
            if name.endswith("+"):
                continue  # the parser's way of appending to a list
            if name not in parameters:
                if child.outdated:
                    continue
                raise unknown_argument(owner, name, spelled(parameters), setting)
            parameter = parameters[name]
            named = str(child.value or "").rpartition(".")[2]
            if not (parameter.fields and child.children) or named not in ("", getattr(parameter.hint, "__name__", "")):
                self.value(child, parameter, f"{key}.{name}", owner)
                continue
            for part, inner in child.children.items():
                if part in parameter.fields:
                    self.value(inner, parameter.fields[part], f"{key}.{name}.{part}", owner)
                elif not inner.outdated:
                    raise unknown_argument(owner, f"{name}.{part}", spelled(parameters), inner.first_setting())
        for name, parameter in parameters.items():
            if parameter.required and name not in node.children and name not in LINKED:
                wanted = wanted_class(parameter.hint)
                raise UserError(
                    lines(
                        f"{owner} needs {name}",
                        expected=f"--{key}.{name} {'NAME' if wanted else describe_type(parameter.hint)}",
                        available=self.available(wanted.base) if wanted else None,
                    )
                )

    def value(self, node: Node, parameter: Parameter, key: str, owner: str) -> None:
        wanted = wanted_class(parameter.hint)
        # one may stand alone where a list is taken
        if wanted is not None and wanted.many and all(index.isdigit() for index in node.children):
            for index, child in node.children.items():
                self.component(child, wanted, None, f"{key}.{index}")
            if node.children or node.setting is None or not isinstance(node.setting.value, str):
                return
        if wanted is not None and (node.children or wanted.only):
            self.component(node, wanted, parameter.default, key)
        else:
            _check_value(node, parameter, key, owner)

    def available(self, base: type) -> str:
        kind = registry.kind_of_class(base)
        if kind:
            return listing(registry.names(kind))
        known = {f"{cls.__module__}.{cls.__qualname__}": cls.__name__ for cls in _subclasses(base)}
        names = {path.rpartition(".")[2] for path in self.allowed}
        return listing(sorted(name for name in known.values() if name in names), 20)


def _check_value(node: Node, parameter: Parameter, key: str, owner: str) -> None:
    setting = node.setting
    if setting is None or node.outdated or parameter.hint in (inspect.Parameter.empty, None, Any):
        return
    if not fits(setting, parameter.hint):
        default = "" if parameter.required else f"  (default: {plain(parameter.default)})"
        name = f"{key.rpartition('.')[2]} of {owner}" if owner else key
        raise UserError(
            lines(
                f"{name} cannot be {plain(setting.value)}",
                given=setting.text,
                expected=f"{describe_type(parameter.hint)}{default}",
            )
        )


def _subclasses(base: type) -> list[type]:
    below: list[type] = base.__subclasses__()
    return [base, *dict.fromkeys(found for subclass in below for found in _subclasses(subclass))]


def _arguments_of(node: Node | None, top: str) -> Iterable[str]:
    if top == "trainer":
        return spelled(parameters_of(Trainer, 0))
    kind = "tasks" if top == "model" else "datasets"
    if node is None or node.value not in registry.names(kind):
        return ()
    return spelled(parameters_of(registry.load(kind, node.value), 0))


def explain_construction(error: BaseException, config: Namespace, settings: Iterable[Setting] = ()) -> str:
    """What a component, or the trainer, said when it refused a value, with the key that it is configured by."""
    # what the parser wraps around it is raised inside the parser
    while _raised_by_parser(error) and (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    paths = {
        str(value): key.removesuffix(".class_path") for key, value in config.items() if key.endswith(".class_path")
    }
    trace = error.__traceback__
    text = " ".join(str(error).split())
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
                if (found := named_setting(text, settings)) is not None:
                    key = f"trainer.{found[0]}"
            if not owner and isinstance(built, Callback):
                owner, key = type(built).__name__, f"trainer.callbacks, {type(built).__name__}"
        trace = trace.tb_next
    return lines(f"{owner} refuses its arguments: {text}" if owner else text, key=key)


def explain_monitor(error: BaseException) -> str | None:
    """A sentence for a callback that monitors a metric which is not logged; None if the error is another one."""
    found = next((match for pattern in _MONITORS if (match := pattern.search(str(error)))), None)
    if found is None:
        return None
    name, known = found["name"], re.findall(r"[`'](.*?)[`']", found["known"])
    scores = sorted((metric for metric in known if "/" in metric), key=lambda metric: not metric.startswith("val/"))
    return lines(
        f"no metric named {name}, which a callback monitors{did_you_mean(name, scores)}",
        key="trainer.callbacks, monitor",
        logged=listing(scores),
    )


def _raised_by_parser(error: BaseException) -> bool:
    module = ""
    trace = error.__traceback__
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        trace = trace.tb_next
    return module.partition(".")[0] == "jsonargparse"
