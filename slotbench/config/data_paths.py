"""Relative paths that a run reads: they start from the folder where the run was begun, wherever it is evaluated."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from jsonargparse import Namespace

from slotbench.configurations import may_be_path
from slotbench.runs.folder import RunFolder

__all__ = ["resolve_paths"]


def resolve_paths(values: Namespace, folder: RunFolder, typed: Collection[str] = ()) -> None:
    """Makes relative paths of a run's task and data absolute, where something is there; typed keys start from here."""
    begun = folder.info.get("begun_in")
    if not isinstance(begun, str) or Path(begun) == Path.cwd():
        return
    for key, text in list(values.items()):
        spoken, name = key.replace(".init_args", ""), key.rpartition(".")[2]
        is_own = key.startswith(("model.", "data.")) and name != "class_path" and spoken not in typed
        if is_own and isinstance(text, str | Path) and may_be_path(name, str(text)):
            place = Path(begun) / Path(text).expanduser()
            if place.exists():
                values[key] = str(place)
