"""Whether a checkpoint fits a task, in a sentence that names what differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from lightning.pytorch import LightningModule
from torch import Tensor, nn

from slotbench.interfaces import DataSpec, TemporalCore
from slotbench.pretrained.weights import WeightError

__all__ = ["check_checkpoint"]

_PARTS = ("encoder", "core", "decoder", "tokenizer")
_MOST_NAMED = 3


def check_checkpoint(
    checkpoint: Mapping[str, Any],
    task: LightningModule,
    data_spec: DataSpec,
    parts: Mapping[str, nn.Module],
) -> None:
    """Looks at a checkpoint before its weights are loaded into a task of these parts.

    Raises:
        WeightError: it has other tensors than the task, as another core's has, or one of another shape.
    """
    ours, theirs = task.state_dict(), checkpoint["state_dict"]
    saved = checkpoint.get(task.CHECKPOINT_HYPER_PARAMS_KEY) or {}
    other_frames = _misfit_of_frames(asdict(data_spec), saved.get("data_spec"))
    problem = _misfit(ours, theirs, task.hparams, saved, {name: type(part).__name__ for name, part in parts.items()})
    if problem is not None and task.strict_loading:
        raise WeightError(other_frames or problem)
    core = parts.get("core")
    of_slots = core.slot_parameters() if isinstance(core, TemporalCore) else None
    rows = {f"core.{name}": axis for name, axis in (of_slots or {}).items()}
    for name, tensor in ours.items():
        here, there = list(tensor.shape), list(theirs.get(name, tensor).shape)
        if here == there:
            continue
        axis = rows.get(name)
        if axis is not None and there[:axis] + there[axis + 1 :] == here[:axis] + here[axis + 1 :]:
            raise WeightError(
                f"num_slots is {here[axis]}, and the checkpoint has {there[axis]} slots, which are learned, one vector "
                "each: leave num_slots as it was, or train a core that draws its slots (slot_init gaussian)"
            )
        raise WeightError(
            other_frames
            or f"the checkpoint does not fit the model: {name} has the shape {there} there and {here} here; leave the "
            "model and the size of its input as they were in training"
        )


def _misfit(
    ours: Mapping[str, Tensor],
    theirs: Mapping[str, Tensor],
    our_arguments: Mapping[str, Any],
    their_arguments: Mapping[str, Any],
    parts: Mapping[str, str],
) -> str | None:
    """Why the weights `theirs` cannot be loaded into a model with the weights `ours`; None if they can, by their names.

    Shapes are not looked at.

    Args:
        ours: tensors of the model.
        theirs: tensors of the checkpoint.
        our_arguments: what the task was built from, nested, as the configuration has it; may be empty.
        their_arguments: the same of the task that was saved.
        parts: the class of the model's encoder, core and decoder.
    """
    missing = [name for name in ours if name not in theirs]
    unknown = [name for name in theirs if name not in ours]
    if not missing and not unknown:
        return None
    for part, here in parts.items():
        there = _class(their_arguments.get(part))
        if there and here != there:
            return (
                f"the checkpoint has the {part} {there}, and the configuration names {here}: leave model.{part} as it "
                f"was in training, or take a checkpoint of a run with {here}"
            )
    differing = list(_differences(dict(our_arguments), dict(their_arguments)))
    if our_arguments and differing:
        what = "; ".join(differing[:_MOST_NAMED])
        return f"the checkpoint does not fit the model: {what}; leave the model as it was in training"
    names = [f"{_some(missing)} only in the model"] if missing else []
    names += [f"{_some(unknown)} only in the checkpoint"] if unknown else []
    return f"the checkpoint does not fit the model: {', '.join(names)}; leave the model as it was in training"


def _misfit_of_frames(ours: Mapping[str, Any], theirs: Any) -> str | None:
    """How the frames that the data give differ from those of the training, and what to type; None if they do not.

    Args:
        ours: the `DataSpec` of the data, as a dictionary.
        theirs: that of the training, if the checkpoint has it.
    """
    here = ours["input"]
    there = theirs.get("input") if isinstance(theirs, dict) else None
    if not isinstance(there, dict):
        return None
    channels, size = (here["channels"], there.get("channels")), (_sides(here), _sides(there))
    advice = []
    if channels[0] != channels[1]:
        advice.append(f"data of {_colours(channels[1])} (VideoFolder: --data.channels {channels[1]})")
    if size[0] != size[1]:
        advice.append(f"frames of {size[1]} pixels (--data.resolution {there.get('height')})")
    if not advice:
        return None
    return (
        "the checkpoint does not fit the model, for the size of its input is another one: it was trained on frames of "
        f"{size[1]} pixels with {_colours(channels[1])}, and the data give {size[0]} with {_colours(channels[0])}; "
        f"choose {' and '.join(advice)}"
    )


def _sides(spec: Mapping[str, Any]) -> str:
    return f"{spec.get('height')} x {spec.get('width')}"


def _colours(channels: Any) -> str:
    names = {1: "1 channel (grey)", 3: "3 channels (colour)"}
    return names.get(channels, f"{channels} channels")


def _class(part: Any) -> str | None:
    path = part.get("class_path") if isinstance(part, dict) else None
    return path.rpartition(".")[2] if isinstance(path, str) else None


def _differences(here: Any, there: Any, key: str = "model") -> Iterator[str]:
    """Arguments of the parts that differ, each with both values."""
    if isinstance(here, dict) and isinstance(there, dict):
        for name in {**here, **there}:
            if key != "model" or name in _PARTS:
                at = key if name == "init_args" else f"{key}.{name}"
                yield from _differences(here.get(name), there.get(name), at)
    elif here != there and (here is None or there is None or not isinstance(here, dict | list)):
        yield f"{key} is {here} here and {there} there"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
