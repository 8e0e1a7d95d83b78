"""Baselines of object discovery: segmentations of a clip by stripes, grids and k-means, without learning.

They score well above zero: on short clips of a few slow objects, stripes and grids already put most of an object's
pixels together, and clusters of colour do more, those of a frozen network's features more yet. None of these sees more
than the clip it segments.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from jaxtyping import Float, Integer, UInt8
from scipy.cluster.vq import kmeans2, vq
from torch import Tensor
from torch.nn.functional import one_hot

from slotbench.interfaces import unit_frames
from slotbench.metrics.contingency import masks_to_labels
from slotbench.metrics.linked_segments import linked_labels

__all__ = [
    "FEATURE_SEGMENTATIONS",
    "POSITION_WEIGHT",
    "cells_to_pixels",
    "cluster_features",
    "feature_segmentations",
    "grid_labels",
    "kmeans_labels",
    "kmeans_stream_labels",
    "nearest_grid",
    "one_slot_labels",
    "segmentation_names",
    "simple_segmentations",
    "stripe_labels",
]

Frames = Float[Tensor, "batch time channels height width"] | UInt8[Tensor, "batch time channels height width"]
Labels = Integer[Tensor, "batch time height width"]

FEATURE_SEGMENTATIONS = ("k-means features", "k-means features, clip", "k-means features, linked")
"""The names in `feature_segmentations`."""

POSITION_WEIGHT = 1.5
"""Of a pixel's place beside its colour in "k-means colour + position"."""

_STARTS, _ROUNDS, _MOST_POINTS, _MOST_FRAMES = 2, 20, 16_384, 64


def simple_segmentations(frames: Frames, num_slots: int) -> dict[str, Labels]:
    """Baselines of a model with `num_slots` slots: label maps by name.

    "one slot", "stripes", "grid RxC" with the rows and columns of `nearest_grid`, "k-means colour", and "k-means colour
    + position" with a weight of `POSITION_WEIGHT` for positions.

    Example:
        >>> list(simple_segmentations(torch.rand(1, 2, 3, 8, 8), num_slots=7))
        ['one slot', 'stripes', 'grid 2x3', 'k-means colour', 'k-means colour + position']
    """
    return {name: segment(frames) for name, segment in _segmentations(num_slots).items()}


def segmentation_names(num_slots: int) -> list[str]:
    """The names in `simple_segmentations`."""
    return list(_segmentations(num_slots))


def _segmentations(num_slots: int) -> dict[str, Callable[[Frames], Labels]]:
    rows, cols = nearest_grid(num_slots)
    return {
        "one slot": one_slot_labels,
        "stripes": partial(stripe_labels, num_slots=num_slots),
        f"grid {rows}x{cols}": partial(grid_labels, rows=rows, cols=cols),
        "k-means colour": partial(kmeans_labels, num_slots=num_slots, position_weight=0.0),
        "k-means colour + position": partial(kmeans_labels, num_slots=num_slots, position_weight=POSITION_WEIGHT),
    }


def feature_segmentations(
    features: Float[Tensor, "batch time dim rows cols"], num_slots: int, size: tuple[int, int]
) -> dict[str, Labels]:
    """Baselines of a model with `num_slots` slots that reads features: label maps of `size` by name.

    Clusters of the features' cells: of each frame by itself, of the whole clip, and those of each frame named after
    those of the frame before that they overlap most (`linked_labels`). Cells become pixels as a model's masks do,
    bilinearly before the largest share is taken.
    """
    # clip by clip, so that a clip's labels do not depend on the others
    single = torch.stack([cluster_features(clip[:, None], num_slots)[:, 0] for clip in features])
    whole = torch.cat([cluster_features(clip[None], num_slots) for clip in features])
    pixels = cells_to_pixels(single, size).long()
    # the name that each cluster of a frame has got is that of all of its cells
    names = torch.zeros(*single.shape[:2], num_slots, dtype=torch.long, device=single.device)
    names.scatter_(2, single.flatten(2), linked_labels(single).flatten(2))
    linked = names.gather(2, pixels.flatten(2)).view(pixels.shape)
    return dict(zip(FEATURE_SEGMENTATIONS, (pixels, cells_to_pixels(whole, size), linked), strict=True))


def cells_to_pixels(labels: Integer[Tensor, "*batch rows cols"], size: tuple[int, int]) -> Labels:
    """Label maps of cells at the size of frames, bilinearly before the largest share is taken."""
    return masks_to_labels(one_hot(labels).movedim(-1, -3).float(), size)


