"""Starting a model from the weights of another run, as far as they fit."""

from __future__ import annotations

import pickle
import struct
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from slotbench import checksums
from slotbench.errors import FileError
from slotbench.files import open_regular

__all__ = ["WeightError", "WeightReport", "find_checkpoint", "match_weights", "read_tensors"]

# what torch raises for files that are damaged
_DAMAGED = (
    RuntimeError,
    AssertionError,
    EOFError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    OSError,
    MemoryError,
    struct.error,
)

LAST_CHECKPOINT = Path("checkpoints") / "last.ckpt"


class WeightError(FileError):
    """There are no usable weights where they were looked for."""


@dataclass(frozen=True)
class WeightReport:
    """What became of every tensor when weights were taken over by name.

    Attributes:
        checkpoint: the file they came from.
        loaded: names that were taken over.
        missing: names of the model that the checkpoint lacks; they keep their initial values.
        mismatched: names in both whose shapes differ, with (the model's, the checkpoint's) shape; initial values stay.
        unused: names in the checkpoint that the model lacks.
        values: numbers in the loaded tensors.
        total: numbers in all tensors of the model.
    """

    checkpoint: Path
    loaded: tuple[str, ...]
    missing: tuple[str, ...]
    mismatched: dict[str, tuple[tuple[int, ...], tuple[int, ...]]]
    unused: tuple[str, ...]
    values: int
    total: int

    def __str__(self) -> str:
        count = len(self.loaded) + len(self.missing) + len(self.mismatched)
        lines = [
            f"Weights from {self.checkpoint}: {len(self.loaded)} of {count} tensors "
            f"({self.values:,} of {self.total:,} values) taken over."
        ]
        if self.mismatched:
            shapes = [
                f"{name} {_shape(ours)}, there {_shape(theirs)}" for name, (ours, theirs) in self.mismatched.items()
            ]
            lines.append(f"  other shape, left at their initial values: {_some(shapes)}")
        if self.missing:
            lines.append(f"  not in the checkpoint, left at their initial values: {_some(list(self.missing))}")
        if self.unused:
            lines.append(f"  in the checkpoint only: {_some(list(self.unused))}")
        return "\n".join(lines)


def find_checkpoint(path: str | Path) -> Path:
    """The checkpoint that a path means: the file itself, or a run folder's `checkpoints/last.ckpt`.

    Raises:
        WeightError: there is nothing at `path`, or it is a folder without a checkpoint.
    """
    path = Path(path)
    if path.is_file():
        return path
    if not path.exists():
        raise WeightError(f"no weights at {path}: there is no such path; expected a run folder or a checkpoint file")
    if (path / LAST_CHECKPOINT).is_file():
        return path / LAST_CHECKPOINT
    others = sorted(path.glob("checkpoints/*.ckpt")) + sorted(path.glob("*.ckpt"))
    if others:
        raise WeightError(f"{path} has no {LAST_CHECKPOINT}; give the file itself: {', '.join(map(str, others[:3]))}")
    if (path / "run.json").is_file():
        raise WeightError(f"the run at {path} has saved no checkpoint yet: expected {path / LAST_CHECKPOINT}")
    runs = sorted((found.parents[1] for found in path.glob(f"*/{LAST_CHECKPOINT}")), reverse=True)
    hint = f"; did you mean {' or '.join(map(str, runs[:3]))}?" if runs else ""
    raise WeightError(f"{path} is not a run folder: expected {path / LAST_CHECKPOINT}{hint}")


def match_weights(module: nn.Module, path: str | Path) -> WeightReport:
    """Copies into `module`, in place, every tensor of a checkpoint whose name and shape agree; the rest stays as it is.

    The file is read with `weights_only=True`, so that a checkpoint from a stranger cannot run code.

    Args:
        module: the model to start; parameters and persistent buffers are both matched.
        path: a run folder or a checkpoint, either Lightning's or a bare state dict.

    Returns:
        What was loaded and what was not; print it.

    Raises:
        WeightError: there is no checkpoint, it cannot be read safely, or not one tensor of it fits.
    """
    checkpoint = find_checkpoint(path)
    theirs = read_tensors(checkpoint)
    ours = module.state_dict()
    loaded, missing, mismatched = [], [], {}
    for name, tensor in ours.items():
        if name not in theirs:
            missing.append(name)
        elif theirs[name].shape != tensor.shape:
            mismatched[name] = (tuple(tensor.shape), tuple(theirs[name].shape))
        else:
            loaded.append(name)
    report = WeightReport(
        checkpoint=checkpoint,
        loaded=tuple(loaded),
        missing=tuple(missing),
        mismatched=mismatched,
        unused=tuple(name for name in theirs if name not in ours),
        values=sum(ours[name].numel() for name in loaded),
        total=sum(tensor.numel() for tensor in ours.values()),
    )
    if not loaded:
        raise WeightError(f"nothing in {checkpoint} fits this model.\n{report}")
    with torch.no_grad():
        # state_dict hands out views on the module's own storage
        for name in loaded:
            ours[name].copy_(theirs[name])
    return report


def read_tensors(checkpoint: Path) -> dict[str, Tensor]:
    """The tensors of a file by name, those under 'state_dict' if there is such a dict; nothing in it is run.

    Raises:
        WeightError: the file cannot be read safely, or holds no tensors by name.
    """
    try:
        checksums.verify(checkpoint)
        with open_regular(checkpoint) as file:
            # the older format, in which weights of others are passed on, is a pickle and no archive
            is_archive = file.read(2) == b"PK"
        if is_archive:
            checksums.check_archive(checkpoint)
        content = torch.load(checkpoint, map_location="cpu", weights_only=True)
    except FileError as error:
        raise WeightError(str(error)) from error
    except pickle.UnpicklingError as error:
        reason = str(error).partition("\n")[0]
        raise WeightError(
            f"{checkpoint} cannot be read as plain tensors ({reason}); expected a checkpoint that "
            "slotbench, or torch.save from a state dict, wrote"
        ) from error
    except _DAMAGED as error:
        reason = str(error).partition("\n")[0] or "it ends early"
        raise WeightError(f"{checkpoint} is not a complete checkpoint: {reason}") from error
    state = content.get("state_dict", content) if isinstance(content, dict) else None
    held = state.items() if isinstance(state, dict) else ()
    tensors = {name: value for name, value in held if isinstance(name, str) and isinstance(value, Tensor)}
    if not tensors:
        raise WeightError(
            f"{checkpoint} holds no state dict: expected tensors by name, or such a dict under 'state_dict'"
        )
    return tensors


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _some(names: list[str], limit: int = 6) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
