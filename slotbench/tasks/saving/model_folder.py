"""A trained task in a folder: what it is built from, by the names of registered components, and its weights.

    FOLDER/config.json          the task and its arguments, each component by its registered name
    FOLDER/model.safetensors    the weights
    FOLDER/tokenizer/           the same two files, of the tokenizer that a task of codes reads its frames by

A frozen network whose features the task reads is named with the hash of its weights, which are given when it is read.
The folder may come from a third party and nothing in it is run: a component is one that is registered here, weights are
read as safetensors, and no path that the configuration names is read.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Required, TypedDict

import torch
from torch import Tensor

from slotbench import registry
from slotbench.configurations import may_be_path
from slotbench.errors import FileError, UserError, lines, listing
from slotbench.io import dump_json, read_record, write_atomically
from slotbench.pretrained import EXTRACTORS
from slotbench.tasks.saving.saved_arguments import built_arguments, find_class

if TYPE_CHECKING:
    from slotbench.tasks.task import Task

__all__ = ["MODEL_CONFIG", "TOKENIZER", "WEIGHTS", "is_model_folder", "read_model", "weights_argument", "write_model"]

MODEL_CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer"

_ON_THE_HUB = re.compile(r"\w[\w.-]*/\w[\w.-]*")

_ONLY_IN_TRAINING = ("init_from", "metric_weights")
"""Arguments of tasks that name files and that a trained model does without."""


class _Part(TypedDict, total=False):
    class_path: Required[str]
    init_args: dict[str, Any]


class _ModelConfig(TypedDict, total=False):
    """What `config.json` holds."""

    format: Required[Literal["slotbench model"]]
    version: Required[Literal[1]]
    slotbench: str
    task: Required[_Part]


def is_model_folder(path: Path) -> bool:
    """Whether a path is a folder with the two files of a model."""
    return (path / MODEL_CONFIG).is_file() and (path / WEIGHTS).is_file()


def write_model(
    folder: Path, task: type, arguments: Mapping[str, Any], weights: Mapping[str, Tensor], half: bool = False
) -> None:
    """Writes configuration and weights of a trained task."""
    from safetensors.torch import save

    known = {name: arguments[name] for name in arguments if name[0] != "_" and name not in _ONLY_IN_TRAINING}
    config: dict[str, Any] = {
        "format": "slotbench model",
        "version": 1,
        "slotbench": importlib.metadata.version("slotbench"),
    }
    features = known.pop("features", None)
    config["task"] = _translated({"class_path": task, "init_args": known}, "the task", _registered_name)
    if features is not None:
        config["task"]["init_args"]["features"] = _named_weights(features)
    stored = {name: _stored(value, name, half) for name, value in weights.items()}
    write_atomically(folder / WEIGHTS, save(stored, metadata={"format": "pt"}))
    write_atomically(folder / MODEL_CONFIG, dump_json(config, indent=2) + "\n")


def read_model(folder: Path, features: str | Path | None = None) -> Task:
    """The task of a folder that `write_model` wrote, with its weights, on the CPU and in evaluation mode.

    `features` is where the weights lie of the frozen network whose features it reads; None where it reads frames, and
    for weights that have a name on the Hub.
    """
    from safetensors.torch import load_file

    config = read_record(folder / MODEL_CONFIG, _ModelConfig)
    try:
        task = registry.load("tasks", config["task"]["class_path"])
        given = dict(config["task"].get("init_args", {}))
        network = given.pop("features", None)
        arguments = _translated(given, "the task", _import_path)
        if network is not None:
            arguments["features"] = _found_weights(network, features)
        if arguments.get("tokenizer_run") is not None:
            arguments["tokenizer_run"] = str(folder / TOKENIZER)
        built: Task = task(**built_arguments(task, arguments))
        held = {"state_dict": load_file(folder / WEIGHTS), built.CHECKPOINT_HYPER_PARAMS_KEY: arguments}
        built.on_load_checkpoint(held)
        built.load_state_dict(held["state_dict"])
    except Exception as error:  # whatever a constructor, torch and safetensors raise for what cannot be
        raise FileError(
            f"{folder} holds no model that can be built: {str(error).strip().partition(chr(10))[0]}"
        ) from error
    return built.eval()


def weights_argument(arguments: Mapping[str, Any]) -> str | None:
    """The argument of a feature extractor that says where its weights are; None for one that draws them."""
    return next((name for name in ("path", "weights") if name in arguments), None)


def _named_weights(features: Mapping[str, Any]) -> dict[str, Any]:
    """A feature extractor with the name of its weights in the place of where they lie."""
    name = find_class(str(features["class_path"]), "features").__name__
    arguments = dict(features.get("init_args") or {})
    place = weights_argument(arguments)
    if name not in EXTRACTORS.values() or (place is not None and "weights_sha256" not in arguments):
        raise UserError(
            f"the model reads features of {name}; only those of {listing(EXTRACTORS.values())} are exported"
        )
    if place is not None:
        given = str(arguments[place])
        if place == "path" or Path(given).expanduser().exists() or not _ON_THE_HUB.fullmatch(given):
            arguments[place] = Path(given).expanduser().resolve().name
    return {"class_path": name, "init_args": arguments}


def _found_weights(features: Mapping[str, Any], given: str | Path | None) -> dict[str, Any]:
    """The extractor with the weights that are given, or by their name on the Hub, or drawn."""
    paths = {name: f"{module}.{name}" for module, name in EXTRACTORS.items()}
    arguments = dict(features["init_args"])
    place = weights_argument(arguments)
    if place is not None and given is None and not _ON_THE_HUB.fullmatch(arguments[place]):
        raise FileError(
            f"it reads features of a network that it does not bring along, {arguments[place]} (SHA-256 "
            f"{arguments['weights_sha256']}): expected slotbench.from_pretrained(..., features=PATH), where that lies"
        )
    return {
        "class_path": paths[features["class_path"]],
        "init_args": arguments | ({place: str(given)} if place is not None and given else {}),
    }


def _stored(tensor: Tensor, name: str, half: bool) -> Tensor:
    """A tensor of its own memory, which safetensors needs: parts may share theirs."""
    kept = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
    if not half or kept.dtype != torch.float32:
        return kept
    rounded = kept.half()
    if not torch.equal(rounded.isfinite(), kept.isfinite()):
        raise UserError(f"{name} has numbers beyond those of 16 bits; export the model without --half")
    return rounded


def _translated(value: Any, name: str, spelled: Callable[[Any, str], str]) -> Any:
    """An argument with the class of every component in it spelled anew; a model's folder names no other path."""
    if isinstance(value, list | tuple):
        return [_translated(item, name, spelled) for item in value]
    if isinstance(value, dict):
        inner = {key: _translated(item, str(key), spelled) for key, item in value.items() if key != "class_path"}
        return {"class_path": spelled(value["class_path"], name), **inner} if "class_path" in value else inner
    if isinstance(value, str) and may_be_path(name, value) and (name, value) != ("tokenizer_run", TOKENIZER):
        raise UserError(f"the model reads {value} ({name}), a file that an exported model cannot bring along")
    return value


def _registered_name(component: Any, argument: str) -> str:
    """The name under which a class, or the one of an import path, is registered."""
    found = component if isinstance(component, type) else find_class(str(component), argument)
    for kind in registry.kinds_of(found.__name__):
        if registry.load(kind, found.__name__) is found:
            return found.__name__
    raise UserError(
        lines(
            f"{argument} is {found.__module__}.{found.__qualname__}, which is no registered component",
            expected="a class with an entry point in an installed package, or one that a --plugin FILE registers",
        )
    )


def _import_path(name: Any, argument: str) -> str:
    """Where the registered component of a name is defined; it is imported."""
    if not isinstance(name, str) or not name.isidentifier():
        raise FileError(f"{argument} of the model is {str(name)[:200]}; expected the name of a registered component")
    found = registry.load(registry.kind_of(name), name)
    return f"{found.__module__}.{found.__qualname__}"