@torch.no_grad()
def cluster_features(
    features: Float[Tensor, "clips time dim rows cols"], clusters: int
) -> Integer[Tensor, "clips time rows cols"]:
    """Clusters of the cells of each clip by their features: k-means from one start by k-means++.

    Clips of more than 64 frames are clustered by so many of them, evenly spaced, and every cell then goes to the
    nearest centre. The draws are the same for every clip.
    """
    time, _, rows, cols = features.shape[1:]
    frames = np.unique(np.linspace(0, time - 1, _MOST_FRAMES).round().astype(int))
    with torch.autocast(features.device.type, enabled=False):
        centres = _cluster_cells(_cells(features[:, frames]), clusters)
        parts = [_nearness(_cells(part), centres).argmax(-1) for part in features.split(_MOST_FRAMES, 1)]
    return torch.cat(parts, 1).view(-1, time, rows, cols)


def _cells(features: Tensor) -> Float[Tensor, "clips cells dim"]:
    return features.float().flatten(3).mT.contiguous().flatten(1, 2)


def _nearness(
    points: Float[Tensor, "clips points dim"], centres: Float[Tensor, "clips clusters dim"]
) -> Float[Tensor, "clips points clusters"]:
    """Half of the point's own square less the squared distance."""
    return points @ centres.mT - centres.square().sum(-1)[:, None] / 2


def _cluster_cells(points: Float[Tensor, "clips points dim"], clusters: int) -> Float[Tensor, "clips clusters dim"]:
    centres, before = _spread_cells(points, clusters), None
    for _ in range(_ROUNDS):
        nearest = _nearness(points, centres).argmax(-1)
        if before is not None and torch.equal(nearest, before):
            break
        members, before = one_hot(nearest, clusters).to(points), nearest
        count = members.sum(1)[..., None]
        # a cluster without a cell stays where it is
        centres = torch.where(count > 0, members.mT @ points / count.clamp(min=1), centres)
    return centres


def _spread_cells(points: Float[Tensor, "clips points dim"], count: int) -> Tensor:
    """Points by k-means++, as in `_spread_points`; where there are too few different ones, some twice."""
    rng, own = np.random.default_rng(0), points.square().sum(-1)
    away = torch.full_like(own, torch.inf)
    place = torch.full((len(points), 1), int(rng.integers(points.shape[1])), device=points.device)
    chosen = []
    for _ in range(count):
        chosen.append(points.take_along_dim(place[..., None], 1))
        away = torch.minimum(away, (own - 2 * _nearness(points, chosen[-1])[..., 0]).clamp(min=0))
        sums = away.double().cumsum(1)
        place = torch.searchsorted(sums, rng.random() * sums[:, -1:], right=True).clamp(max=points.shape[1] - 1)
    return torch.cat(chosen, 1)


def one_slot_labels(frames: Frames) -> Labels:
    """Everything in one segment: what a collapsed model gives."""
    return grid_labels(frames, 1, 1)


def stripe_labels(frames: Frames, num_slots: int) -> Labels:
    """Vertical stripes from left to right, equally wide up to a pixel, the same in every frame."""
    return grid_labels(frames, 1, num_slots)


def grid_labels(frames: Frames, rows: int, cols: int) -> Labels:
    """Rectangles in row-major order, equally large up to a pixel, the same in every frame.

    Example:
        >>> grid_labels(torch.zeros(1, 1, 3, 2, 5), rows=2, cols=2)[0, 0]
        tensor([[0, 0, 0, 1, 1],
                [2, 2, 2, 3, 3]])
    """
    if rows < 1 or cols < 1:
        raise ValueError(f"a grid of {rows} x {cols} rectangles; expected at least 1 x 1")
    batch, time, _, height, width = frames.shape
    row = torch.arange(height, device=frames.device) * rows // height
    col = torch.arange(width, device=frames.device) * cols // width
    return (row[:, None] * cols + col).expand(batch, time, height, width)


