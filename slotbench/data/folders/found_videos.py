"""The videos in a folder: those of a split, what is left out and why, and a summary in two lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from slotbench.data.base import Split
from slotbench.data.folders.frame_maps import DEPTH, MASKS, VALID
from slotbench.data.folders.names import ARRAYS, IMAGES, MOVIES, folder_named, visible
from slotbench.data.folders.video_files import FrameFolder, VideoFile, is_one_frame, open_video
from slotbench.data.formats.images import Fit
from slotbench.data.formats.movies import keep_movies
from slotbench.errors import DataFilesError, MissingSplitError, listing

__all__ = ["FoundVideos", "find_videos", "has_splits", "reading_of"]

_EXPECTED = (
    f"expected a folder of videos ({', '.join((*MOVIES, '.gif', *ARRAYS))}), or of folders of images "
    f"({', '.join(IMAGES)}), or one of these itself"
)


@dataclass(frozen=True)
class FoundVideos:
    """The videos of a split.

    Attributes:
        videos: in the order of their names.
        left_out: what else lies there and is not read.
    """

    videos: list[VideoFile]
    left_out: list[str]


def has_splits(path: Path) -> bool:
    """Whether a folder of videos has folders for its splits."""
    return any(folder_named(path, name).is_dir() for name in get_args(Split))


def find_videos(path: Path, split: Split, fit: Fit | None = None) -> FoundVideos:
    """The videos of a split, and what lies beside them.

    Args:
        path: the folder, or one video.
        split: whose.
        fit: how movies are kept in the user's cache folder; decodes those that are not there yet.
    """
    if not path.exists():
        raise DataFilesError(f"there is nothing at {path}; {_EXPECTED}")
    if path.is_dir():
        folder = folder_named(path, split) if has_splits(path) else path
        _check_no_davis(folder)
        if not folder.is_dir():
            raise MissingSplitError(f"there is no video in {folder}; {_EXPECTED}")
        found = _in_folder(folder, fit)
    else:
        alone = open_video(path, fit)
        if alone is None:
            raise DataFilesError(f"{path} is no video; {_EXPECTED}")
        keep_movies([alone])
        if not alone.length:
            raise DataFilesError(f"{path} has no frames; {_EXPECTED}")
        found = FoundVideos([alone], [])
    return found


def _check_no_davis(folder: Path) -> None:
    """Refuses the trees of DAVIS, YouTube-VIS and YouTube-VOS, whose frames and masks lie in trees of their own."""
    root = folder.parent if folder.name == "JPEGImages" else folder
    tree = root / "JPEGImages"
    if not tree.is_dir():
        return
    # DAVIS has a folder for each resolution
    inside = [one for one in visible(tree) if one.is_dir() and one.name != MASKS]
    sizes = [one.name for one in inside if any(map(Path.is_dir, visible(one)))]
    frames = tree / ("480p" if "480p" in sizes else sizes[0]) if sizes else tree
    if frames == folder:
        return
    if sizes or (root / "ImageSets").is_dir():
        files = f" --data.files {frames.name}" if sizes and frames.name != "480p" else ""
        raise DataFilesError(f"{folder} is a tree of DAVIS: read it by --data DAVIS --data.path {root}{files}")
    if (root / "instances.json").is_file():
        raise DataFilesError(f"{folder} is of YouTube-VIS: read it by --data YouTubeVIS --data.path {root.parent}")
    masks = root / "Annotations" / frames.relative_to(tree)
    raise DataFilesError(
        f"{folder} is a tree of YouTube-VOS: give its frames, --data.path {frames}; for their masks first "
        f"ln -s {masks.resolve()} {frames / MASKS}, and where 255 is no object --data.void [255]"
    )


def _in_folder(folder: Path, fit: Fit | None) -> FoundVideos:
    videos, left_out = [], []
    for file in visible(folder):
        name = file.name.lower()
        if name in (MASKS, DEPTH, VALID):
            continue
        video = None if name == "mask" or is_one_frame(file) else open_video(file, fit)
        if video is not None:
            videos.append(video)
        else:
            left_out.append(f"{file.name} (call it {MASKS})" if name == "mask" else file.name)
    keep_movies(videos)
    left_out += [f"{video.path.name} (no frames)" for video in videos if not video.length]
    videos = [video for video in videos if video.length]
    if not videos and (alone := FrameFolder.open(folder)) is not None:
        frames = {file.name for file in alone.files}
        return FoundVideos([alone], [name for name in left_out if name not in frames])
    if not videos:
        more = f"; {listing(left_out, 4)} is none" if left_out else ""
        raise DataFilesError(f"there is no video in {folder}; {_EXPECTED}{more}")
    return FoundVideos(videos, left_out)


def reading_of(
    path: Path, found: Mapping[str, FoundVideos], clips: Mapping[str, int | None], stride: int
) -> tuple[str, str]:
    """A summary of a folder in two lines: its videos; the files that are left out."""
    counts = [f"{split} {len(there.videos)}" for split, there in found.items()]
    first = next(iter(found.values())).videos[0]
    height, width = first.size
    left_out = [
        f"{video.path.name} ({split}: shorter than a clip of {clips[split]} frames)"
        for split, there in found.items()
        for video in there.videos
        if -(-video.length // stride) < (clips[split] or 0)
    ]
    left_out += dict.fromkeys(words for there in found.values() for words in there.left_out)
    place = folder_named(first.path.parent, MASKS)
    masks = "with masks" if place.is_dir() else f"without masks (they would lie in {place}/)"
    return (
        f"{path}: videos of {', '.join(counts)}; the first has {first.length} frames of {height} x {width} pixels, "
        f"{masks}",
        f"left out: {listing(left_out, 6) if left_out else 'nothing'}",
    )
