"""Whether a checkpoint fits a task, in a sentence that names what differs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

from slotbench.interfaces import TemporalCore
from slotbench.pretrained.weights import WeightError

if TYPE_CHECKING:
    from slotbench.tasks.task import Task

__all__ = ["check_checkpoint"]


def check_checkpoint(checkpoint: Mapping[str, Any], task: Task) -> None:
    """Looks at a checkpoint before its weights are loaded into a task."""
    ours, theirs = task.state_dict(), checkpoint["state_dict"]
    saved = checkpoint.get(task.CHECKPOINT_HYPER_PARAMS_KEY) or {}
    names = {name: name in theirs for name in ours} | {name: False for name in theirs if name not in ours}
    differing = [name for name, shared in names.items() if not shared] if task.strict_loading else []
    shapes = {name: (there.shape, ours[name].shape) for name, there in theirs.items() if name in ours}
    differing += [name for name, (there, here) in shapes.items() if there != here]
    if not differing:
        return
    for part, here in {name: type(part).__name__ for name, part in task.parts.items()}.items():
        there = str((saved.get(part) or {}).get("class_path", here)).rpartition(".")[2]
        if there != here:
            raise WeightError(
                f"the checkpoint has the {part} {there}, and the configuration names {here}: leave model.{part} as it "
                f"was in training, or take a checkpoint of a run with {here}"
            )
    was, is_now = ((saved.get("data_spec") or {}).get("input") or {}), vars(task.data_spec.input)
    sizes = [" x ".join(str(spec.get(name)) for name in ("channels", "height", "width")) for spec in (was, is_now)]
    if was and sizes[0] != sizes[1]:
        raise WeightError(
            f"the checkpoint does not fit the model: it was trained on frames of {sizes[0]} (channels, height, width), "
            f"and the data give {sizes[1]}; set data.resolution and data.channels as they were in training"
        )
    raise WeightError(_difference(differing[0], ours, theirs, task))


def _difference(name: str, ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], task: Task) -> str:
    if name not in theirs or name not in ours:
        where = "model" if name in ours else "checkpoint"
        return f"the checkpoint does not fit the model: {name} only in the {where}; leave the model as it was"
    here, there = list(ours[name].shape), list(theirs[name].shape)
    core = task.parts.get("core")
    rows = (core.slot_parameters() or {}) if isinstance(core, TemporalCore) else {}
    axis = rows.get(name.removeprefix("core."))
    if axis is not None and there[:axis] + there[axis + 1 :] == here[:axis] + here[axis + 1 :]:
        return (
            f"num_slots is {here[axis]}, and the checkpoint has {there[axis]} slots, which are learned, one vector "
            "each: leave num_slots as it was, or train a core that draws its slots (slot_init gaussian)"
        )
    return (
        f"the checkpoint does not fit the model: {name} has the shape {there} there and {here} here; leave the model "
        "and the size of its input as they were in training"
    )