def nearest_grid(num_slots: int) -> tuple[int, int]:
    """Rows and columns of the grid with the most rectangles, of `num_slots` at most, that is near to a square.

    It has as many columns as rows, or up to twice as many.

    Example:
        >>> nearest_grid(7)
        (2, 3)
    """
    if num_slots < 1:
        raise ValueError(f"{num_slots} slots; expected at least 1")
    shapes = [(rows, min(num_slots // rows, 2 * rows)) for rows in range(1, num_slots + 1)]
    # of two that are equally large, the squarer
    return max((shape for shape in shapes if shape[0] <= shape[1]), key=lambda shape: (shape[0] * shape[1], shape[0]))


def kmeans_labels(frames: Frames, num_slots: int, position_weight: float) -> Labels:
    """Clusters of the pixels of a whole clip by their colour and place, the better of two starts.

    A point is a pixel's channels followed by its column and row, each from 0 to 1, times `position_weight`. Starts are
    drawn as in k-means++, the same for every clip, so that a clip's labels do not depend on what else is in the batch.
    Clips of more than 16,384 pixels are clustered by as many of them, and every pixel then goes to the nearest centre.

    Source: Arthur & Vassilvitskii, "k-means++: the advantages of careful seeding", 2007.
    """
    batch, time, _, height, width = frames.shape
    labels = [
        _cluster(clip.reshape(-1, clip.shape[-1]), num_slots) for clip in _points(frames, num_slots, position_weight)
    ]
    return torch.from_numpy(np.stack(labels)).to(frames.device).view(batch, time, height, width)


def kmeans_stream_labels(frames: Frames, num_slots: int, position_weight: float) -> Labels:
    """The same frame by frame, each clustered from the centres of the one before, so that a cluster follows its pixels.

    No frame sees a later one, and a cluster that loses its last pixel stays where it was until it wins one again.
    """
    batch, time, _, height, width = frames.shape
    labels = []
    for clip in _points(frames, num_slots, position_weight):
        centres = _best_centres(clip[0], num_slots)
        for points in clip:
            centres = _refined(points, centres)
            labels.append(vq(points, centres, check_finite=False)[0].astype(np.int64))
    return torch.from_numpy(np.stack(labels)).to(frames.device).view(batch, time, height, width)


def _points(frames: Frames, num_slots: int, position_weight: float) -> Float[np.ndarray, "batch time pixels numbers"]:
    """Each pixel's channels, and its column and row times their weight if that is not 0."""
    if num_slots < 1:
        raise ValueError(f"k-means with {num_slots} clusters; expected at least 1")
    batch, time, _, height, width = frames.shape
    pixels = unit_frames(frames.detach()).float().flatten(3).transpose(2, 3).cpu().numpy()
    if position_weight != 0:
        rows, cols = np.meshgrid(_unit_steps(height), _unit_steps(width), indexing="ij")
        places = np.stack([cols, rows], axis=-1).reshape(-1, 2) * np.float32(position_weight)
        pixels = np.concatenate([pixels, np.broadcast_to(places, (batch, time, *places.shape))], axis=-1)
    return np.ascontiguousarray(pixels)


def _unit_steps(count: int) -> np.ndarray:
    return np.linspace(0, 1, count, dtype=np.float32)


def _cluster(points: np.ndarray, clusters: int) -> np.ndarray:
    return vq(points, _best_centres(points, clusters), check_finite=False)[0].astype(np.int64)


def _best_centres(points: np.ndarray, clusters: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    some = points if len(points) <= _MOST_POINTS else rng.choice(points, _MOST_POINTS, replace=False)
    found = []
    for _ in range(_STARTS):
        centres = _lloyd(some, clusters, rng)
        found.append((float(np.square(vq(some, centres, check_finite=False)[1]).sum()), centres))
    return min(found, key=lambda start: start[0])[1]


def _lloyd(points: np.ndarray, clusters: int, rng: np.random.Generator) -> np.ndarray:
    return _refined(points, _spread_points(points, clusters, rng))


def _refined(points: np.ndarray, start: np.ndarray) -> np.ndarray:
    with warnings.catch_warnings():
        # A cluster may lose its last point to its neighbours. It then stays empty, as a slot may.
        warnings.filterwarnings("ignore", message="One of the clusters is empty", category=UserWarning)
        return kmeans2(points, start, iter=_ROUNDS, minit="matrix", check_finite=False)[0]


def _spread_points(points: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Points by k-means++: each with a chance in proportion to its squared distance from the nearest one so far."""
    chosen = [points[rng.integers(len(points))]]
    away = np.square(points - chosen[0]).sum(1, dtype=np.float64)
    while len(chosen) < count and away.max() > 0:
        chosen.append(points[rng.choice(len(points), p=away / away.sum())])
        away = np.minimum(away, np.square(points - chosen[-1]).sum(1, dtype=np.float64))
    return np.stack(chosen)
