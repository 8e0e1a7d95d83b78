"""Every use of a private name of jsonargparse, nine in all; no other module uses one.

The replacements below stop jsonargparse from doing what a third party's configuration could abuse: importing what is
below an allowed path, functions included; building a class wherever a parameter takes any value; reading files of any
kind and size; following YAML aliases without end. The others correct what it makes of a part's arguments, two of them a
schedule's, and by which path it writes a task or a data set. `tests/config/test_jsonargparse_compat.py` holds a canary
for each name, which says what breaks when a new version changes it; `pyproject.toml` bounds the version.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pkgutil
import sys
import typing
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import yaml
from jsonargparse import (
    ActionConfigFile,
    ArgumentParser,
    Namespace,
    Path,
    _common,
    _signatures,
    _typehints,
    _util,
    get_loader,
    set_loader,
    set_parsing_settings,
)

from slotbench import registry
from slotbench.config.class_changes import is_explicit
from slotbench.config.schedule_arguments import supplied_arguments, with_open_lengths
from slotbench.config.settings import check_value_text
from slotbench.files import read_text
from slotbench.sources import Argument
from slotbench.yaml_files import CONFIG_LIMIT

__all__ = [
    "Refusal",
    "guard_parser",
    "import_path",
    "is_importable",
    "last_refusal",
    "parser_unchanged",
    "signature_of",
]


class Refusal(ImportError, ValueError):  # noqa: N818  a verdict, on its way to becoming a UserError
    """An import path that the parser is not allowed to follow.

    Attributes:
        named: the import path that was refused.
        reason: why, as the end of a sentence that begins with it.
        can_be_allowed: whether the user can type that it may be imported.
    """

    def __init__(self, named: str, reason: str, can_be_allowed: bool) -> None:
        super().__init__(f"{named} {reason}")
        self.named, self.reason, self.can_be_allowed = named, reason, can_be_allowed


# of this process: what may be imported, and what was refused first
_allowed: set[str] = set()
_below: tuple[str, ...] = ()
_refused: Refusal | None = None
_YAML_ERRORS = (yaml.YAMLError,)
_in_file: ContextVar[bool] = ContextVar("_in_file", default=False)

_load_yaml = get_loader("yaml")
_read_text = Path.read_text
_partial_class = _typehints.adapt_partial_callable_class
_signature_parameters = _signatures.get_signature_parameters
_discard = _typehints.discard_init_args_on_class_path_change
_apply_config = ActionConfigFile.apply_config
_remembered_path = _util.ResolvedImportPaths.get


def guard_parser(allowed: set[str], below: Iterable[str]) -> None:
    """Lets the parser import these classes and no others, until it is called again.

    Args:
        allowed: import paths of classes, those that are given and those where the classes are defined.
        below: import paths below which any class may be named.
    """
    global _allowed, _below, _refused
    _allowed, _below, _refused = allowed, tuple(below), None
    set_parsing_settings(
        import_path_denylist=["*"],
        # a configuration is a file on this machine, never an address
        config_read_mode_fsspec_enabled=False,
        instantiate_subclass_spec_in_any=False,
    )
    for owner, name, _, replacement in EXCHANGED:
        setattr(owner, name, replacement)
    set_loader("yaml", _load_bounded_yaml, _YAML_ERRORS)


@contextmanager
def parser_unchanged() -> Iterator[None]:
    """Restores jsonargparse at the end, for other parsers in the same process."""
    before = [(owner, name, inspect.getattr_static(owner, name)) for owner, name, *_ in EXCHANGED]
    settings, loader = copy.deepcopy(_common.parsing_settings), get_loader("yaml")
    try:
        yield
    finally:
        for owner, name, held in before:
            setattr(owner, name, held)
        set_loader("yaml", loader, _YAML_ERRORS)
        _common.parsing_settings.clear()
        _common.parsing_settings.update(settings)


def last_refusal() -> Refusal | None:
    """The first import refused since `guard_parser` was called; None if there is none."""
    return _refused


def is_importable(path: str) -> bool:
    """Whether a configuration may name this path, as `guard_parser` was told."""
    return path in _allowed or any(path == prefix or path.startswith(f"{prefix}.") for prefix in _below)


def import_path(component: type) -> str:
    """The path by which the parser writes a class: the shortest at which it can be found, of a built-in task or data
    set where it is defined."""
    if (defined := _defining_path(component)) is not None:
        return defined
    parts = component.__module__.split(".")
    for count in range(1, len(parts) + 1):
        module = ".".join(parts[:count])
        if getattr(sys.modules.get(module), component.__qualname__, None) is component:
            return f"{module}.{component.__qualname__}"
    return f"{component.__module__}.{component.__qualname__}"


def _defining_path(component: Any) -> str | None:
    """The path of a built-in task or data set: `slotbench.tasks` and `slotbench.data` give its name to Python alone."""
    module = getattr(component, "__module__", None) or ""
    if not (inspect.isclass(component) and module.startswith(("slotbench.tasks.", "slotbench.data."))):
        return None
    name = component.__qualname__
    return f"{module}.{name}" if f"{module}:{name}" in registry.targets() else None


def signature_of(cls: type, method: str | None = None) -> dict[str, Argument]:
    """The arguments that the parser takes for a class, or for a method of it, in order: type, default, fields.

    It follows `**kwargs` to where they go.
    """
    found = {}
    for parameter in _arguments_of(cls, method, False):
        required = parameter.default is inspect.Parameter.empty
        hint = parameter.annotation
        fields = {}
        if inspect.isclass(hint) and dataclasses.is_dataclass(hint):
            hints, given = typing.get_type_hints(hint), None if required else parameter.default
            fields = {
                item.name: Argument(hints[item.name], getattr(given, item.name, item.default), required)
                for item in dataclasses.fields(hint)
            }
        found[parameter.name] = Argument(hint, None if required else parameter.default, required, fields=fields)
    return found


def _refuse(path: str, reason: str, can_be_allowed: bool = False) -> Refusal:
    global _refused
    refusal = Refusal(path, reason, can_be_allowed)
    _refused = _refused or refusal
    return refusal


def _check_import_path(path: str) -> None:
    if path in _allowed:
        return
    if not is_importable(path):
        raise _refuse(path, "may not be named in a configuration", can_be_allowed=True)
    try:
        found = pkgutil.resolve_name(path)
    except (AttributeError, ValueError) as error:
        raise _refuse(path, "is not there") from error
    if not inspect.isclass(found):
        raise _refuse(path, "is not a class, and a configuration may name nothing else")


def _take_no_class(
    val: Any, typehint: Any, serialize: bool, instantiate_classes: bool, sub_add_kwargs: Any, logger: Any = None
) -> Any:
    """Refuses classes in a value of no particular type, where jsonargparse builds them."""
    if isinstance(val, dict | Namespace) and "class_path" in val:
        raise _refuse(str(val["class_path"]), "is named where no class is asked for")
    for item in val.values() if isinstance(val, dict) else val if isinstance(val, list) else ():
        _take_no_class(item, typehint, serialize, instantiate_classes, sub_add_kwargs, logger)
    return val


def _load_bounded_yaml(stream: str) -> Any:
    check_value_text(stream, "a value of the configuration")
    return _load_yaml(stream)


def _read_configuration(self: Path) -> str:
    return _read_text(self) if str(self) == "-" else read_text(self.absolute, CONFIG_LIMIT)


def _apply_file(parser: ArgumentParser, cfg: Namespace, dest: str, value: Any) -> None:
    token = _in_file.set(True)
    try:
        _apply_config(parser, cfg, dest, value)
    finally:
        _in_file.reset(token)


def _discard_defaults(parser_or_action: Any, prev_val: Any, value: Any) -> None:
    """Keeps the arguments that the user set for a part that changes its class, and none of the old class's defaults.

    jsonargparse carries every argument over that the new class takes too, defaults included: a task whose default
    optimiser is AdamW would pass AdamW's decay of 0.01 to an Adam, which decays by another rule and learns nothing.
    Where a file names the new class, or the command line names it with arguments of its own, it starts clean.
    """
    # without arguments there is nothing to drop, and the class may be one that no configuration may import
    given = prev_val.get("init_args") if isinstance(prev_val, Namespace) else None
    if given and prev_val["class_path"] != value["class_path"]:
        defaults = _defaults(pkgutil.resolve_name(prev_val["class_path"]))
        name = prev_val["class_path"].rpartition(".")[2]
        starts_clean = _in_file.get() or isinstance(value.get("init_args"), Namespace | dict)
        for key in list(_arguments(given)):
            is_default = key in defaults and defaults[key] == given[key]
            if starts_clean or (is_default and not is_explicit(name, key)):
                given.pop(key)
    _discard(parser_or_action, prev_val, value)


@cache
def _defaults(cls: type) -> Namespace:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(cls, "it", fail_untyped=False, sub_configs=True)
    return parser.get_defaults().get("it", Namespace())


def _arguments(given: Namespace) -> Iterator[str]:
    """The arguments of a part, a dataclass's by its fields."""
    for name, value in given.items(branches=True, nested=False):
        is_dataclass = isinstance(value, Namespace) and "class_path" not in value
        yield from (f"{name}.{field}" for field in vars(value)) if is_dataclass else (name,)


