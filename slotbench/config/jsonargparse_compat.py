"""Every use of a private name of jsonargparse, and none anywhere else.

What is exchanged here keeps jsonargparse from doing what a configuration of somebody else could abuse: it would import
what is below an allowed path as well, functions included; build a class wherever a parameter takes any value; read
files of any kind and size; and follow YAML aliases without end. Four exchanges correct what it makes of a part's
arguments, two of them a schedule's. It has no public place to say any of that.
`tests/config/test_jsonargparse_compat.py` holds a canary for each name, which says what breaks when a new version
changes it; `pyproject.toml` bounds the version.
"""

from __future__ import annotations

import argparse
import copy
import inspect
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from jsonargparse import (
    ActionConfigFile,
    ArgumentParser,
    Namespace,
    _common,
    _loaders_dumpers,
    _paths,
    _signatures,
    _typehints,
    _util,
    set_parsing_settings,
)

from slotbench.config.class_changes import was_said
from slotbench.config.schedule_arguments import supplied_arguments, with_open_lengths
from slotbench.config.settings import check_value_text
from slotbench.files import read_text
from slotbench.yaml_files import CONFIG_LIMIT

__all__ = ["Refusal", "guard_parser", "import_path", "last_refusal", "parser_unchanged", "typed_arguments"]


class Refusal(ImportError, ValueError):  # noqa: N818  a verdict, on its way to becoming a UserError
    """A value of a configuration that is not followed.

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
_in_file: ContextVar[bool] = ContextVar("_in_file", default=False)

_import_object = _util.import_object
_load_yaml = _loaders_dumpers.yaml_load
_read_text = _paths.Path.read_text
_partial_class = _typehints.adapt_partial_callable_class
_signature_parameters = _signatures.get_signature_parameters
_discard = _typehints.discard_init_args_on_class_path_change
_apply_config = ActionConfigFile.apply_config


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
    _loaders_dumpers.loaders["yaml"] = _load_bounded_yaml


@contextmanager
def parser_unchanged() -> Iterator[None]:
    """Puts jsonargparse back, at the end, to what it was: other parsers in the process are none of our business."""
    before = [(owner, name, inspect.getattr_static(owner, name)) for owner, name, *_ in EXCHANGED]
    settings, loader = copy.deepcopy(_common.parsing_settings), _loaders_dumpers.loaders["yaml"]
    try:
        yield
    finally:
        for owner, name, held in before:
            setattr(owner, name, held)
        _loaders_dumpers.loaders["yaml"] = loader
        _common.parsing_settings.clear()
        _common.parsing_settings.update(settings)


def last_refusal() -> Refusal | None:
    """What the parser was kept from since `guard_parser` was called; None if nothing was."""
    return _refused


def import_path(component: type) -> str:
    """The path by which the parser writes a class."""
    return str(_util.get_import_path(component))


def typed_arguments(parser: ArgumentParser) -> dict[str, tuple[Any, Any]]:
    """The arguments of a parser by their keys, without those that print help: type (None if it has none), default."""
    return {
        action.dest: (getattr(action, "_typehint", action.type), action.default)
        for action in parser._actions
        if not isinstance(action, argparse._HelpAction) and "help" not in action.dest
    }


def _refuse(path: str, reason: str, can_be_allowed: bool = False) -> Refusal:
    global _refused
    refusal = Refusal(path, reason, can_be_allowed)
    _refused = _refused or refusal
    return refusal


def _check_import_path(path: str) -> None:
    if path not in _allowed and not any(path == prefix or path.startswith(f"{prefix}.") for prefix in _below):
        raise _refuse(path, "may not be named in a configuration", can_be_allowed=True)


def _import_class(name: str, check_path: bool = True) -> Any:
    found = _import_object(name, check_path)
    if check_path and not inspect.isclass(found):
        raise _refuse(name, "is not a class, and a configuration may name nothing else")
    return found


def _take_no_class(
    val: Any, typehint: Any, serialize: bool, instantiate_classes: bool, sub_add_kwargs: Any, logger: Any = None
) -> Any:
    """In the place of what builds the classes that are named in a value of no particular type."""
    if _typehints.is_subclass_spec(val):
        raise _refuse(str(val["class_path"]), "is named where no class is asked for")
    for item in val.values() if isinstance(val, dict) else val if isinstance(val, list) else ():
        _take_no_class(item, typehint, serialize, instantiate_classes, sub_add_kwargs, logger)
    return val


def _load_bounded_yaml(stream: str) -> Any:
    check_value_text(stream, "a value of the configuration")
    return _load_yaml(stream)


def _read_configuration(self: _paths.Path) -> str:
    return _read_text(self) if self._std_io else read_text(self.absolute, CONFIG_LIMIT)


def _apply_file(parser: ArgumentParser, cfg: Namespace, dest: str, value: Any) -> None:
    token = _in_file.set(True)
    try:
        _apply_config(parser, cfg, dest, value)
    finally:
        _in_file.reset(token)


def _discard_unsaid(parser_or_action: Any, prev_val: Any, value: Any) -> None:
    """Lets an exchanged part keep the arguments that somebody gave, and none that were the old class's defaults.

    jsonargparse carries every argument over that the new class takes too, defaults included: a task whose default
    optimiser is AdamW would hand AdamW's decay of 0.01 to an Adam, which decays by another rule and learns nothing.
    Where the new class is named in a file, or with arguments of its own, what was said of the old one goes as well.
    """
    # without arguments there is nothing to drop, and the class may be one that no configuration may import
    given = prev_val.get("init_args") if isinstance(prev_val, Namespace) else None
    if given and prev_val["class_path"] != value["class_path"]:
        added = getattr(parser_or_action, "sub_add_kwargs", {})
        defaults = _typehints.ActionTypeHint.get_class_parser(prev_val["class_path"], added).get_defaults()
        name = prev_val["class_path"].rpartition(".")[2]
        starts_clean = _in_file.get() or isinstance(value.get("init_args"), Namespace | dict)
        for key in list(_arguments(given)):
            is_default = key in defaults and defaults[key] == given[key]
            if starts_clean or (is_default and not was_said(name, key)):
                given.pop(key)
    _discard(parser_or_action, prev_val, value)


def _arguments(given: Namespace) -> Iterator[str]:
    """The arguments of a part, a dataclass's by its fields."""
    for name, value in given.items(branches=True, nested=False):
        is_dataclass = isinstance(value, Namespace) and "class_path" not in value
        yield from (f"{name}.{field}" for field in vars(value)) if is_dataclass else (name,)


