"""Matching of objects and slots: one slot per object, and one object per slot.

By masks, each object has the slot that covers it best (SlotSSM, Section 7.3). By position, without masks, the slots
from which positions can be read best (PSB, Appendix E.1, after Dang-Nhu, 2021). Both need the best of all injective
maps; the cost of a map is a sum over objects, so the Hungarian algorithm finds it without enumerating them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Bool, Float, Integer
from scipy.optimize import linear_sum_assignment
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from slotbench.evaluation.probe_heads import Head, fit_linear
from slotbench.metrics.segmentation import pairwise_iou

__all__ = ["MatchScope", "PositionMatch", "PositionProbe", "match_by_masks", "match_by_position", "match_with_probe"]

MatchScope = Literal["video", "frame"]
"""Whether an object keeps its slot through the clip, or may have another one in every frame."""

Maps = Integer[Tensor, "clips time objects"]
"""The slot of each object, -1 for one that has none."""

_MOST_ROUNDS = 100


def match_by_masks(tables: Integer[Tensor, "clips time true slots"], scope: MatchScope = "video") -> Maps:
    """The injective map with the largest sum of IoUs between objects and slots.

    Objects that are nowhere to be seen in a clip (in a frame, for the scope "frame") have no slot, and neither have
    those that are left over where objects are more than slots.
    """
    steps = tables.shape[1]
    if scope == "video":
        tables = tables.sum(1, keepdim=True)
    iou = pairwise_iou(tables)[..., 1:, :]
    seen = tables[..., 1:, :].sum(-1) > 0
    return _assign(-iou, seen).expand(-1, steps, -1)


@dataclass(frozen=True)
class PositionProbe:
    """A linear head for positions, and the deviation of each coordinate over the rows that it was fitted to."""

    head: Head
    scale: Float[Tensor, " coordinates"]


@dataclass(frozen=True)
class PositionMatch:
    """Slots by object, the probe that fits them, and its standardised squared error at the end of each restart."""

    maps: Maps
    probe: PositionProbe
    errors: list[float]


def match_by_position(
    slots: Float[Tensor, "clips time slots dim"],
    positions: Float[Tensor, "clips time objects coordinates"],
    visible: Bool[Tensor, "clips time objects"],
    scope: MatchScope = "video",
    restarts: int = 5,
    seed: int = 0,
) -> PositionMatch:
    """Maps and a linear probe of position that fit each other, the best of some random starts.

    From random maps on, a probe is fitted to the slots that objects have, and each clip gets the map under which the
    probe errs least, until no map changes. The error never rises, so this ends; where, depends on the start. Objects
    count where they are visible.
    """
    steps = slots.shape[1]
    if scope == "frame":
        slots, positions, visible = (x.flatten(0, 1)[:, None] for x in (slots, positions, visible))
    generator = torch.Generator().manual_seed(seed)
    best: tuple[float, Tensor, PositionProbe] | None = None
    errors = []
    for _ in range(restarts):
        random = torch.rand(len(slots), 1, positions.shape[2], slots.shape[2], generator=generator)
        maps = _assign(random, visible.any(1, keepdim=True))
        for _ in range(_MOST_ROUNDS):
            probe = _position_probe(slots, positions, visible, maps)
            before, maps = maps, match_with_probe(slots, positions, visible, probe)[:, :1]
            if torch.equal(before, maps):
                break
        errors.append(_error(slots, positions, visible, maps, probe))
        if best is None or errors[-1] < best[0]:
            best = (errors[-1], maps, probe)
    assert best is not None
    maps = best[1].expand(-1, slots.shape[1], -1)
    if scope == "frame":
        maps = rearrange(maps, "(clips time) 1 objects -> clips time objects", time=steps)
    return PositionMatch(maps, best[2], errors)


def match_with_probe(
    slots: Float[Tensor, "clips time slots dim"],
    positions: Float[Tensor, "clips time objects coordinates"],
    visible: Bool[Tensor, "clips time objects"],
    probe: PositionProbe,
    scope: MatchScope = "video",
) -> Maps:
    """The map of each clip under which a probe that is given errs least: for clips that it was not fitted to."""
    steps = slots.shape[1]
    read = probe.head(slots.flatten(0, 2)).unflatten(0, slots.shape[:3])
    cost = _costs(read / probe.scale, positions.double() / probe.scale, visible)
    seen = visible
    if scope == "video":
        cost, seen = cost.sum(1, keepdim=True), visible.any(1, keepdim=True)
    return _assign(cost, seen).expand(-1, steps, -1)


def _costs(read: Tensor, positions: Tensor, visible: Tensor) -> Tensor:
    """Squared distance of what is read off each slot from each object's position: "clips time objects slots"."""
    distance = torch.cdist(positions, read, compute_mode="donot_use_mm_for_euclid_dist").square()
    return distance * visible[..., None]


def _assign(cost: Float[Tensor, "clips time objects slots"], seen: Bool[Tensor, "clips time objects"]) -> Maps:
    """The cheapest injective map of the objects that are seen."""
    maps = np.full(seen.shape, -1, dtype=np.int64)
    costs, present = cost.double().cpu().numpy(), seen.cpu().numpy()
    for clip, step in np.ndindex(*present.shape[:2]):
        (objects,) = present[clip, step].nonzero()
        rows, columns = linear_sum_assignment(costs[clip, step, objects])
        maps[clip, step, objects[rows]] = columns
    return torch.from_numpy(maps)


def _matched(slots: Tensor, positions: Tensor, visible: Tensor, maps: Tensor) -> tuple[Tensor, Tensor]:
    """Slots and positions of the objects that are visible and have a slot, one row each."""
    maps = maps.expand(-1, slots.shape[1], -1)
    rows = visible & (maps >= 0)
    clip, step, _ = rows.nonzero(as_tuple=True)
    return slots[clip, step, maps[rows]], positions[rows]


def _position_probe(slots: Tensor, positions: Tensor, visible: Tensor, maps: Tensor) -> PositionProbe:
    x, y = _matched(slots, positions, visible, maps)
    return PositionProbe(fit_linear(x, y, "continuous"), torch.from_numpy(StandardScaler().fit(y.numpy()).scale_))


def _error(slots: Tensor, positions: Tensor, visible: Tensor, maps: Tensor, probe: PositionProbe) -> float:
    x, y = _matched(slots, positions, visible, maps)
    return float(((probe.head(x) - y.double()) / probe.scale).square().mean())
