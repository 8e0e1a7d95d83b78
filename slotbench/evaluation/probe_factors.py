"""Factors: the entries of a batch's `objects` that probes predict from slots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

__all__ = ["KNOWN", "POSITIONS", "Factor", "Kind", "ProbeError", "by_object", "choose_factors", "count_objects"]

Kind = Literal["categorical", "continuous"]

KNOWN: dict[str, Kind] = {
    # 0..1 in the frame (MOVi)
    "image_positions": "continuous",
    # in the simulator's units: three-dimensional, or two-dimensional for balls and digits
    "positions": "continuous",
    "velocities": "continuous",
    "color": "continuous",
    "scale": "continuous",
    "radii": "continuous",
    "masses": "continuous",
    "shape_label": "categorical",
    "size_label": "categorical",
    "color_label": "categorical",
    "material_label": "categorical",
    "category": "categorical",
    "digits": "categorical",
}
"""The entries that are probed wherever a data set has them."""

POSITIONS = ("image_positions", "positions")
"""Where an object is, the first of these that a data set has: what slots are matched by if not by masks."""

_TIMED = ("image_positions", "positions", "velocities")


class ProbeError(ValueError):
    """A task or a data set that cannot be probed as asked; the message says what would be needed."""


@dataclass(frozen=True)
class Factor:
    """One attribute of the objects, and whether it is a class or a number."""

    name: str
    kind: Kind


def choose_factors(
    names: Iterable[str], categorical: Iterable[str] = (), continuous: Iterable[str] = ()
) -> list[Factor]:
    """The factors of a data set: the known ones among the entries of its `objects`, and those that are asked for."""
    names = list(names)
    asked: dict[str, Kind] = {**dict.fromkeys(categorical, "categorical"), **dict.fromkeys(continuous, "continuous")}
    for name in asked:
        if name not in names:
            raise ProbeError(f"the data has no {name} of its objects; it has {', '.join(sorted(names)) or 'nothing'}")
    known = [name for name in KNOWN if name in names]
    if "shape_label" in known and "category" in known:
        known.remove("category")  # of sets that have both it is the shape again
    kinds = {name: KNOWN[name] for name in known} | asked
    if not kinds:
        raise ProbeError(
            "this data set says nothing about its objects that could be read off a slot: it needs entries such as "
            f"{', '.join(list(KNOWN)[:3])} or shape_label in `objects`, and it has {', '.join(sorted(names)) or 'none'}"
        )
    return [Factor(name, kind) for name, kind in kinds.items()]


def count_objects(objects: Mapping[str, Tensor], steps: int) -> int:
    """Objects that the annotations of a batch with clips of so many frames have room for."""
    if "present" in objects:
        return objects["present"].shape[1]
    for name in KNOWN:
        if name in objects:
            return objects[name].shape[2 if name in _TIMED else 1]
    for value in objects.values():
        if value.ndim >= 3 and value.shape[1] == steps:
            return value.shape[2]
    raise ProbeError("`objects` does not say how many objects there are: it needs an entry present, or positions")


def by_object(name: str, value: Tensor, steps: int, num_objects: int) -> Tensor:
    """An entry as "batch time objects values"; with a time axis of length one if it does not change."""
    timed = value.ndim >= 3 and value.shape[2] == num_objects and value.shape[1] >= steps
    if name in KNOWN:
        timed = timed and name in _TIMED
    if timed:
        return value[:, :steps].reshape(len(value), steps, num_objects, -1)
    if value.ndim >= 2 and value.shape[1] == num_objects:
        return value.reshape(len(value), 1, num_objects, -1)
    raise ProbeError(
        f"{name} has shape {tuple(value.shape)}; expected (batch, {steps} frames, {num_objects} objects, ...) or "
        f"(batch, {num_objects} objects, ...)"
    )
