"""Weights from files: those of another run, as far as they fit, and those of a frozen network, all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from slotbench.errors import FileError

Network = TypeVar("Network", bound=nn.Module)

LAST_CHECKPOINT = Path("checkpoints") / "last.ckpt"


class WeightError(FileError):
    """There are no usable weights where they were looked for."""


@dataclass(frozen=True)
class WeightReport:
    """What became of every tensor when weights were taken over by name.

    `missing` are names that the checkpoint lacks, `unused` those that the model lacks; `mismatched` has the model's and
    the checkpoint's shape of a name; `values` and `total` count numbers, loaded and in all of the model.
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
        taken = f"{len(self.loaded)} of {count} tensors ({self.values:,} of {self.total:,} values) taken over."
        rest: dict[str, Sequence[str]] = {
            "other shape, left at their initial values": [
                f"{name} {_shape(ours)}, there {_shape(its)}" for name, (ours, its) in self.mismatched.items()
            ],
            "not in the checkpoint, left at their initial values": self.missing,
            "in the checkpoint only": self.unused,
        }
        told = [f"  {what}: {_some(names)}" for what, names in rest.items() if names]
        return "\n".join([f"Weights from {self.checkpoint}: {taken}", *told])


def find_checkpoint(path: str | Path) -> Path:
    """The checkpoint that a path means: the file itself, or a run folder's `checkpoints/last.ckpt`."""
    path = Path(path)
    last = path / LAST_CHECKPOINT
    if path.is_file() or last.is_file():
        return path if path.is_file() else last
    if not path.exists():
        raise WeightError(f"no weights at {path}: there is no such path; expected a run folder or a checkpoint file")
    others = sorted((*path.glob("checkpoints/*.ckpt"), *path.glob("*.ckpt"), *path.glob(f"*/{LAST_CHECKPOINT}")))
    hint = f"; there is {', '.join(map(str, others[:3]))}" if others else ""
    raise WeightError(f"{path} has no {LAST_CHECKPOINT}: expected a run folder or a checkpoint file{hint}")


def match_weights(module: nn.Module, path: str | Path) -> WeightReport:
    """Copies into `module`, in place, every tensor of a checkpoint whose name and shape agree; the rest stays as it is.

    Args:
        module: the model to start; parameters and persistent buffers are both matched.
        path: a run folder or a checkpoint, either Lightning's or a bare state dict.
    """
    checkpoint = find_checkpoint(path)
    theirs = read_tensors(checkpoint)
    ours = module.state_dict()
    both = {name: (tuple(ours[name].shape), tuple(theirs[name].shape)) for name in ours if name in theirs}
    loaded = [name for name, (own, other) in both.items() if own == other]
    report = WeightReport(
        checkpoint=checkpoint,
        loaded=tuple(loaded),
        missing=tuple(name for name in ours if name not in theirs),
        mismatched={name: shapes for name, shapes in both.items() if shapes[0] != shapes[1]},
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
    """The tensors of a file by name, those under 'state_dict' if there is such a dict; nothing in it is run."""
    try:
        content = torch.load(checkpoint, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever torch and pickle raise for a file that is damaged, or has more than tensors
        reason = str(error).partition("\n")[0] or "it ends early"
        raise WeightError(f"{checkpoint} cannot be read as plain tensors ({reason})") from error
    state = content.get("state_dict", content) if isinstance(content, dict) else None
    held = state.items() if isinstance(state, dict) else ()
    tensors = {name: value for name, value in held if isinstance(name, str) and isinstance(value, Tensor)}
    if not tensors:
        raise WeightError(f"{checkpoint} holds no state dict: expected tensors by name, or so under 'state_dict'")
    return tensors


def read_files(paths: Iterable[str | Path], what: str) -> dict[str, Tensor]:
    """The tensors of all files together, by name; `what` they are for is said in an error."""
    tensors: dict[str, Tensor] = {}
    for path in map(Path, paths):
        if not path.is_file():
            raise WeightError(f"no weights for {what} at {path}: expected a file with a state dict")
        tensors |= read_tensors(path)
    return tensors


def select(
    tensors: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]], what: str, naming: str, source: str
) -> dict[str, Tensor]:
    """Of `tensors` those that `shapes` names, all of them and nothing else.

    A `WeightError` about missing ones, or other shapes, says what they make up ("the features of AlexNet"), whose names
    these are ("torchvision's") and where `tensors` are from.
    """
    if missing := [name for name in shapes if name not in tensors]:
        raise WeightError(f"not all of {what} is in {source}: missing are, in {naming} naming, {_some(missing, 4)}")
    found = {name: tensors[name] for name in shapes}
    if other := [
        f"{name} is {_shape(tuple(found[name].shape))} and has to be {_shape(shape)}"
        for name, shape in shapes.items()
        if tuple(found[name].shape) != shape
    ]:
        raise WeightError(f"what is in {source} is not {what}: {_some(other, 4)}")
    return found


def load_frozen(network: Network, tensors: Mapping[str, Tensor], what: str, naming: str, source: str) -> Network:
    """`network` itself with given weights, frozen; counters of batch norms may be missing. See `select`."""
    state = network.state_dict()
    shapes = {name: tuple(value.shape) for name, value in state.items() if not name.endswith("num_batches_tracked")}
    network.load_state_dict(select(tensors, shapes, what, naming, source), strict=False)
    freeze(network)
    return network


def freeze(module: nn.Module) -> None:
    """Puts a network into evaluation mode and turns its gradients off."""
    module.eval().requires_grad_(False)


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a scalar"


def _some(names: Sequence[str], limit: int = 6) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
