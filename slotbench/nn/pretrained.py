"""Fixed networks whose weights the user brings, in the naming under which such files are passed on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from torch import Tensor, nn

from slotbench.nn.weights import WeightError, read_tensors

__all__ = ["freeze", "read_files", "select", "state_shapes"]

_SHOWN = 4


def read_files(paths: Iterable[str | Path], what: str) -> dict[str, Tensor]:
    """The tensors of all files together, by name.

    Args:
        paths: files that `torch.save` wrote from a state dict.
        what: what they are for, in an error.

    Raises:
        WeightError: there is no such file, or it is not of this kind.
    """
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

    Args:
        tensors: what there is.
        shapes: what there has to be.
        what: what they make up, in an error: "the features of AlexNet".
        naming: whose names these are, in an error: "torchvision's".
        source: where `tensors` are from, in an error.

    Raises:
        WeightError: some are missing, or of another shape; the message names them.
    """
    if missing := [name for name in shapes if name not in tensors]:
        raise WeightError(f"not all of {what} is in {source}: missing are, in {naming} naming, {_some(missing)}")
    found = {name: tensors[name] for name in shapes}
    if other := [
        f"{name} is {_shape(tuple(found[name].shape))} and has to be {_shape(shape)}"
        for name, shape in shapes.items()
        if tuple(found[name].shape) != shape
    ]:
        raise WeightError(f"what is in {source} is not {what}: {_some(other)}")
    return found


def state_shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    """Names and shapes of what determines a network's output: its state without the counters of batch norms."""
    state = module.state_dict()
    return {name: tuple(value.shape) for name, value in state.items() if not name.endswith("num_batches_tracked")}


def freeze(module: nn.Module) -> None:
    """Makes a network one that is only used: in evaluation mode, without gradients."""
    module.eval().requires_grad_(False)


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a scalar"


def _some(parts: list[str]) -> str:
    more = f" and {len(parts) - _SHOWN} more" if len(parts) > _SHOWN else ""
    return ", ".join(parts[:_SHOWN]) + more
