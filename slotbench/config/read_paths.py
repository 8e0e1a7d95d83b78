"""Paths that a run reads: relative ones are resolved from the folder where the run was begun.

The record of a run has that folder, `begun_in`, and what the data's paths held then, `held`: how many files, and a hash
of their names and sizes. A path that is typed, or that stands in another file, is one of the folder where it is typed.
Runs of versions that kept neither read relative paths where the command is typed.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from slotbench.config.settings import Setting
from slotbench.configurations import may_be_path
from slotbench.errors import UserError, lines, wrapped
from slotbench.runs.folder import CONFIG, RECORD, RunFolder
from slotbench.text import one_line, printable
from slotbench.yaml_files import read_yaml

__all__ = ["held_by", "reading_of", "resolve_paths"]

_PARTS = ("model", "data")
_MOST_FILES = 100_000


class _Given(NamedTuple):
    """A path in a configuration: its container, its name there, its full key, and its text."""

    holder: Any
    name: Any
    key: str
    text: str

    @property
    def spoken(self) -> str:
        """The key as it is typed."""
        return ".".join(word for word in self.key.split(".") if word not in ("init_args", "dict_kwargs"))

    @property
    def is_relative(self) -> bool:
        """Whether it depends on a folder."""
        return not (self.text.startswith("~") or Path(self.text).is_absolute())

    def within(self, folder: Path) -> Path:
        """Where it leads, from a folder."""
        return folder / Path(self.text).expanduser()


def reading_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Entries `begun_in` and `held` of a new run's record.

    Args:
        config: its configuration, as YAML gives it.
    """
    try:
        here = Path.cwd()
    except OSError:  # the folder has been removed
        return {}
    held = {one.key: found for one in _paths(config) if _is_data(one) and (found := held_by(one.within(here)))}
    return {"begun_in": str(here), "held": held}


def held_by(path: Path) -> dict[str, Any] | None:
    """Number of files, bytes, and a hash of names and sizes below a path; None if nothing is there.

    Hidden files and run folders are passed over; of more than 100,000 files or folders the first count.
    """
    try:
        if not path.is_dir():
            files: Iterable[tuple[str, int]] = [(path.name, path.stat().st_size)]
        else:
            files = _files(path)
        total, size, digest = 0, 0, hashlib.sha256()
        for name, length in files:
            total, size = total + 1, size + length
            digest.update(f"{length} {name}\n".encode("utf-8", "surrogateescape"))
            if total == _MOST_FILES:
                break
    except (OSError, ValueError):
        return None
    return {"files": total, "bytes": size, "hash": digest.hexdigest()} if total else None


def resolve_paths(
    values: Any, settings: Iterable[Setting], folder: RunFolder, allow_changes: bool | None = None
) -> dict[str, Any]:
    """Resolves the relative paths of a run's configuration from the folder where the run was begun.

    The content of the data's paths is compared with the recorded one: a change is refused where a run is resumed, and
    reported where it is evaluated.

    Args:
        values: the parsed configuration, which is changed.
        settings: what it was parsed from.
        folder: of the run.
        allow_changes: of a run that is resumed, whether other data are allowed; None where it is evaluated.

    Returns:
        What the record of a run that is resumed says from now on, `held`; nothing where it says it already.

    Raises:
        UserError: what a path named is not there any more, or another thing is there, or it is resumed with other data.
    """
    info = folder.info
    begun, held = info.get("begun_in"), info.get("held")
    if not isinstance(begun, str) or not isinstance(held, Mapping):
        return {}
    here = [one for one in settings if one.file is None or not _same(one.file, folder.path / CONFIG)]
    own = {one.key: one.text for one in _paths(read_yaml(folder.path / CONFIG))}
    now = dict(held)
    for one in list(_paths(values)):
        typed = any(_says(setting, one) for setting in here)
        if typed and allow_changes is None:
            continue
        if one.text != own.get(one.key):
            _check_place(one, Path(begun))
            now[one.key] = held_by(one.within(Path.cwd())) if _is_data(one) else None
            continue
        before = held.get(one.key)
        path = _resolved(one, Path(begun), before, typed)
        if one.is_relative:
            one.holder[one.name] = str(path)
        if isinstance(before, Mapping) and _is_data(one):
            now[one.key] = _compared(one, path, before, allow_changes)
    now = {key: found for key, found in now.items() if found}
    return {} if now == held else {"held": now}


