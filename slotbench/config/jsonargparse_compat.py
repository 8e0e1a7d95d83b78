"""The private names of jsonargparse, four in all, and what takes the place of three of them; no other module uses one.

`tests/config/test_jsonargparse_compat.py` says for each what breaks when a new version changes it; `pyproject.toml`
bounds the version.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from jsonargparse import ArgumentParser, Namespace, _common, _signatures, _typehints, set_parsing_settings
from torch.optim.lr_scheduler import LRScheduler

from slotbench.tasks.optimizer_factories import LENGTHS

__all__ = ["EXCHANGED", "guard_parser", "parser_unchanged", "still_taken"]

_settings: dict[str, Any] = _common.parsing_settings
_discard = _typehints.discard_init_args_on_class_path_change
_partial_class = _typehints.adapt_partial_callable_class
_parameters = _signatures.get_signature_parameters


def guard_parser(allowed: Iterable[str]) -> None:
    """Lets the parser import what is at or below these paths and nothing else, until it is called again."""
    _settings["import_path_verdicts"] = {}
    set_parsing_settings(
        import_path_denylist=["*"],
        import_path_allowlist=list(allowed),
        # a configuration is a file on this machine, never an address
        config_read_mode_fsspec_enabled=False,
        instantiate_subclass_spec_in_any=False,
    )
    for owner, name, _, replacement in EXCHANGED:
        setattr(owner, name, replacement)


@contextmanager
def parser_unchanged() -> Iterator[None]:
    """Restores jsonargparse at the end, for other parsers in the same process."""
    before = [(owner, name, getattr(owner, name)) for owner, name, *_ in EXCHANGED]
    settings = copy.deepcopy(_settings)
    try:
        yield
    finally:
        for owner, name, held in before:
            setattr(owner, name, held)
        _settings.clear()
        _settings.update(settings)


def still_taken(cls: type, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Those arguments, given for another class, that this one takes as well."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(cls, fail_untyped=False, sub_configs=True)
    kept = {}
    for name, value in arguments.items():
        before = Namespace(class_path="", init_args=Namespace())
        if isinstance(value, Mapping) and "class_path" not in value:
            # of a dataclass each field is an argument
            before.init_args = Namespace({f"{name}.{key}": item for key, item in value.items()})
        else:
            before.init_args[name] = value
        _discard(parser, before, {"class_path": "another"})
        if found := before.init_args.as_dict():
            kept[name] = found[name]
    return kept


def _start_clean(parser: Any, before: Any, now: Any) -> None:
    """Keeps nothing of a part's class when it changes.

    jsonargparse carries every argument over that the new class takes too, defaults included: a task whose default
    optimiser is AdamW would pass AdamW's decay of 0.01 to an Adam, which decays by another rule and learns nothing.
    What the user has said of the old class is carried over by `slotbench.config.tree`.
    """
    if isinstance(before, Namespace) and before.get("init_args") and before["class_path"] != now["class_path"]:
        before["init_args"] = Namespace()


def _supplied_by_the_task(callable_type: Any, spec: Any) -> Any:
    """Leaves every argument of a schedule but the optimiser to the user, whatever the factory's type is."""
    spec, supplied = _partial_class(callable_type, spec)
    cls: Any = pkgutil.resolve_name(spec["class_path"]) if supplied else None
    if _is_schedule(cls):
        length = inspect.signature(cls).parameters.get(LENGTHS[0])
        supplied = {1, LENGTHS[0]} if length is not None and length.default is length.empty else {1}
    return spec, supplied


def _with_open_lengths(function_or_class: Any, method_or_property: str | None = None, logger: Any = True) -> Any:
    """Makes the length of a schedule optional: the task then fills in that of the training."""
    parameters = _parameters(function_or_class, method_or_property, logger)
    if not _is_schedule(function_or_class):
        return parameters
    return [
        dataclasses.replace(one, annotation=int | None, default=None) if one.name in LENGTHS else one
        for one in parameters
    ]


def _is_schedule(cls: Any) -> bool:
    return inspect.isclass(cls) and issubclass(cls, LRScheduler)


EXCHANGED = (
    (_typehints, "discard_init_args_on_class_path_change", _discard, _start_clean),
    (_typehints, "adapt_partial_callable_class", _partial_class, _supplied_by_the_task),
    (_signatures, "get_signature_parameters", _parameters, _with_open_lengths),
)
"""Replacements in jsonargparse: owner, name, original, replacement."""
