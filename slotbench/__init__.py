"""slotbench: one bench for slot-based and object-centric video models.

    >>> import slotbench
    >>> from slotbench.interfaces import TokenSpec
    >>> core = slotbench.build("SlotSSM", TokenSpec(dim=64, num_tokens=16, grid=(4, 4)))

Importing the package imports neither torch nor lightning: what needs them imports them when it is called. Imported
before torch, it has torch's threads sleep while they wait (`OMP_WAIT_POLICY`), unless the environment sets it
otherwise. `slotbench.interfaces` defines the components, `slotbench.registry` lists the installed ones.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from slotbench.components import Components
    from slotbench.data.base import SlotDataModule
    from slotbench.tasks.task import Task

__version__ = "0.2.0"

# Threads that have nothing to do soon sleep, and do not keep a core busy that other work may want: libgomp, which torch
# and numba wait with, reads this when it is loaded. What the user sets is heeded (docs/benchmarks.md: what each costs).
if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"} & os.environ.keys():
    os.environ["GOMP_SPINCOUNT"] = "10000"

__all__ = ["__version__", "build", "factory", "from_pretrained", "list", "load_run"]


def build(name: str, /, *sizes: Any, kind: str | None = None, **arguments: Any) -> Any:
    """A component, built by its name: `build("SlotSSM", encoder.token_spec, num_slots=6)`.

    Args:
        name: the class's name, as a configuration gives it.
        sizes: positional arguments of the class: the specs that it is built from.
        kind: one of `slotbench.registry.KINDS`, needed where components of two kinds have the name.
        arguments: keyword arguments of the class.
    """
    made = _component(name, kind, arguments)
    if {"encoder", "decoder"} <= arguments.keys() and "data_spec" not in arguments:  # parts that are built know it
        shown, wanted = (getattr(arguments[part], "made_for", None) for part in ("encoder", "decoder"))
        if shown and wanted:
            arguments["data_spec"] = importlib.import_module("slotbench.interfaces").DataSpec(shown, wanted)
    component = made(*sizes, **arguments)
    if sizes:
        component.made_for = sizes[-1]
    return component


def factory(name: str, /, *, kind: str | None = None, **arguments: Any) -> partial[Any]:
    """The same without the sizes, which a task supplies: `factory("SlotSSM", num_slots=6)` for `core=`."""
    return partial(_component(name, kind, arguments), **arguments)


def list(kind: str = "") -> Components:
    """The installed components of a kind, each with its summary, paper and, of a core, causality; prints as a table.

    None is imported. A kind is one of `slotbench.registry.KINDS`, such as "cores", or "models", for the trained models
    that `from_pretrained` takes by name.
    """
    from slotbench.components import components

    if kind in ("models", "model"):
        from slotbench.models.shipped import listed

        return listed()

    return components(kind)


def from_pretrained(
    source: str | Path, /, device: str | torch.device = "cpu", features: str | Path | None = None
) -> Task:
    """The task of an exported model, with its weights, on a device and in evaluation mode.

    Nothing in it is run: of the components that it names, those that are registered are built, and no others.

    Args:
        source: the name of a model that comes with slotbench, a folder that `slotbench export` wrote, or
            "hf://USER/REPO" of the Hugging Face Hub, with "@REVISION" if it is not the newest.
        device: as torch names it, such as "cuda".
        features: folder or file of the frozen network whose features the model reads, if it names one.
    """
    from slotbench.models.finding import from_pretrained as find

    return find(source, features).to(device)


def load_run(
    path: str | Path,
    checkpoint: str = "last",
    changes: Mapping[str, Any] | None = None,
    plugins: Sequence[str | Path] = (),
    allow_import: Sequence[str] = (),
    device: str | torch.device = "cpu",
) -> tuple[Task, SlotDataModule]:
    """Task and data of a recorded run, the task with the checkpoint's weights, on a device and in evaluation mode.

    Args:
        path: the run folder.
        checkpoint: "last", "best" or a file.
        changes: settings over the run's own by their key, such as {"data.loader.batch_size": 2}.
        plugins: Python files of registered components to import first.
        allow_import: import paths beyond the registry that the run's configuration may name.
        device: as torch names it, such as "cuda".
    """
    from slotbench.config.run_loading import load_run as load

    loaded = load(path, checkpoint, changes, plugins, allow_import)
    return loaded.task.to(device), loaded.data


def _component(name: str, kind: str | None, arguments: Mapping[str, Any]) -> type:
    from slotbench import components, registry

    found = registry.load(kind or registry.kind_of(name), name)
    components.check_arguments(found, arguments)
    return found


def __getattr__(name: str) -> Any:
    # `slotbench.interfaces` without an import of its own, and components: `from slotbench import SlotSSM`
    if name.isidentifier() and name[0].islower() and importlib.util.find_spec(f"slotbench.{name}") is not None:
        return importlib.import_module(f"slotbench.{name}")
    from slotbench import registry
    from slotbench.errors import did_you_mean

    if registry.kinds_of(name):
        return registry.load(registry.kind_of(name), name)
    hint = did_you_mean(name, __all__)
    if name in ("fit", "train", "validate", "test", "predict"):
        verb = name.replace("train", "fit")
        hint = f": lightning.Trainer(max_steps=1000).{verb}(task, data), or slotbench {verb} in a terminal"
    raise AttributeError(f"module slotbench has no attribute {name}{hint}")
