"""Parameter trees of flax: reading one, and loading what becomes of it into a model without anything left over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from slotbench.errors import FileError
from slotbench.io import read_npz

__all__ = ["Tree", "load_all", "read_arrays", "some"]

Tree = Mapping[str, Any]
"""Arrays by their names in the authors' tree, joined by "/"."""


def read_arrays(source: str | Path | Tree) -> dict[str, np.ndarray]:
    """The arrays of a tree by name: of an .npz file, or of such a mapping."""
    if isinstance(source, str | Path):
        return read_npz(source)
    return {name: np.asarray(value) for name, value in source.items()}


def load_all(model: nn.Module, found: Mapping[str, Tensor], own: Mapping[str, Tensor], advice: str) -> None:
    """Loads tensors into a model, in its own dtype; each of `own`, and no other, has to be there in its shape."""
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
