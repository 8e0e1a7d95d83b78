"""Trivial segmentations as baselines of masks: blind ones, and ones that see the frames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Integer
from torch import Tensor

from slotbench.data.folders.names import visible
from slotbench.data.folders.video_files import VideoFile, open_video
from slotbench.data.formats.images import resize_bilinear
from slotbench.errors import UserError, listing
from slotbench.evaluation.alignment import Aligned, cut
from slotbench.evaluation.proportions import part_of
from slotbench.metrics.colour_tracker import colour_tracker_labels
from slotbench.metrics.mask_rules import Rules
from slotbench.metrics.segmentation_baselines import (
    grid_labels,
    kmeans_labels,
    nearest_grid,
    one_slot_labels,
    stripe_labels,
)

__all__ = ["BLIND", "SEEING", "baselines_of", "find_videos", "read_frames"]

BLIND = ("one slot", "stripes", "grid", "first masks kept")
"""Baselines that see no frame; the last sees the masks' own first frame, and keeps it."""

SEEING = ("k-means colour", "k-means colour + position", "colour tracker")
"""Baselines that see the frames."""

_POSITION_WEIGHT = 1.5
_MOST_SEGMENTS = 256


def baselines_of(
    aligned: Aligned, frames: Float[Tensor, "time channels height width"] | None
) -> Iterator[tuple[str, Integer[Tensor, "time height width"]]]:
    """Name and label maps of each baseline of a clip, with as many segments as its masks have.

    Args:
        aligned: the clip.
        frames: in [0, 1], those that are scored; None for the blind ones alone.
    """
    segments = min(aligned.facts.segments, _MOST_SEGMENTS)
    # only its shape counts
    blank = torch.zeros(1).expand(1, len(aligned.true), 1, *aligned.true.shape[1:])
    yield "one slot", one_slot_labels(blank)[0]
    yield "stripes", stripe_labels(blank, segments)[0]
    yield "grid", grid_labels(blank, *nearest_grid(segments))[0]
    first = aligned.labels[: aligned.views or 1]
    yield "first masks kept", first.repeat(len(aligned.true) // len(first), 1, 1)
    if frames is not None:
        yield "k-means colour", kmeans_labels(frames[None], segments, 0.0)[0]
        yield "k-means colour + position", kmeans_labels(frames[None], segments, _POSITION_WEIGHT)[0]
        yield "colour tracker", colour_tracker_labels(frames[None], segments)[0]


def find_videos(path: Path, names: Mapping[str, str]) -> dict[str, VideoFile]:
    """The frames of each clip: movies, GIFs, arrays or folders of images, as `VideoFolder` reads them.

    Args:
        path: where the videos are.
        names: what the video of each clip is called.

    Raises:
        UserError: there are none, or not of every clip.
        FileError: one cannot be read.
    """
    if not path.exists():
        raise UserError(f"--frames {path} is not there; expected a folder of videos")
    alone = open_video(path)
    if alone is not None and len(set(names.values())) == 1:
        return dict.fromkeys(names, alone)
    inside = visible(path) if path.is_dir() else []
    by_name = {(file.name if file.is_dir() else file.stem): file for file in inside}
    there = sorted(set(names.values()) & set(by_name))
    found = {name: video for name in there if (video := open_video(by_name[name])) is not None}
    missing = sorted(set(names.values()) - set(found))
    if missing:
        raise UserError(f"--frames {path} has no video of {listing(missing, 3)}; expected one for every clip")
    return {clip: found[name] for clip, name in names.items()}


def read_frames(
    video: VideoFile, places: Integer[np.ndarray, " frames"], aligned: Aligned, rules: Rules
) -> Float[Tensor, "time channels height width"]:
    """The scored frames, cut and resized as the masks are.

    Args:
        video: of the clip.
        places: of the masks' frames in it.
        aligned: the clip.
        rules: in force.

    Raises:
        UserError: it has fewer frames than the masks, or another proportion.
        FileError: it cannot be read.
    """
    if video.length <= places[-1]:
        raise UserError(f"{video.path} has {video.length} frames, and its masks go up to frame {places[-1]}, from 0 on")
    height, width = aligned.true.shape[1:]
    read = []
    for frame in video.frames([int(place) for place in cut(places, rules)]):
        part = np.ascontiguousarray(part_of(frame, aligned.facts.view, video.path).transpose(2, 0, 1))
        read.append(resize_bilinear(torch.from_numpy(part)[None], height, width))
    return torch.cat(read).float() / 255