def _check_place(one: _Given, begun: Path) -> None:
    """Refuses a new relative path for a run that is resumed in another folder than it was begun in."""
    if one.is_relative and not _same(begun, Path.cwd()):
        raise UserError(
            f"--{one.spoken} {one_line(one.text)} is relative, and the run was begun in {begun}, from where its paths "
            f"are read; expected --{one.spoken} {Path.cwd() / one.text}"
        )


def _resolved(one: _Given, begun: Path, before: Any, typed: bool) -> Path:
    """Where a path of a run leads."""
    there, here = one.within(begun), one.within(Path.cwd())
    if not one.is_relative or _same(there, here):
        return there
    if there.exists():
        if typed and here.exists() and held_by(here) != held_by(there):
            raise UserError(
                lines(
                    f"{one.spoken} {one_line(one.text)} is another folder or file here than where the run was begun",
                    here=str(here),
                    there=str(there),
                    expected=f"--{one.spoken} {there}, or the command typed in {begun}",
                )
            )
        return there
    if not isinstance(before, Mapping):
        return Path(one.text)  # it never was there, or is no path at all
    if held_by(here) == before:
        _say(f"{one.spoken} is read from {here}, which holds what {there} held when the run was begun")
        return here
    also = f"; {here} holds something else than it did" if here.exists() else ""
    raise UserError(
        lines(
            f"{one.spoken} is {one_line(one.text)}, in the folder where the run was begun, and there is nothing at "
            f"{there}{also}",
            expected=f"--{one.spoken} PATH, where these data are now",
        )
    )


def _compared(one: _Given, path: Path, before: Mapping[str, Any], allow_changes: bool | None) -> Mapping[str, Any]:
    """The content of a path now, compared with the recorded one."""
    now = held_by(path)
    if now is None or now == before:
        return before
    change = (
        f"{path} ({one.spoken}) does not hold what it held when the run was begun: {_in_words(before)} then, "
        f"{_in_words(now)} now, by their names and sizes"
    )
    if allow_changes is False:
        raise UserError(f"{change}; put back what it held, or add --allow-changes to continue with what is there now")
    _say(f"{change}; the current content is used")
    return now


def _paths(values: Any) -> Iterator[_Given]:
    for part in _PARTS:
        yield from _within(_get(values, part), part)


def _within(value: Any, key: str) -> Iterator[_Given]:
    if isinstance(value, list):
        names: list[Any] = list(range(len(value)))
    elif hasattr(value, "keys"):
        names = list(getattr(value, "__dict__", value))
    else:
        return
    for name in names:
        item = value[name]
        word = key.rpartition(".")[2] if isinstance(name, int) else str(name)
        if not isinstance(item, str | Path):
            yield from _within(item, f"{key}.{name}")
        elif word != "class_path" and may_be_path(word, str(item)):
            yield _Given(value, name, f"{key}.{name}", str(item))


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    """Names, from the folder on, and sizes of all files, in one order everywhere."""
    for number, (path, folders, files) in enumerate(os.walk(folder)):
        if number == _MOST_FILES:
            return
        if RECORD in files and path != str(folder):
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if not name.startswith("."):
                file = Path(path, name)
                yield file.relative_to(folder).as_posix(), file.stat().st_size if file.exists() else 0


def _get(values: Any, name: str) -> Any:
    return values.get(name) if hasattr(values, "get") else None


def _is_data(one: _Given) -> bool:
    return one.key.startswith("data.")


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def _says(setting: Setting, one: _Given) -> bool:
    """Whether a setting gives a path, by itself or within a larger value."""
    key = tuple(one.spoken.split("."))
    if setting.key[: len(key)] == key:
        return True
    return key[: len(setting.key)] == setting.key and "{" in str(setting.value) and one.text in str(setting.value)


def _in_words(held: Mapping[str, Any]) -> str:
    files, size = held.get("files"), held.get("bytes")
    if not isinstance(files, int) or not isinstance(size, int):
        return "something else"
    return f"{files:,} file{'' if files == 1 else 's'} of {size:,} bytes"


def _say(text: str) -> None:
    print(wrapped(printable(f"slotbench: {text}")), file=sys.stderr)