def _new_nested_argument(cls: Any, key: str, val: Any) -> tuple[Any, ...]:
    """Lets `--model.core.ARGUMENT null` mean null.

    jsonargparse hands the arguments of a part within a part on as text, and writes null as Python does, "None", which
    it then reads as a word.
    """
    made: tuple[Any, ...] = tuple.__new__(cls, (key, "null" if val is None else val))
    return made


def _supplied_by_the_task(callable_type: Any, subclass_spec: Any) -> Any:
    """Leaves every argument of a schedule but the optimiser to the user, whatever the factory's type says."""
    spec, supplied = _partial_class(callable_type, subclass_spec)
    if supplied:
        supplied = supplied_arguments(_import_object(spec["class_path"]), supplied)
    return spec, supplied


def _arguments_of(function_or_class: Any, method_or_property: str | None = None, logger: Any = True) -> Any:
    """Lets the length of a schedule be left out: the task then fills in that of the training."""
    parameters = _signature_parameters(function_or_class, method_or_property, logger)
    return with_open_lengths(function_or_class, parameters)


EXCHANGED: tuple[tuple[Any, str, Any, Any], ...] = tuple(
    (owner, name, inspect.getattr_static(owner, name), replacement)
    for owner, name, replacement in (
        (_util, "check_import_path", _check_import_path),
        (_typehints, "check_import_path", _check_import_path),
        (_util, "import_object", _import_class),
        (_typehints, "import_object", _import_class),
        (_typehints, "adapt_classes_any", _take_no_class),
        (_paths.Path, "read_text", _read_configuration),
        (_typehints, "discard_init_args_on_class_path_change", _discard_unsaid),
        (ActionConfigFile, "apply_config", staticmethod(_apply_file)),
        (_util.NestedArg, "__new__", _new_nested_argument),
        (_typehints, "adapt_partial_callable_class", _supplied_by_the_task),
        (_signatures, "get_signature_parameters", _arguments_of),
    )
)
"""What is exchanged in jsonargparse: where, under which name, what was there, and what takes its place."""
