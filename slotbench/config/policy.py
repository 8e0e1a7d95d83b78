"""What a configuration may import, and the plugin files of a recorded run.

A configuration names classes, and importing whatever a file names would let a third party's file run any program. So
it may name registered components, the classes listed here, and what the user allows by `--allow-import`. A recorded
plugin file is remembered by path and hash, and used only if the user types it again.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slotbench import registry
from slotbench.errors import UserError, lines
from slotbench.pretrained import EXTRACTORS
from slotbench.runs.folder import RECORD, RunFolder

if TYPE_CHECKING:
    from slotbench.runs.run_info import PluginEntry

__all__ = ["apply_policy", "check_run_plugins", "listed_classes", "plugin_records"]

# classes that, built and used by Lightning, run no program and reach no network
_NAMED = {
    "torch.optim": "Muon",
    "lightning.pytorch.callbacks": (
        "BackboneFinetuning DeviceStatsMonitor EMAWeightAveraging EarlyStopping GradientAccumulationScheduler "
        "LearningRateMonitor ModelCheckpoint ModelSummary OnExceptionCheckpoint RichModelSummary RichProgressBar "
        "TQDMProgressBar Timer WeightAveraging"
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
    **EXTRACTORS,
}


def apply_policy(extra: Iterable[str] = ()) -> None:
    """Tells the parser what may be imported, and what the user allows; call it once the named components are imported.

    Raises:
        UserError: an import path that the user allows is none.
    """
    from slotbench.config.jsonargparse_compat import guard_parser

    extra = list(extra)
    for prefix in extra:
        if not all(part.isidentifier() for part in prefix.split(".")):
            raise UserError(f"--allow-import takes an import path such as my_package.models; got {prefix}")
    guard_parser([*_allowed_paths(), *extra])


def listed_classes() -> list[str]:
    """The import paths of the classes of torch, lightning and slotbench that a configuration may name."""
    return [f"{module}.{name}" for module, names in _NAMED.items() for name in names.split()]


def _allowed_paths() -> list[str]:
    """The import paths of every class that a configuration may name: listed classes and components."""
    listed = listed_classes()
    declared = [target.replace(":", ".") for target in registry.targets()]
    classes = [*registry.loaded(), *filter(None, map(_found, (*listed, *declared)))]
    # a resolved configuration names the classes that are defaults too
    classes += [default for component in registry.loaded() for default in _defaults(component)]
    defined = [f"{found.__module__}.{found.__qualname__}" for found in classes]
    return list(dict.fromkeys(path for given in (*listed, *declared, *defined) for path in _re_exports(given)))


def _re_exports(path: str) -> Iterator[str]:
    """Where the packages that a class is defined in may name it too, as the parser writes it."""
    *modules, name = path.split(".")
    return (".".join([*modules[:count], name]) for count in range(1, len(modules) + 1))


def _found(path: str) -> type | None:
    """A class of a library, None if its version has it not; components of plugins are not imported for this."""
    module, _, name = path.rpartition(".")
    if not module.startswith(("torch.", "lightning.")):
        return None
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, OSError):
        return None
    return found if inspect.isclass(found) else None


def _defaults(component: type) -> list[type]:
    try:
        parameters = inspect.signature(component).parameters.values()
    except (TypeError, ValueError):
        return []
    return [one.default for one in parameters if inspect.isclass(one.default) and one.default is not one.empty]


def plugin_records(files: Iterable[Path]) -> list[PluginEntry]:
    """Records of plugin files for `run.json`: path, SHA-256 of the content, and components."""
    paths = [file.resolve() for file in files]
    names = [[entry.name for entry in registry.registered_in(path)] for path in paths]
    return [
        {"path": str(path), "sha256": _sha256(path), "components": made}
        for path, made in zip(paths, names, strict=True)
    ]


def check_run_plugins(run: Path, given: Sequence[Path], config: str, command: str | None) -> None:
    """Refuses a run whose recorded plugin file is not typed again, and warns if its content has changed.

    A file is not missed if none of its components is named in `config`, the run's and the settings as text, or if they
    are known without it. `command` is the command line, for messages; None in Python.

    Raises:
        UserError: a file is missing.
    """
    recorded: Sequence[PluginEntry] = RunFolder(run).info.get("plugins", []) if (run / RECORD).is_file() else []
    by_name = {file.name: file for file in given}
    for entry in recorded:
        path, components = Path(entry["path"]), entry.get("components", [])
        if (file := by_name.get(path.name)) is not None:
            if entry.get("sha256") not in (None, _sha256(file)):
                print(f"warning: {file}: its content has changed since {run} was made", file=sys.stderr)
            continue
        if components and not any(name in config and not registry.kinds_of(name) for name in components):
            continue
        typed = f"plugins=[{str(path)!r}]" if command is None else f"{command} --plugin {shlex.quote(str(path))}"
        what = f", for {', '.join(components)}" if components else ""
        made = f"{run} was made with the plugin file {path}{what}, and a recorded file is not run by itself"
        raise UserError(lines(made, expected=f"{typed}  (only if you trust what the file does)"))


def _sha256(path: Path) -> Any:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
