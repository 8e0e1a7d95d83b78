"""The videos in a folder: those of a split, the files that are left out and why, and a summary in two lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np

from slotbench.arrays import map_npy
from slotbench.data.base import Split
from slotbench.data.folders.depth_files import DEPTH, VALID
from slotbench.data.folders.frame_maps import name_of
from slotbench.data.folders.mask_files import MASKS
from slotbench.data.folders.names import ARRAYS, IMAGES, MOVIES, STACKS, folder_named, frame_files, visible
from slotbench.data.folders.picture_videos import FrameFolder, PictureStack, is_one_frame
from slotbench.data.folders.video_file import VideoFile
from slotbench.data.folders.video_files import open_video
from slotbench.errors import DataFilesError, FileError, listing
from slotbench.text import one_line

__all__ = ["FoundVideos", "find_videos", "has_splits", "reading_of"]

_MAPS = (MASKS, DEPTH, VALID)
_SIZES_LOOKED_AT = 8
_EXPECTED = (
    f"expected a folder of videos ({', '.join((*MOVIES, '.gif', *ARRAYS))}), or of folders of images "
    f"({', '.join(IMAGES)}), or one of these itself"
)


@dataclass(frozen=True)
class FoundVideos:
    """The videos of a split.

    Attributes:
        videos: in the order of their names.
        left_out: what else lies there and is not read, each with the reason.
    """

    videos: list[VideoFile]
    left_out: list[str]


def has_splits(path: Path) -> bool:
    """Whether a folder of videos has folders for its splits."""
    return any(folder_named(path, name).is_dir() for name in get_args(Split))


def find_videos(path: Path, split: Split, maps: Sequence[str] = (MASKS,)) -> FoundVideos:
    """The videos of a split, and what lies beside them.

    Args:
        path: the folder, or one video.
        split: whose.
        maps: the folders beside videos that are read with them.

    Raises:
        DataFilesError: there is none, one cannot be read, or frames lie beside videos.
    """
    if not path.exists():
        raise DataFilesError(f"there is nothing at {path}; {_EXPECTED}")
    if not path.is_dir():
        alone = open_video(path)
        if alone is None:
            raise DataFilesError(f"{path} is no video; {_EXPECTED}")
        return FoundVideos([alone], [])
    if not has_splits(path):
        return _in_folder(path, maps)
    folder = folder_named(path, split)
    if not folder.is_dir():
        raise DataFilesError(f"there is no video in {folder}; {_EXPECTED}")
    found = _in_folder(folder, maps)
    beside = [file for file in visible(path) if file.name.lower() not in get_args(Split)]
    return FoundVideos(found.videos, [*(_left_out(file, "beside the splits") for file in beside), *found.left_out])


def reading_of(path: Path, found: Mapping[str, FoundVideos], clips: Mapping[str, int | None], stride: int) -> str:
    """A summary of a folder in two lines: its videos; the files that are left out, and why.

    Args:
        path: the folder.
        found: by the name of the split.
        clips: frames of a clip of each split; None for whole videos.
        stride: from one frame of a clip to the next in the file.
    """
    everything = [video for of_split in found.values() for video in of_split.videos]
    by_path = {video.path: video for video in everything}
    videos = list(by_path.values())
    counts = f"{_videos(len(videos))} for every split"
    if len(found) == 1 or len(everything) > len(videos):
        counts = _videos(len(videos))
    if has_splits(path):
        counts = ", ".join(f"{split} {_videos(len(of_split.videos))}" for split, of_split in found.items())
    lengths, sizes = sorted(video.length for video in videos), sorted(set(_sizes(videos)))
    tall, wide = (_range(sorted(size[axis] for size in sizes)) for axis in (0, 1))
    parents = {video.path.parent for video in videos}
    with_masks = any(folder_named(parent, MASKS).is_dir() for parent in parents)
    first = (
        f"{one_line(path)}: {counts} of {_range(lengths)} frames, {tall} pixels high and {wide} wide, "
        f"{'with' if with_masks else 'without'} masks"
    )
    left_out = [
        *(words for split, of_split in found.items() for words in _too_short(split, of_split, clips[split], stride)),
        *dict.fromkeys(words for of_split in found.values() for words in of_split.left_out),
    ]
    return f"{first}\nleft out: {listing(left_out, 6) if left_out else 'nothing'}"


def _in_folder(folder: Path, maps: Sequence[str]) -> FoundVideos:
    inside = [file for file in visible(folder) if file.name.lower() not in _MAPS]
    pictures = [file for file in inside if file.suffix.lower() in IMAGES and not file.is_dir()]
    beside = [file for file in inside if file not in set(pictures) and _is_video(file)]
    stacks = bool(pictures) and pictures[0].suffix.lower() in STACKS and PictureStack.open(pictures[0]) is not None
    if not beside and not stacks:
        alone = FrameFolder.open(folder)
        if alone is not None:
            return FoundVideos([alone], [_left_out(folder / name, "among the frames") for name in alone.others])
    if beside and not stacks and len(pictures) > 1:
        _refuse_frames_beside(folder, beside)
    videos, left_out = [], []
    for file in inside:
        video = None if file.name.lower() == "mask" and file.is_dir() else open_video(file)
        if video is not None:
            videos.append(video)
            if isinstance(video, FrameFolder):
                left_out += [_left_out(file / name, "among the frames", file.name) for name in video.others]
        else:
            left_out.append(_left_out(file, _why_none(file)))
    left_out += _unread_maps(folder, videos, maps)
    if not videos:
        more = f"; {listing(left_out, 4)} is none" if left_out else ""
        raise DataFilesError(f"there is no video in {folder}; {_EXPECTED}{more}")
    return FoundVideos(videos, left_out)


def _is_video(file: Path) -> bool:
    """Whether a file or folder is a video that is no row of pictures in the folder itself."""
    suffix = file.suffix.lower()
    if file.is_dir():
        return any(inside.suffix.lower() in IMAGES for inside in visible(file)) and file.name.lower() != "mask"
    if suffix != ".npy":
        return suffix in (*MOVIES, ".gif", ".apng", ".npz")
    try:
        return map_npy(file).ndim in (3, 4) and not is_one_frame(file)
    except FileError:
        return True


def _refuse_frames_beside(folder: Path, beside: Sequence[Path]) -> None:
    """Pictures that are a video by themselves, beside videos: one of the two would be lost."""
    try:
        frames = frame_files(folder, IMAGES)
    except DataFilesError:
        return  # pictures of several things, as figures are
    others = listing((one_line(file.name) for file in beside), 3)
    raise DataFilesError(
        f"{folder} holds {len(frames)} pictures ({one_line(frames[0].name)}, ...) that may be frames of a video, and "
        f"videos beside them ({others}): move the pictures into a folder of their own, there or elsewhere"
    )


def _why_none(file: Path) -> str:
    if file.is_dir():
        is_mask = file.name.lower() == "mask"
        return f"call it {MASKS} if it has the masks" if is_mask else "a folder without frames"
    return "a single picture" if file.suffix.lower() in IMAGES else "no video"


def _unread_maps(folder: Path, videos: Sequence[VideoFile], maps: Sequence[str]) -> Iterator[str]:
    """Masks and depth that no video reads."""
    names = {name_of(video) for video in videos}
    read = {folder_named(folder, kind) for kind in maps}
    for place in visible(folder):
        if place.name.lower() not in _MAPS or not place.is_dir():
            continue
        if place not in read:
            is_depth = place.name.lower() in (DEPTH, VALID) and place.name.lower() not in maps
            yield _left_out(place, "DepthVideo reads it" if is_depth else f"{place.name.lower()} is read")
            continue
        for file in visible(place):
            if file.name not in names and file.stem not in names:
                yield _left_out(file, "no video of this name", place.name)


def _too_short(split: str, found: FoundVideos, frames: int | None, stride: int) -> Iterator[str]:
    short = [video for video in found.videos if -(-video.length // stride) < (frames or 0)]
    if short:
        names = listing((one_line(video.path.name) for video in short), 3)
        every = f", every {stride}th frame," if stride > 1 else ""
        yield (
            f"{_videos(len(short))} of {len(found.videos)} for {split} ({names}: shorter than a clip of {frames} "
            f"frames{every})"
        )


def _sizes(videos: Sequence[VideoFile]) -> Iterator[tuple[int, int]]:
    """Height and width of some of the videos, from the first to the last."""
    places = np.linspace(0, len(videos) - 1, min(len(videos), _SIZES_LOOKED_AT)).round().astype(int)
    for place in sorted(set(places.tolist())):
        (frame,) = videos[place].frames([0])
        yield frame.shape[0], frame.shape[1]


def _left_out(file: Path, why: str, within: str = "") -> str:
    name = f"{within}/{file.name}" if within else file.name
    return f"{one_line(name, 80)} ({why})"


def _videos(count: int) -> str:
    return "1 video" if count == 1 else f"{count} videos"


def _range(ascending: Sequence[int]) -> str:
    low, high = ascending[0], ascending[-1]
    return f"{low}" if low == high else f"{low} to {high}"
