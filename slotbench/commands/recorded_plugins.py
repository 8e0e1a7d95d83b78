"""The plugin files that a run or a grid was made with: remembered by path and hash, and never run by themselves.

A folder may come from somebody else, and so may the file that it names. So a recorded file is used only if the user
types it again, and what to type is said where it is missing.
"""

from __future__ import annotations

import hashlib
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from slotbench import registry
from slotbench.commands.settings import Setting, names_in
from slotbench.errors import FileError, UserError, lines
from slotbench.files import CONFIG_LIMIT, read_bytes, read_json
from slotbench.runs.folder import RECORD
from slotbench.text import printable

__all__ = ["check_plugins", "check_run_plugins", "plugin_records", "recorded_plugins"]


def plugin_records(files: Iterable[Path]) -> list[dict[str, Any]]:
    """What a run's record holds of them: where each is, the SHA-256 of its content, and the components in it."""
    records = []
    for file in files:
        path = file.resolve()
        components = [entry.name for entry in registry.registered_in(path)]
        records.append({"path": str(path), "sha256": _sha256(path), "components": components})
    return records


def recorded_plugins(record: Any) -> list[dict[str, Any]]:
    """The plugin files in the record of a run or a grid; whatever else stands there is left out."""
    found = record.get("plugins") if isinstance(record, dict) else None
    kept = [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
    return [entry for entry in kept if isinstance(entry.get("path"), str) and entry["path"]]


def check_run_plugins(run: Path, given: Sequence[Path], settings: Iterable[Setting], command: str) -> None:
    """Says what to type if the run was made with a plugin file that its configuration needs and nobody has typed.

    Args:
        run: the run folder; nothing is said of one that is not there.
        given: the plugin files on the command line.
        settings: of the run and of the command line.
        command: what the user has typed, for messages.

    Raises:
        UserError: a file is missing.
    """
    record = run / RECORD
    if record.is_file():
        used = {name for setting in settings for name in names_in(setting.value)}
        check_plugins(recorded_plugins(read_json(record)), given, run, command, used)


def check_plugins(
    recorded: Sequence[dict[str, Any]], given: Sequence[Path], where: str | Path, command: str, used: Iterable[str] = ()
) -> None:
    """Says what to type if a recorded plugin file is missing, and warns if it is another than it was.

    Args:
        recorded: see `recorded_plugins`.
        given: the plugin files on the command line.
        where: the run or grid, for messages.
        command: what the user has typed, for messages.
        used: names that the configuration uses. A file is not missed if none of its components is among them, or if
            they are known without it; a file of unknown components is always missed.

    Raises:
        UserError: a file is missing.
    """
    names = set(used)
    by_path = {file.resolve(): file for file in given}
    by_name = {file.name: file for file in given}
    for entry in recorded:
        path = Path(entry["path"])
        file = by_path.get(path) or by_name.get(path.name)
        if file is not None:
            if entry.get("sha256") not in (None, _sha256(file)):
                said = f"warning: {file} is not what it was when {where} was made: its content has changed"
                print(printable(said), file=sys.stderr)
            continue
        held = entry.get("components")
        components = [name for name in held if isinstance(name, str)] if isinstance(held, list) else []
        if components and not any(name in names and not registry.kinds_of(name) for name in components):
            continue
        raise UserError(_missing(path, entry.get("sha256"), components, where, command))


def _missing(path: Path, recorded: Any, components: Sequence[str], where: str | Path, command: str) -> str:
    what = f", for {', '.join(components)}" if components else ""
    now = _sha256(path)
    state = "it is not there any more: --plugin takes it from where it is now" if now is None else None
    if now is not None and recorded not in (None, now):
        state = "its content has changed since"
    return lines(
        f"{where} was made with the plugin file {path}{what}, and a recorded file is not run by itself",
        note=state,
        expected=f"{command} --plugin {shlex.quote(str(path))}  (only if you trust what the file does)",
    )


def _sha256(path: Path) -> str | None:
    try:
        return hashlib.sha256(read_bytes(path, CONFIG_LIMIT)).hexdigest()
    except FileError:
        return None
