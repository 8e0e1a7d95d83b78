"""The settings in which two configurations of a run differ, those left out that change no result."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Difference", "configuration_differences", "is_material"]

# what says where and how a run is run, or shown, and not what comes out of it
_IMMATERIAL = re.compile(
    r"(ckpt_path|weights_only|config"
    r"|trainer\.(accelerator|devices|num_nodes|strategy|logger|default_root_dir|profiler|plugins|benchmark"
    r"|enable_progress_bar|enable_model_summary|enable_checkpointing|enable_autolog_hparams|model_registry)"
    r"|data\.(loader\.)?num_workers)(\..*)?"
)
_SILENT = ("init_args", "dict_kwargs")


@dataclass(frozen=True)
class Difference:
    """One setting that differs.

    Its key as on the command line, and the values as text; "absent" where there is none.
    """

    key: str
    before: str
    now: str

    def __str__(self) -> str:
        return f"{self.key}: {self.before} in the run, {self.now} now"


def is_material(key: str) -> bool:
    """Whether a setting says more than where and how a run is run."""
    return _IMMATERIAL.fullmatch(key) is None


def configuration_differences(before: Any, now: Any) -> list[Difference]:
    """The settings that differ between two complete configurations, in order.

    Left out is what only says where and how a run is run: the checkpoint, the trainer's devices, strategy, loggers and
    folders, the number of the data's workers.
    """
    ours, theirs = (dict(_flat(tree)) for tree in (before, now))
    keys = filter(is_material, {**ours, **theirs})
    return [
        Difference(key, _text(ours, key), _text(theirs, key))
        for key in keys
        if ours.get(key) != theirs.get(key)  # an argument that is new is absent there and null here
    ]


def _flat(tree: Any, key: str = "") -> list[tuple[str, Any]]:
    if not isinstance(tree, Mapping) or not tree:
        # a class without arguments is written either way
        last = key.rpartition(".")[2]
        return [] if tree == {} and last in _SILENT else [(_spoken(key), tree)]
    return [pair for name, item in tree.items() for pair in _flat(item, f"{key}.{name}" if key else str(name))]


def _spoken(key: str) -> str:
    parts = [part for part in key.split(".") if part not in _SILENT]
    return ".".join(parts[:-1] if parts[-1:] == ["class_path"] and len(parts) > 1 else parts)


def _text(settings: Mapping[str, Any], key: str) -> str:
    if key not in settings:
        return "absent"
    value = settings[key]
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
