"""The videos of a split of CLEVRER, read from the released files: movies, annotations and proposals."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from slotbench.data.base import padded
from slotbench.data.clevrer.annotation import (
    COLORS,
    MATERIALS,
    MOST_OBJECTS,
    SHAPES,
    ClevrerAnnotation,
    read_annotation,
)
from slotbench.data.clevrer.proposals import pseudo_masks
from slotbench.data.clips import ClipReader
from slotbench.data.folders.video_files import VideoFile, open_video
from slotbench.data.formats.images import middle_square, resize_bilinear, resize_nearest
from slotbench.errors import DataFilesError, listing
from slotbench.interfaces import View

__all__ = ["LAYOUT", "TIMED", "ClevrerVideos", "Fit", "Places", "find_places", "movies_of"]

Fit = Literal["stretch", "crop"]

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


def movies_of(places: Places) -> dict[int, VideoFile]:
    """The movies of a split by number, in order, without the one whose annotation is broken.

    Those that do not have 128 frames are left out, and a warning names them.

    Raises:
        DataFilesError: there is none, or one that cannot be read.
    """
    found: dict[int, Path] = {}
    for pattern in ("video_*.mp4", "video_*-*/video_*.mp4"):
        for file in places.videos.glob(pattern):
            if (match := _NAME.fullmatch(file.name)) and int(match[1]) not in _BROKEN:
                found[int(match[1])] = file
    movies = {number: movie for number, file in sorted(found.items()) if (movie := open_video(file)) is not None}
    other = [movie.path.name for movie in movies.values() if movie.length != _FRAMES]
    if other:
        warnings.warn(
            f"{len(other)} of {len(movies)} videos in {places.videos} do not have {_FRAMES} frames and are left out: "
            f"{listing(other, 5)}",
            stacklevel=2,
        )
    movies = {number: movie for number, movie in movies.items() if movie.length == _FRAMES}
    if not movies:
        raise DataFilesError(f"there is no video of {_FRAMES} frames in {places.videos}; {LAYOUT}")
    return movies


class ClevrerVideos(ClipReader):
    """The videos of a split.

    Args:
        places: of its files.
        movies: by number; what `movies_of` found there.
        resolution: pixels per side.
        fit: "stretch" the frames to a square, or "crop" the square in their middle.
        stride: reads every `stride`-th frame.
        masks: reads the pseudo masks.
        annotations: reads the annotations, if there is a folder of them.
    """

    def __init__(
        self,
        places: Places,
        movies: dict[int, VideoFile],
        resolution: int,
        fit: Fit = "stretch",
        stride: int = 1,
        masks: bool = True,
        annotations: bool = True,
    ) -> None:
        self.places = places
        self.numbers, self.movies = list(movies), list(movies.values())
        self.resolution, self.fit, self.stride = resolution, fit, stride
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
        (image,) = self.movies[video].frames([0])
        return (View.middle_square if self.fit == "crop" else View.whole)(*image.shape[:2])

    def clip(self, video: int, frames: range) -> dict[str, np.ndarray]:
        """A clip, with masks and annotations if the data set reads them."""
        number, images, size = self.numbers[video], [], (0, 0)
        for image in self.movies[video].frames(frames):
            size = image.shape[0], image.shape[1]
            images.append(self._fitted(image))
        clip = {"frames": np.stack(images), "number": np.array(number)}
        annotation = self._annotation(number) if self.annotations else None
        if annotation is not None:
            clip |= _log(annotation, frames, self.stride)
        if self.masks:
            if self.places.proposals is None:
                folder = self.places.videos.parent
                raise DataFilesError(f"no derender_proposals beside {folder}; give masks: false to do without")
            known = None if annotation is None else annotation.appearances
            file = self.places.proposals / f"proposal_{number:05d}.json"
            ids = pseudo_masks(file, frames, size, known)
            clip["masks"] = resize_nearest(self._cut(ids), self.resolution, self.resolution)
        return clip

    def _annotation(self, number: int) -> ClevrerAnnotation:
        folder = self.places.annotations
        assert folder is not None
        name, block = f"annotation_{number:05d}.json", number // _BLOCK * _BLOCK
        file = folder / f"annotation_{block:05d}-{block + _BLOCK:05d}" / name
        return read_annotation(file if file.is_file() or not (folder / name).is_file() else folder / name, _FRAMES)

    def _fitted(self, image: np.ndarray) -> np.ndarray:
        """A frame "height width 3" as "3 resolution resolution"."""
        pixels = torch.from_numpy(np.ascontiguousarray(self._cut(image.transpose(2, 0, 1))))
        return resize_bilinear(pixels[None], self.resolution, self.resolution)[0].numpy()

    def _cut(self, images: np.ndarray) -> np.ndarray:
        return images if self.fit == "stretch" else middle_square(images)


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
