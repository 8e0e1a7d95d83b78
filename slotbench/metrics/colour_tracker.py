"""Baselines that follow objects without learning: by colour, by patches of one colour, or all as one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Integer
from scipy.ndimage import center_of_mass, label
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from slotbench.interfaces import unit_frames
from slotbench.metrics.segmentation_baselines import kmeans_labels

__all__ = ["colour_tracker_labels", "plain_colours", "simple_trackers"]

_REMEMBERED, _FARTHEST, _SMALLEST = 5, 0.25, 5


@dataclass
class _Track:
    number: int
    colour: int
    centre: np.ndarray
    seen: int


def colour_tracker_labels(
    frames: Float[Tensor, "batch time channels height width"], num_slots: int
) -> Integer[Tensor, "batch time height width"]:
    """Connected patches of one colour, each the same id as the nearest patch of its colour in the last 5 frames.

    Colours are the clip's `num_slots` clusters of k-means, and the commonest is the background, id 0. Of each frame the
    `num_slots` largest patches of more than 5 pixels are objects, the rest background. Patches and the places in which
    tracks of their colour were last seen are matched so that the sum of distances is smallest (Hungarian); one that is
    farther away than a quarter of the longer side, or was seen more than 5 frames ago, is another object.

    Example:
        >>> frames = torch.zeros(1, 2, 1, 8, 8)
        >>> frames[0, 0, 0, 1:4, 1:4] = frames[0, 1, 0, 1:4, 2:5] = 1
        >>> colour_tracker_labels(frames, 2).amax((2, 3))
        tensor([[1, 1]])
    """
    colours = kmeans_labels(frames, num_slots, position_weight=0.0).cpu().numpy()
    commonest = [int(np.bincount(clip.ravel()).argmax()) for clip in colours]
    followed = [_follow(clip, num_slots, most) for clip, most in zip(colours, commonest, strict=True)]
    return torch.from_numpy(np.stack(followed)).to(frames.device)


def plain_colours(
    frames: Float[Tensor, "*batch channels height width"],
) -> Integer[Tensor, "*batch height width"]:
    """Each pixel's colour with every channel off or on, as a number, 0 for black: red is 4, green 2, blue 1."""
    on = unit_frames(frames).movedim(-3, -1) > 0.5
    weights = 2 ** torch.arange(on.shape[-1] - 1, -1, -1, device=frames.device)
    return (on * weights).sum(-1)


def simple_trackers(
    frames: Float[Tensor, "batch time channels height width"], most: int = 32
) -> dict[str, Integer[Tensor, "batch time height width"]]:
    """Labels of trackers that learn nothing, on frames of plain colours on black, by name; 0 is no track.

    "colour": a track is a colour of `plain_colours`. "patches": a connected patch of one colour is linked to the
    nearest one of its colour in the last 5 frames, as in `colour_tracker_labels`. "foreground": all that is bright is
    one track.
    """
    colours = plain_colours(frames)
    patches = np.stack([_follow(clip, most, background=0) for clip in colours.cpu().numpy()])
    followed = torch.from_numpy(patches).to(frames.device)
    return {"colour": colours, "patches": followed, "foreground": (colours > 0).long()}


def _follow(
    colours: Integer[np.ndarray, "time height width"], most: int, background: int
) -> Integer[np.ndarray, "time height width"]:
    found = np.zeros(colours.shape, np.int64)
    farthest = _FARTHEST * max(colours.shape[1:])
    tracks: list[_Track] = []
    count = 0
    for time, frame in enumerate(colours):
        patches = _patches(frame, background, most)
        recent = [one for one in tracks if time - one.seen <= _REMEMBERED]
        linked = _linked(patches, recent, farthest)
        for patch, (colour, centre, pixels) in enumerate(patches):
            if patch not in linked:
                count += 1
                tracks.append(_Track(count, colour, centre, time))
                linked[patch] = tracks[-1]
            linked[patch].centre, linked[patch].seen = centre, time
            found[time][pixels] = linked[patch].number
    return found


def _patches(frame: np.ndarray, background: int, most: int) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """Colour, centre and pixels of the largest patches of a frame."""
    patches: list[tuple[int, int, np.ndarray, int]] = []
    for colour in np.unique(frame):
        if colour != background:
            labelled, _ = label(frame == colour)
            sizes = np.bincount(labelled.ravel())[1:]
            large = np.argsort(-sizes, kind="stable")[:most]
            patches += [(int(sizes[n]), int(colour), labelled, int(n) + 1) for n in large if sizes[n] > _SMALLEST]
    patches.sort(key=lambda patch: -patch[0])
    return [
        (colour, np.array(center_of_mass(labelled == number)), labelled == number)
        for _, colour, labelled, number in patches[:most]
    ]


def _linked(
    patches: list[tuple[int, np.ndarray, np.ndarray]], tracks: list[_Track], farthest: float
) -> dict[int, _Track]:
    if not patches or not tracks:
        return {}
    away = np.array([[np.linalg.norm(centre - one.centre) for one in tracks] for _, centre, _ in patches])
    apart = np.array([[colour != one.colour for one in tracks] for colour, _, _ in patches]) | (away > farthest)
    # a link that cannot be costs more than all that can
    cost = np.where(apart, (len(patches) + 1) * farthest, away)
    pairs = zip(*linear_sum_assignment(cost), strict=True)
    return {int(patch): tracks[one] for patch, one in pairs if not apart[patch, one]}
