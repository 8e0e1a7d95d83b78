"""The videos of a split of CLEVRER, read from the released files: movies, annotations and proposals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from slotbench.data.base import padded
from slotbench.data.clevrer.annotation import (
    COLORS,
    MATERIALS,
    MOST_OBJECTS,
    SHAPES,
    ClevrerAnnotation,
    pseudo_masks,
    read_annotation,
)
from slotbench.data.clips import ClipReader
from slotbench.data.formats.images import Fit
from slotbench.data.formats.movies import MovieFile, keep_movies
from slotbench.errors import DataFilesError
from slotbench.interfaces import View

__all__ = ["LAYOUT", "TIMED", "ClevrerVideos", "Places", "find_places", "movies_of"]

TIMED = ("positions", "velocities", "inside_view", "collisions")
"""The entries of `objects` that have an axis of frames after that of videos."""

LAYOUT = (
    "expected videos/train/video_00000-01000/video_00000.mp4 and so on, and beside videos/ annotations/train/"
    "annotation_00000-01000/annotation_00000.json and derender_proposals/proposal_00000.json; folders that are called "
    "video_train, video_validation, video_test, annotation_train and annotation_validation will do as well"
)

_FRAMES = 128
_BROKEN = (10800,)  # whose released annotation is not right
_NAME = re.compile(r"video_(\d{5})\.mp4")
_BLOCK = 1000  # videos of a folder


@dataclass(frozen=True)
class Places:
    """Where the files of a split are.

    Attributes:
        videos: the folder of the movies.
        annotations: the folder of the annotations; None where there is none.
        proposals: the folder of the detections; None where there is none.
    """

    videos: Path
    annotations: Path | None
    proposals: Path | None


def find_places(path: Path, stored: str) -> Places | None:
    """The folders of a split, "train", "validation" or "test"; None without its videos."""
    names = (stored, "val") if stored == "validation" else (stored,)

    def first(kind: str) -> Path | None:
        tried = [path / f"{kind}s" / name for name in names] + [path / f"{kind}_{name}" for name in names]
        return next((folder for folder in tried if folder.is_dir()), None)

    videos, proposals = first("video"), path / "derender_proposals"
    if videos is None:
        return None
    return Places(videos, first("annotation"), proposals if proposals.is_dir() else None)


def movies_of(places: Places) -> dict[int, Path]:
    """The movies of a split by number, in order, without the one whose annotation is broken."""
    found: dict[int, Path] = {}
    for pattern in ("video_*.mp4", "video_*-*/video_*.mp4"):
        for file in places.videos.glob(pattern):
            if (match := _NAME.fullmatch(file.name)) and int(match[1]) not in _BROKEN:
                found[int(match[1])] = file
    if not found:
        raise DataFilesError(f"there is no video in {places.videos}; {LAYOUT}")
    return dict(sorted(found.items()))


class ClevrerVideos(ClipReader):
    """The videos of a split.

    Args:
        places: of its files.
        fit: how frames become those of the data set.
        stride: reads every `stride`-th frame.
        masks: reads the pseudo masks.
        annotations: reads the annotations, if there is a folder of them.
        keep: decodes all movies into the user's cache folder, if they are not there.
    """

    def __init__(
        self, places: Places, fit: Fit, stride: int = 1, masks: bool = True, annotations: bool = True, keep: bool = True
    ) -> None:
        self.places, self.fit, self.stride = places, fit, stride
        movies = {number: MovieFile(file, fit if keep else None) for number, file in movies_of(places).items()}
        keep_movies(movies.values())
        self.numbers, self.movies = list(movies), list(movies.values())
        self.masks, self.annotations = masks, annotations and places.annotations is not None
        self.lengths = np.full(len(self.movies), -(-_FRAMES // stride))

    def name(self, video: int, start: int) -> str:
        """The name of the video, and the first frame of the clip in it."""
        return f"{self.video_name(video)}_frame{start * self.stride:05d}"

    def video_name(self, video: int) -> str:
        """The file's name without its ending."""
        return f"video_{self.numbers[video]:05d}"

    def origin(self, video: int) -> str:
        """The file."""
        return str(self.movies[video].path)

    def view(self, video: int) -> View:
        """The square in the middle, or all of the frame where it is stretched."""
        return self.fit.view(self.movies[video].size)

    def clip(self, video: int, frames: range) -> dict[str, np.ndarray]:
        """A clip, with masks and annotations if the data set reads them."""
        number, movie = self.numbers[video], self.movies[video]
        found = movie.fitted(frames, self.fit)
        if movie.length != _FRAMES:
            raise DataFilesError(f"{movie.path} does not have {_FRAMES} frames; move it away")
        clip = {"frames": found, "number": np.array(number)}
        annotation = self._annotation(number) if self.annotations else None
        if annotation is not None:
            clip |= _log(annotation, frames, self.stride)
        if self.masks:
            if self.places.proposals is None:
                folder = self.places.videos.parent
                raise DataFilesError(f"no derender_proposals beside {folder}; give masks: false to do without")
            known = None if annotation is None else annotation.appearances
            file = self.places.proposals / f"proposal_{number:05d}.json"
            clip["masks"] = self.fit.masks(pseudo_masks(file, frames, movie.size, known))
        return clip

    def _annotation(self, number: int) -> ClevrerAnnotation:
        folder = self.places.annotations
        assert folder is not None
        name, block = f"annotation_{number:05d}.json", number // _BLOCK * _BLOCK
        file = folder / f"annotation_{block:05d}-{block + _BLOCK:05d}" / name
        return read_annotation(file if file.is_file() or not (folder / name).is_file() else folder / name, _FRAMES)


def _log(annotation: ClevrerAnnotation, frames: Sequence[int], stride: int) -> dict[str, np.ndarray]:
    """The entries of `objects` from an annotation, padded."""
    count, appearances = len(annotation.appearances), annotation.appearances
    # what happened in frames that are not shown belongs to the next one that is
    since = [annotation.collisions[max(0, frame - stride + 1) : frame + 1].any(0) for frame in frames]
    timed = {
        "positions": annotation.positions[list(frames)],
        "velocities": annotation.velocities[list(frames)],
        "inside_view": annotation.inside[list(frames)],
    }
    labels = {
        "color_label": [COLORS.index(color) for color, _, _ in appearances],
        "material_label": [MATERIALS.index(material) for _, material, _ in appearances],
        "shape_label": [SHAPES.index(shape) for _, _, shape in appearances],
    }
    return {
        "num_objects": np.array(count),
        "present": np.arange(MOST_OBJECTS) < count,
        "collisions": padded(padded(np.stack(since), MOST_OBJECTS, axis=1), MOST_OBJECTS, axis=2),
        **{name: padded(values, MOST_OBJECTS, axis=1) for name, values in timed.items()},
        **{name: padded(np.array(values), MOST_OBJECTS, fill=-1) for name, values in labels.items()},
    }
