"""Whether a checkpoint fits a task, in a sentence that names what differs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from slotbench.interfaces import TemporalCore
from slotbench.pretrained.weights import WeightError

if TYPE_CHECKING:
    from slotbench.tasks.task import Task

__all__ = ["check_checkpoint"]


def check_checkpoint(checkpoint: Mapping[str, Any], task: Task) -> None:
    """Looks at a checkpoint before its weights are loaded into a task."""
    ours, theirs = (
        {name: list(value.shape) for name, value in held.items()}
        for held in (task.state_dict(), checkpoint["state_dict"])
    )
    names = ours | theirs if task.strict_loading else [name for name in ours if name in theirs]
    name = next((name for name in names if ours.get(name) != theirs.get(name)), None)
    if name is None:
        return
    saved = checkpoint.get(task.CHECKPOINT_HYPER_PARAMS_KEY) or {}
    for part, module in task.parts.items():
        named = type(module).__name__
        trained = str((saved.get(part) or {}).get("class_path", named)).rpartition(".")[2]
        if trained != named:
            raise WeightError(
                f"the checkpoint has the {part} {trained}, and the configuration names {named}: leave model.{part} as "
                f"it was in training, or take a checkpoint of a run with {named}"
            )
    misfit, here, there = "the checkpoint does not fit the model", ours.get(name), theirs.get(name)
    was, is_now = ((saved.get("data_spec") or {}).get("input") or {}), vars(task.data_spec.input)
    frames = [" x ".join(str(spec.get(axis)) for axis in ("channels", "height", "width")) for spec in (was, is_now)]
    if was and frames[0] != frames[1]:
        raise WeightError(
            f"{misfit}: it was trained on frames of {frames[0]} (channels, height, width), and the data give "
            f"{frames[1]}; set data.resolution and data.channels as they were in training"
        )
    if here is None or there is None:
        where = "checkpoint" if here is None else "model"
        raise WeightError(f"{misfit}: {name} only in the {where}; leave the model as it was")
    core = task.parts.get("core")
    axis = (core.slot_parameters() or {}).get(name.removeprefix("core.")) if isinstance(core, TemporalCore) else None
    if axis is not None and there[:axis] + there[axis + 1 :] == here[:axis] + here[axis + 1 :]:
        raise WeightError(
            f"num_slots is {here[axis]}, and the checkpoint has {there[axis]} slots, which are learned, one vector "
            "each: leave num_slots as it was, or train a core that draws its slots (slot_init gaussian)"
        )
    raise WeightError(
        f"{misfit}: {name} has the shape {there} there and {here} here; leave the model and the size of its input as "
        "they were in training"
    )