def _new_nested_argument(cls: Any, key: str, val: Any) -> tuple[Any, ...]:
    """Lets `--model.core.ARGUMENT null` mean null.

    jsonargparse passes the arguments of a part within a part on as text, and writes null as Python does, "None", which
    it then reads as a word.
    """
    made: tuple[Any, ...] = tuple.__new__(cls, (key, "null" if val is None else val))
    return made


def _supplied_by_the_task(callable_type: Any, subclass_spec: Any) -> Any:
    """Leaves every argument of a schedule but the optimiser to the user, whatever the factory's type is."""
    spec, supplied = _partial_class(callable_type, subclass_spec)
    if supplied:
        supplied = supplied_arguments(pkgutil.resolve_name(spec["class_path"]), supplied)
    return spec, supplied


def _arguments_of(function_or_class: Any, method_or_property: str | None = None, logger: Any = True) -> Any:
    """Makes the length of a schedule optional: the task then fills in that of the training."""
    parameters = _signature_parameters(function_or_class, method_or_property, logger)
    return with_open_lengths(function_or_class, parameters)


def _path_of(self: Any, instance: Any) -> str | None:
    return _defining_path(instance) or _remembered_path(self, instance)


EXCHANGED: tuple[tuple[Any, str, Any, Any], ...] = tuple(
    (owner, name, inspect.getattr_static(owner, name), replacement)
    for owner, name, replacement in (
        (_util, "check_import_path", _check_import_path),
        (_typehints, "check_import_path", _check_import_path),
        (_typehints, "adapt_classes_any", _take_no_class),
        (Path, "read_text", _read_configuration),
        (_typehints, "discard_init_args_on_class_path_change", _discard_defaults),
        (ActionConfigFile, "apply_config", staticmethod(_apply_file)),
        (_util.NestedArg, "__new__", _new_nested_argument),
        (_util.ResolvedImportPaths, "get", _path_of),
        (_typehints, "adapt_partial_callable_class", _supplied_by_the_task),
        (_signatures, "get_signature_parameters", _arguments_of),
    )
)
"""Replacements in jsonargparse: owner, name, original, replacement."""
