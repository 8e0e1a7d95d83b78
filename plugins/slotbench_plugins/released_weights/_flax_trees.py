"""Parameter trees of flax: reading one, and loading what becomes of it into a model without anything left over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from slotbench.errors import FileError
from slotbench.io import read_npz

__all__ = ["Tree", "TreeMissingError", "load_all", "read_arrays", "some"]

Tree = Mapping[str, Any]
"""Arrays by their names in the authors' tree."""


class TreeMissingError(FileError, FileNotFoundError):
    """There is no file where a parameter tree was looked for."""


def read_arrays(source: str | Path | Tree, nested: str) -> dict[str, np.ndarray]:
    """The arrays of a tree by name.

    Args:
        source: an .npz file of arrays under names joined by "/", or such a mapping.
        nested: what the authors' variables are called in the advice that tells how to write such a file.

    Raises:
        TreeMissingError: there is no such file.
        FileError: it is damaged.
    """
    if not isinstance(source, str | Path):
        return {name: np.asarray(value) for name, value in source.items()}
    path = Path(source)
    if not path.is_file():
        raise TreeMissingError(
            f"no parameter tree at {path}: write one from the authors' parameters with "
            f'numpy.savez(path, **flax.traverse_util.flatten_dict({nested}, sep="/"))'
        )
    return read_npz(path)


def load_all(model: nn.Module, found: Mapping[str, Tensor], own: Mapping[str, Tensor], advice: str) -> None:
    """Loads tensors into a model, each of which has to have its place there.

    Args:
        model: takes them in its own dtype.
        found: what is to be loaded, by names of the model.
        own: the part of the model's state dict that is to be filled.
        advice: what to do where they differ, a sentence.

    Raises:
        FileError: names or shapes differ.
    """
    wrong = [f"{name} is not in the tree" for name in own.keys() - found.keys()]
    wrong += [f"{name} is not in the model" for name in found.keys() - own.keys()]
    for name in own.keys() & found.keys():
        there, here = list(found[name].shape), list(own[name].shape)
        wrong += [f"{name} has the shape {there} in the tree and {here} in the model"] if there != here else []
    if wrong:
        raise FileError(f"the tree is not of this model: {some(sorted(wrong))}. {advice}")
    model.load_state_dict(found, strict=False)


def some(names: Iterable[str], limit: int = 4) -> str:
    """The first of some names, and how many more there are."""
    names = list(names)
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "") or "nothing"
