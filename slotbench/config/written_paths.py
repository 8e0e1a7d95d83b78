"""Paths that a trainer writes: inside the run folder, unless the command line names another place.

A third party's configuration may name paths for checkpoints, logs and profiles. A relative path is resolved in the run
folder. A path that leads out of it counts only on the command line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from slotbench.config.settings import Setting
from slotbench.errors import FileError, UserError, lines
from slotbench.files import is_inside
from slotbench.yaml_files import parse_yaml

__all__ = ["WRITTEN_ARGUMENTS", "check_untyped_settings", "check_written_paths", "leads_out", "place_in_run"]

_ROOT = "default_root_dir"
_NAMES = ("dirpath", "filename")
WRITTEN_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "ModelCheckpoint": _NAMES,
    "OnExceptionCheckpoint": _NAMES,
    "AdvancedProfiler": _NAMES,
    "PassThroughProfiler": _NAMES,
    "PyTorchProfiler": _NAMES,
    "SimpleProfiler": _NAMES,
    "CSVLogger": ("save_dir", "name", "version", "prefix"),
    "TensorBoardLogger": ("save_dir", "name", "version", "sub_dir", "prefix"),
}
"""Listed class that writes -> the arguments that the paths it writes to are made of, the folder first."""


def leads_out(path: str) -> bool:
    """Whether a path may lead out of the folder that it is relative to."""
    parts = path.replace("\\", "/").split("/")
    return path.startswith(("/", "~")) or ".." in parts or "://" in path or Path(path).is_absolute()


def check_written_paths(trainer: Any, has_folder: bool, settings: Iterable[Setting]) -> None:
    """Refuses a configuration that would write outside the run folder, before anything is built.

    Args:
        trainer: the parsed settings of the trainer.
        has_folder: whether there is a run folder; without one every path has to be typed.
        settings: the user's settings, to see which were typed.

    Raises:
        UserError: a path leads out of the run folder and was not typed; says what to type.
    """
    typed = set(_typed(settings))
    if (root := trainer.get(_ROOT)) is not None:
        _check(str(root), _ROOT, "trainer", has_folder, typed)
    for key, part in _parts(trainer, "trainer"):
        name = _class_name(part)
        given: Mapping[str, Any] = part.get("dict_kwargs") or {}
        for argument, value in given.items() if name in WRITTEN_ARGUMENTS else ():
            if (argument, str(value)) not in typed:
                raise UserError(
                    lines(
                        f"{name} takes no {argument} from a configuration: it may name a path to write to",
                        given=f"{key}.dict_kwargs.{argument}: {value}",
                        expected=f"--{key}.dict_kwargs.{argument} {value}, on the command line",
                    )
                )
        for argument in WRITTEN_ARGUMENTS.get(name, ()):
            value = (part.get("init_args") or {}).get(argument)
            if isinstance(value, str | Path):
                _check(str(value), argument, key, has_folder, typed)


def check_untyped_settings(settings: Mapping[str, Any], where: str | Path) -> None:
    """Refuses settings of a grid file that only a command line may give.

    Args:
        settings: their keys, such as "trainer.logger", and values.
        where: the file, for messages.

    Raises:
        UserError: a setting lets a checkpoint run code, or a path of the trainer's leads out of the run folder.
    """
    for key, value in settings.items():
        if key.partition(".")[0] == "weights_only":
            raise UserError(
                lines(
                    f"{where}: {key} is not for a file: only a command line may let a checkpoint run code",
                    expected=f"slotbench grid run FILE --{key} {value}",
                )
            )
        if key.partition(".")[0] != "trainer":
            continue
        known = {argument for arguments in WRITTEN_ARGUMENTS.values() for argument in arguments} | {_ROOT}
        for argument, text in _within(_read({key.rpartition(".")[2].rstrip("+"): value})):
            if (argument in known and leads_out(text)) or "dict_kwargs" in f"{key}.{argument}":
                raise UserError(
                    lines(
                        f"{where}: {argument} cannot be {text}: a file may only name paths in the run folder",
                        given=f"{key}: {value}",
                        expected=f"slotbench grid run FILE --{key} {value}",
                    )
                )


def place_in_run(built: Any, trainer: Any, folder: Path) -> None:
    """Lets the trainer's parts write to the run folder where their paths are relative.

    Args:
        built: arguments of the trainer, its parts built; those that write to a relative path are built anew.
        trainer: the parsed settings that they were built from.
        folder: of the run.

    Raises:
        UserError: a link in the run folder leads out of it.
    """
    if (root := trainer.get(_ROOT)) is not None:
        built[_ROOT] = _placed(root, folder)
    for key in ("logger", "callbacks", "profiler"):
        described = trainer.get(key)
        if isinstance(described, list):
            pairs = zip(described, built[key], strict=True)
            built[key] = [_placed_part(part, made, folder) for part, made in pairs]
        else:
            built[key] = _placed_part(described, built.get(key), folder)


def _placed_part(described: Any, made: Any, folder: Path) -> Any:
    name = _class_name(described)
    if name not in WRITTEN_ARGUMENTS:
        return made
    argument = WRITTEN_ARGUMENTS[name][0]
    arguments = described.get("init_args")
    given = {} if arguments is None else dict(vars(arguments))
    if not isinstance(given.get(argument), str | Path):
        return made
    given[argument] = _placed(given[argument], folder)
    return type(made)(**given, **(described.get("dict_kwargs") or {}))


def _placed(value: str | Path, folder: Path) -> str:
    if leads_out(str(value)):
        return str(value)
    if not is_inside(folder, folder / value):
        raise UserError(lines(f"{folder / value} is a link that leads out of the run folder", given=str(value)))
    return str(folder / value)


def _class_name(part: Any) -> str:
    path = part.get("class_path") if hasattr(part, "get") else None
    return str(path or "").rpartition(".")[2]


def _check(value: str, argument: str, key: str, has_folder: bool, typed: set[tuple[str, str]]) -> None:
    if (argument, value) in typed or (has_folder and not leads_out(value)):
        return
    where = "inside the run folder" if has_folder else "into a run folder, and none is given here"
    raise UserError(
        lines(
            f"{key}.{argument} cannot be {value}: a configuration writes only {where}",
            expected="a path without .. that is relative to the run folder" if has_folder else None,
            **{"to allow it": f"--{key}.{argument} {value}, on the command line"},
        )
    )


def _typed(settings: Iterable[Setting]) -> Iterator[tuple[str, str]]:
    """Every argument with its value that stands on the command line, also within a value in braces."""
    for setting in settings:
        if not setting.on_command_line or setting.value is None:
            continue
        yield from _within(_read({setting.key[-1].rstrip("+") if setting.key else "": setting.value}))


def _read(value: Any) -> Any:
    """A value with YAML inside its strings parsed."""
    if isinstance(value, dict):
        return {key: _read(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_read(item) for item in value]
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        try:
            return _read(parse_yaml(value, "a setting"))
        except FileError:
            return value
    return value


def _within(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, list):
        for item in value:
            yield from _within(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, dict | list):
                yield from ((f"{key}.{name}" if key == "dict_kwargs" else name, text) for name, text in _within(item))
            else:
                yield str(key), str(item)


def _parts(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    """Every class with its arguments that is to be built, and its key."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from _parts(item, key)
    elif hasattr(value, "get") and hasattr(value, "keys"):
        if isinstance(value.get("class_path"), str):
            yield key, value
            if value.get("init_args") is not None:
                yield from _parts(value["init_args"], key)
            return
        for name in list(getattr(value, "__dict__", value)):
            yield from _parts(value[name], f"{key}.{name}")
