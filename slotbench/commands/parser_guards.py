"""What jsonargparse is kept from doing with a configuration that may come from somebody else.

It would import what is below an allowed path as well, functions included; build a class wherever a parameter takes any
value; read files of any kind and size; and follow YAML aliases without end. It has no public place to say otherwise, so
its functions are exchanged here, once per process. `tests/cli/test_parser_guards.py` holds that they are the ones that
it calls.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from jsonargparse import _loaders_dumpers, _paths, _typehints, _util, set_parsing_settings

from slotbench.commands.settings import check_value_text
from slotbench.files import CONFIG_LIMIT, read_text

__all__ = ["Refusal", "guard_parser", "last_refusal"]


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


# of this process: what may be imported, and what was refused last
_allowed: set[str] = set()
_below: tuple[str, ...] = ()
_refused: Refusal | None = None

_import_object = _util.import_object
_load_yaml = _loaders_dumpers.yaml_load
_read_text = _paths.Path.read_text


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
    _util.check_import_path = _check_import_path
    _typehints.check_import_path = _check_import_path
    for module in (_util, _typehints):
        module.import_object = _import_class  # type: ignore[attr-defined]
    _typehints.adapt_classes_any = _take_no_class
    _loaders_dumpers.loaders["yaml"] = _load_bounded_yaml
    _paths.Path.read_text = _read_configuration  # type: ignore[method-assign]


def last_refusal() -> Refusal | None:
    """What the parser was kept from since `guard_parser` was called; None if nothing was."""
    return _refused


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
