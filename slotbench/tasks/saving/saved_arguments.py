"""What a checkpoint keeps of a task's arguments, so that the task can be built again: plain values, no code."""

from __future__ import annotations

import importlib
import inspect
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast, get_args, get_origin, get_type_hints

import torch
from lightning.pytorch import LightningModule
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from slotbench import registry
from slotbench.errors import UserError, lines

__all__ = ["RebuiltModule", "UnsavedError", "built_arguments", "find_class", "saved_arguments"]

_OURS = ("slotbench.", "slotbench_plugins.", "torch.optim.")
_PARTS = (nn.Module, Optimizer, LRScheduler)


class UnsavedError(ValueError):
    """An argument that cannot be written down."""


class RebuiltModule(LightningModule):
    """A module whose checkpoints hold what rebuilds it, where its arguments can be written down.

    Attributes:
        unsaved: arguments that are not written, and are given to `load_from_checkpoint` again.
    """

    unsaved: Sequence[str] = ()

    @classmethod
    def load_from_checkpoint(
        cls,
        checkpoint_path: Any,
        map_location: Any = "cpu",
        hparams_file: Any = None,
        strict: bool | None = None,
        weights_only: bool | None = True,
        **arguments: Any,
    ) -> Any:
        """The task of a checkpoint, with its weights.

        The file is read as tensors and plain values. Of the classes that it names, registered components, slotbench's
        and torch's optimisers are imported, and your own are taken where you have imported them; no function is.
        Arguments are Lightning's; `arguments` of the constructor take the place of those in the file.
        """
        checkpoint = torch.load(checkpoint_path, map_location=map_location, weights_only=weights_only)
        saved = checkpoint.get(cls.CHECKPOINT_HYPER_PARAMS_KEY) or {}
        arguments |= built_arguments(cls, {name: value for name, value in saved.items() if name not in arguments})
        parameters = inspect.signature(cls).parameters.values()
        needed = [parameter.name for parameter in parameters if parameter.default is parameter.empty]
        if missing := [name for name in needed if name not in arguments]:
            raise UserError(
                lines(
                    f"{checkpoint_path} holds weights, and not what {cls.__name__} was built from",
                    missing=", ".join(missing),
                    note="lambdas, classes of the main script and built parts cannot be saved",
                    expected=f"{cls.__name__}.load_from_checkpoint(path, encoder=..., core=..., data_spec=...)",
                )
            )
        task = cls(**arguments)
        task.on_load_checkpoint(checkpoint)
        task.load_state_dict(checkpoint["state_dict"], strict=task.strict_loading if strict is None else strict)
        return task

    def remember_arguments(self, **written: Any) -> None:
        """Keeps in checkpoints what the constructor was given, or nothing if an argument cannot be written down."""
        self.save_hyperparameters(logger=False, ignore=list(self.unsaved))
        given = dict(self.hparams) | written
        for found_again in ("parts_spec", "terms"):  # by the subclass
            given.pop(found_again, None)
        self.hparams.clear()
        with suppress(UnsavedError):
            self.hparams.update(saved_arguments(given))


def saved_arguments(given: Any) -> Any:
    """Arguments of a task as the command line saves them, and as `built_arguments` reads them."""
    if given is None or isinstance(given, str | int | float | bool):
        return given
    if isinstance(given, dict):
        return {saved_arguments(key): saved_arguments(value) for key, value in given.items()}
    if isinstance(given, list | tuple):
        return type(given)(saved_arguments(item) for item in given)
    if isinstance(given, Path):
        return str(given)
    if is_dataclass(given) and not isinstance(given, type):
        return saved_arguments(asdict(given))
    factory = partial(given) if isinstance(given, type) else given
    if isinstance(factory, partial) and isinstance(factory.func, type) and not factory.args:
        module, name = factory.func.__module__, factory.func.__qualname__
        if module != "__main__" and "<locals>" not in name:
            return {"class_path": f"{module}.{name}", "init_args": saved_arguments(factory.keywords)}
    raise UnsavedError(
        f"{given!r} is neither plain, nor a class of a module, nor a partial of one with named arguments"
    )


def built_arguments(task: type, saved: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a task that `saved_arguments`, or the command line, has saved, without what is no argument."""
    parameters = inspect.signature(task).parameters
    if unknown := [name for name in saved if name not in parameters and name[0] != "_"]:
        warnings.warn(f"{task.__name__} takes no {', '.join(unknown)}, which the file holds: left out", stacklevel=2)
    return _built_arguments(task, {name: value for name, value in saved.items() if name in parameters})


def _built_arguments(built: Any, saved: Mapping[str, Any]) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    with suppress(NameError, TypeError):  # imported for types only: then every class is taken for a factory
        hints = get_type_hints(built.__init__)
    return {name: _built(value, name, hints.get(name, Callable)) for name, value in saved.items()}


def _built(value: Any, name: str, hint: Any) -> Any:
    kinds: list[Any] = [hint, *get_args(hint)]  # of a union, the kinds that it is of
    origins = [get_origin(kind) or kind for kind in kinds]
    if isinstance(value, dict) and "class_path" in value:
        found = find_class(str(value["class_path"]), name)
        arguments = _built_arguments(found, value.get("init_args") or {})
        return partial(found, **arguments) if Callable in origins else found(**arguments)
    if isinstance(value, dict):
        data_class = next((kind for kind in kinds if is_dataclass(kind)), None)
        return value if data_class is None else cast("Any", data_class)(**_built_arguments(data_class, value))
    if isinstance(value, list | tuple):
        rows = next((get_args(kind)[0] for kind in kinds if get_origin(kind) is tuple), Any)  # of a table as tuples
        items = next((get_args(kind)[0] for kind in kinds if get_origin(kind) is list), Any)
        built = [_built(item, name, rows if isinstance(item, list) else items) for item in value]
        return built if list in origins or (tuple not in origins and isinstance(value, list)) else tuple(built)
    if isinstance(value, str) and Callable in origins:
        raise _refused(value, name)
    return value


def find_class(path: str, name: str) -> type:
    """The class of this path if it may be taken: nothing but what is registered or ours is imported for it."""
    module, _, attribute = path.rpartition(".")
    if f"{module}:{attribute}" in registry.targets() or module.startswith(_OURS) or f"{module}." in _OURS:
        with suppress(ImportError):
            importlib.import_module(module)
    found = getattr(sys.modules.get(module), attribute, None)
    if isinstance(found, type) and issubclass(found, _PARTS):
        return found
    raise _refused(path, name)


def _refused(path: str, name: str) -> UserError:
    return UserError(
        lines(
            f"{name} of the checkpoint is {path}, which is no part of a model that is registered, slotbench's, "
            "torch's, or imported already",
            expected=f"import {path.rpartition('.')[0]} before, if it is yours; or give {name}=...",
        )
    )
