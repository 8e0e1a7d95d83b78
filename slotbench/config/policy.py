"""Import policy: the classes that a configuration may name, and the plugin files of a recorded run.

A configuration names classes, and importing and calling whatever a file names would let a third party's file run any
program. So a class is taken only where the parameter's type asks for one, and it is a registered component (the
user has installed its package, or named its file), one of the list here, or below what the user allows on the command
line. Functions are never taken.

A run folder may come from a third party too, and so may the plugin file that it names: a recorded file is remembered by
path and hash and used only if the user types it again; an error says what to type where it is missing.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import shlex
import sys
import typing
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slotbench import registry
from slotbench.config.settings import Setting, names_in
from slotbench.errors import FileError, UserError, lines
from slotbench.files import read_bytes
from slotbench.runs.folder import RECORD, RunFolder
from slotbench.text import printable
from slotbench.yaml_files import CONFIG_LIMIT

if TYPE_CHECKING:
    from slotbench.config.jsonargparse_compat import Refusal
    from slotbench.runs.run_info import PluginEntry

__all__ = [
    "allowed_paths",
    "apply_policy",
    "check_plugins",
    "check_run_plugins",
    "listed_classes",
    "plugin_records",
    "refusal_words",
]

# A class is listed if building it, and what Lightning then does with it, runs no program, reaches no network and writes
# no file but those that `written_paths` keeps inside the run folder. Whoever needs another types `--allow-import`.
_NAMED = {
    # of a torch later than the oldest that we run with
    "torch.optim": "Muon",
    "lightning.pytorch.callbacks": (
        "BackboneFinetuning BatchSizeFinder DeviceStatsMonitor EMAWeightAveraging EarlyStopping "
        "GradientAccumulationScheduler LearningRateMonitor ModelCheckpoint ModelSummary "
        "OnExceptionCheckpoint RichModelSummary RichProgressBar StochasticWeightAveraging TQDMProgressBar Timer "
        "WeightAveraging"
    ),
    "lightning.pytorch.callbacks.progress.rich_progress": "RichProgressBarTheme",
    "lightning.pytorch.loggers": "CSVLogger TensorBoardLogger",
    "lightning.pytorch.profilers": "AdvancedProfiler PassThroughProfiler PyTorchProfiler SimpleProfiler",
    "lightning.pytorch.accelerators": "CPUAccelerator CUDAAccelerator MPSAccelerator",
    "lightning.pytorch.strategies": "DDPStrategy SingleDeviceStrategy",
    "lightning.pytorch.plugins": (
        "BitsandbytesPrecision DoublePrecision FSDPPrecision HalfPrecision MixedPrecision TorchSyncBatchNorm "
        "TransformerEnginePrecision"
    ),
    "lightning.fabric.plugins.environments": "LightningEnvironment TorchElasticEnvironment",
    "slotbench.interfaces": "DataSpec VideoSpec",
    "slotbench.pretrained.feature_extractor": "DINOFeatures",
}


def listed_classes() -> Iterator[str]:
    """The import paths of the classes of torch, lightning and slotbench that a configuration may name."""
    for module, names in _NAMED.items():
        yield from (f"{module}.{name}" for name in names.split())


def allowed_paths() -> list[str]:
    """The import paths of every class that a configuration may name: listed classes and components."""
    return [*listed_classes(), *sorted(target.replace(":", ".") for target in registry.targets())]


def apply_policy(extra: Iterable[str] = ()) -> None:
    """Tells the parser what may be imported; call it after the components that are named have been imported.

    Args:
        extra: import paths that the user allows.

    Raises:
        UserError: one of them is not an import path.
    """
    extra = list(extra)
    for prefix in extra:
        if not all(part.isidentifier() for part in prefix.split(".")):
            raise UserError(f"--allow-import takes an import path such as my_package.models; got {prefix}")
    from slotbench.config.jsonargparse_compat import guard_parser

    # a class is checked by the path that is given, by the one where it is defined, and by the shortest there is
    of_torch = (path for path in allowed_paths() if path.startswith("torch."))
    named = [found for path in dict.fromkeys((*listed_classes(), *of_torch)) if (found := _found(path)) is not None]
    classes = [*named, *registry.loaded()]
    classes += [asked for component in registry.loaded() for asked in _classes_of(component)]
    guard_parser({*allowed_paths(), *(path for found in classes for path in _paths_of(found))}, extra)


def refusal_words(refused: Refusal, settings: Iterable[Setting]) -> str:
    """The sentence for a refused import, with the setting that names it."""
    module, _, name = refused.named.rpartition(".")
    given = next((setting.text for setting in settings if name in str(setting.value)), None)
    way = f"--allow-import {module}  (only if you trust what it runs)" if refused.can_be_allowed else None
    return lines(f"{refused.named} {refused.reason}", given=given, **{"to allow it": way})


def _found(path: str) -> type | None:
    module, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, OSError):
        return None  # of another version of the library
    return found if inspect.isclass(found) else None


def _paths_of(found: type) -> Iterator[str]:
    """Where a class is defined, and how the parser writes it: a package may name it too, and the shortest path wins."""
    from slotbench.config.jsonargparse_compat import import_path

    yield f"{found.__module__}.{found.__qualname__}"
    try:
        yield import_path(found)
    except (ImportError, AttributeError, ValueError):
        return  # it can be reached by no path, as one that is defined within a function


def _classes_of(component: type) -> Iterator[type]:
    """Classes in a component's own signature: defaults of arguments, and dataclasses among their types.

    A resolved configuration says both in full.
    """
    try:
        defaults = [parameter.default for parameter in inspect.signature(component).parameters.values()]
        hints = typing.get_type_hints(component.__init__)  # type: ignore[misc]
    except (TypeError, ValueError, NameError, AttributeError):
        return
    yield from (default for default in defaults if inspect.isclass(default) and default is not inspect.Parameter.empty)
    waiting = list(hints.values())
    while waiting:
        hint = waiting.pop()
        waiting += typing.get_args(hint) if not isinstance(hint, list) else hint
        if inspect.isclass(hint) and is_dataclass(hint):
            yield hint


def plugin_records(files: Iterable[Path]) -> list[PluginEntry]:
    """Records of plugin files for `run.json`: path, SHA-256 of the content, and components."""
    records: list[PluginEntry] = []
    for file in files:
        path = file.resolve()
        components = [entry.name for entry in registry.registered_in(path)]
        records.append({"path": str(path), "sha256": _sha256(path), "components": components})
    return records


def check_run_plugins(run: Path, given: Sequence[Path], settings: Iterable[Setting], command: str | None) -> None:
    """Raises if a plugin file that the run's configuration needs is not on the command line.

    Args:
        run: the run folder; one that does not exist needs none.
        given: the plugin files on the command line.
        settings: of the run and of the command line.
        command: the command line, for messages; None in Python.

    Raises:
        UserError: a file is missing.
    """
    record = run / RECORD
    if record.is_file():
        used = {name for setting in settings for name in names_in(setting.value)}
        check_plugins(RunFolder(run).info.get("plugins", []), given, run, command, used)


def check_plugins(
    recorded: Sequence[PluginEntry],
    given: Sequence[Path],
    where: str | Path,
    command: str | None,
    used: Iterable[str] = (),
) -> None:
    """Raises if a recorded plugin file is missing from the command line, and warns if its content has changed.

    Args:
        recorded: those in the record of a run or a grid.
        given: the plugin files on the command line.
        where: the run or grid, for messages.
        command: the command line, for messages; None in Python.
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
                warning = f"warning: {file} is not what it was when {where} was made: its content has changed"
                print(printable(warning), file=sys.stderr)
            continue
        components = entry.get("components", [])
        if components and not any(name in names and not registry.kinds_of(name) for name in components):
            continue
        raise UserError(_missing(path, entry.get("sha256"), components, where, command))


def _missing(path: Path, recorded: Any, components: Sequence[str], where: str | Path, command: str | None) -> str:
    what = f", for {', '.join(components)}" if components else ""
    now = _sha256(path)
    state = "it is not there any more: --plugin takes it from where it is now" if now is None else None
    if now is not None and recorded not in (None, now):
        state = "its content has changed since"
    typed = f"plugins=[{str(path)!r}]" if command is None else f"{command} --plugin {shlex.quote(str(path))}"
    return lines(
        f"{where} was made with the plugin file {path}{what}, and a recorded file is not run by itself",
        note=state,
        expected=f"{typed}  (only if you trust what the file does)",
    )


def _sha256(path: Path) -> str | None:
    try:
        return hashlib.sha256(read_bytes(path, CONFIG_LIMIT)).hexdigest()
    except FileError:
        return None
