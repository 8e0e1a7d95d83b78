"""Clips of masks by name, in a folder or in one file.

    MASKS/walk.npz, MASKS/walk.npy   an array per clip; of an npz the array "masks", or the only one
    MASKS/walk/                      a PNG per frame in the order of their names, grey or with a palette
    MASKS                            or one such file or folder itself: one clip; or one file with many clips: an npz
                                     with an array for each, or an npy with one more axis in front

An array has ids, integers "time height width", or soft masks, floating point (or true and false) "time slots height
width". An npz may say more of its masks, as those of `slotbench predict` do (`About`).

Of several cameras both have an axis of views after that of time, or each camera has a clip of its own:

    MASKS/walk/cam_0.npz, ...        (or MASKS/walk/masks/cam_0.npz, as `PosedVideoFolder` reads them), arrays or
                                     folders of images, in the natural order of their names
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from slotbench.arrays import ARRAY_LIMIT, map_npy, npz_names, read_npz
from slotbench.data.folders.frame_maps import MASKS, read_mask_image
from slotbench.data.folders.names import IMAGES, frame_files, is_hidden, natural_order
from slotbench.errors import FileError, UserError
from slotbench.evaluation.frame_numbers import FrameNumbers
from slotbench.interfaces import View
from slotbench.text import one_line

__all__ = ["About", "Clip", "Found", "find_clips", "read_clip"]

MASK_ARRAYS = (MASKS, "soft_masks")
"""The arrays of an npz with several that are taken for its masks, the first that is there."""

_MOST_CLIPS = 100_000
_MOST_POINTS = 1 << 31
"""Values of a clip: 64 slots in 100 frames of 512 x 512 are fewer."""
_WANTED = "ids, integers (time, height, width), or soft masks, floating point (time, slots, height, width)"
_VIEWS = "ids, integers (time, views, height, width), or soft masks, floating point (time, views, slots, height, width)"

_ABOUT_LIMIT = 1 << 24
_LONGEST_NAME = 1000
_MOST_PIXELS = 1 << 20


@dataclass(frozen=True)
class About:
    """Metadata of the masks in a file.

    Attributes:
        video: what the video is called, and so its truth.
        frames: their numbers.
        view: the part of the video's frames that they show.
    """

    video: str | None = None
    frames: FrameNumbers | None = None
    view: View | None = None


@dataclass(frozen=True)
class Clip:
    """One clip of masks.

    Attributes:
        name: by which it is matched with the other side.
        path: the file or folder, for messages.
        load: reads its values as they are.
        about: reads their metadata, once.
    """

    name: str
    path: Path
    load: Callable[[], np.ndarray]
    about: Callable[[], About] = About


@dataclass(frozen=True)
class Found:
    """Clips at a path.

    Attributes:
        clips: by name, in the natural order of the names.
        others: names of files and folders beside them that hold no masks.
    """

    clips: dict[str, Clip]
    others: list[str]


def find_clips(path: Path, what: str, array: str | None = None, views: bool = False) -> Found:
    """The clips in a folder or file.

    Args:
        path: where they are.
        what: "MASKS" or "--truth", for messages.
        array: which array of an npz file has the masks; by default one of `MASK_ARRAYS`, or the only one.
        views: whether several cameras see the clips.

    Raises:
        UserError: there is nothing, or two clips of one name.
        FileError: a file is damaged.
    """
    expected = "expected a folder of npz files, npy files or folders of images, or one of these"
    if not path.exists():
        raise UserError(f"{what} {path} is not there; {expected}")
    try:
        clips, others = _in_folder(path, array, views) if path.is_dir() else (_in_file(path, array, views), [])
    except OSError as error:
        raise UserError(f"{what} {error.filename or path} cannot be read: {error.strerror or error}") from error
    by_name: dict[str, Clip] = {}
    for clip in sorted(clips, key=lambda clip: natural_order(Path(clip.name))):
        if clip.name in by_name:
            raise UserError(f"{clip.path} and {by_name[clip.name].path} are both clip {clip.name}; remove one of them")
        by_name[clip.name] = clip
    if not by_name:
        raise UserError(f"{what} {path} holds no masks; {expected}")
    return Found(by_name, others)


def read_clip(clip: Clip, views: bool = False) -> np.ndarray:
    """The values of a clip: ids "time height width" of any integer type, or soft masks "time slots height width".

    With `views`, those of several cameras: ids "time views height width", soft masks "time views slots height width".

    Raises:
        UserError: it holds something else, or nothing.
        FileError: the file is missing, damaged, or too large.
    """
    values = clip.load()
    kind, shape = values.dtype.kind, values.shape
    axes, wanted = (4, _VIEWS) if views else (3, f"{_WANTED}; those of several cameras need --views")
    if kind in "iu" and values.ndim == axes + 1 and shape[-1] == 1:
        values = values[..., 0]
    is_ids, is_soft = kind in "iub" and values.ndim == axes, kind in "fb" and values.ndim == axes + 1
    if kind == "f" and values.ndim == axes:
        # what is divided by 255 would become 0 everywhere
        whole = bool((values == np.rint(values)).all()) and bool(np.isfinite(values).all())
        how = "masks.astype(numpy.int32)" if whole else "they are no whole numbers: were they divided by 255?"
        raise UserError(
            f"{clip.path} holds {values.dtype} values of shape {shape} where ids belong: save them as integers "
            f"({how}), or the soft masks as (time, {'views, ' * views}slots, height, width)"
        )
    if kind in "iu" and values.ndim == axes + 1:
        raise UserError(
            f"{clip.path} holds {values.dtype} values of shape {shape}; expected {wanted}: a layer for each slot is "
            "saved as true and false (masks.astype(bool)), the truth as one id a pixel "
            f"(numpy.argmax(masks, {axes - 2}))"
        )
    if not (is_ids or is_soft) or values.dtype.itemsize > 8:
        raise UserError(f"{clip.path} holds {one_line(values.dtype, 60)} values of shape {shape}; expected {wanted}")
    if not values.size:
        raise UserError(f"{clip.path} is empty: its shape is {shape}")
    if values.size > _MOST_POINTS:
        raise UserError(f"{clip.path} has {values.size:,} values; expected at most {_MOST_POINTS:,} in one clip")
    if values.dtype == np.uint64 and int(values.max()) > np.iinfo(np.int64).max:
        raise UserError(f"{clip.path} has an id of {int(values.max()):,}; expected at most {np.iinfo(np.int64).max:,}")
    return _native(values)


def _native(values: np.ndarray) -> np.ndarray:
    """Values of a type that torch computes with, soft masks as they are on disk."""
    if values.dtype.kind == "f":
        return values
    if values.dtype.kind == "b" or values.dtype == np.uint8:
        return values.astype(np.uint8, copy=False)
    small = values.dtype.itemsize < 4 or values.dtype == np.int32
    return values.astype(np.int32 if small else np.int64)


def _in_folder(folder: Path, array: str | None, views: bool = False) -> tuple[list[Clip], list[str]]:
    clips, others, images = [], [], []
    with os.scandir(folder) as entries:
        for entry in entries:
            path = Path(entry.path)
            if is_hidden(entry.name):
                continue
            if not entry.is_dir() and path.suffix.lower() in IMAGES:
                images.append(path)
            elif views and entry.is_dir():
                found = _of_cameras(path, array)
                clips += found
                others += [] if found else [path.name]
            elif entry.is_dir() and _has_images(path):
                clips.append(_image_clip(path.name, path))
            elif not entry.is_dir() and path.suffix.lower() in (".npz", ".npy"):
                clips.append(_array_clip(path, array))
            else:
                others.append(path.name)
            if len(clips) + len(others) > _MOST_CLIPS:
                raise UserError(f"{folder} holds more than {_MOST_CLIPS:,} clips")
    if clips:
        # such as figures beside the arrays that a program has saved
        return clips, sorted([*others, *(path.name for path in images)])
    return ([_image_clip(folder.resolve().name, folder)] if images else []), sorted(others)


def _of_cameras(folder: Path, array: str | None) -> list[Clip]:
    """The clip whose masks are in a file or a folder for each camera; none where there are none."""
    inside = folder / MASKS if (folder / MASKS).is_dir() else folder
    cameras, _ = _in_folder(inside, array)
    cameras.sort(key=lambda camera: natural_order(Path(camera.name)))

    def load() -> np.ndarray:
        values = [first := cameras[0].load()]
        if first.size * len(cameras) > _MOST_POINTS:
            raise UserError(f"{inside} holds {len(cameras)} cameras of {first.size:,} values: too many for one clip")
        for camera in cameras[1:]:
            values.append(one := camera.load())
            if (one.shape, one.dtype) != (first.shape, first.dtype):
                kinds = [f"{one_line(value.dtype, 60)} values of shape {value.shape}" for value in (one, first)]
                raise UserError(
                    f"{camera.path} holds {kinds[0]}, and {cameras[0].name} beside it {kinds[1]}; expected cameras of "
                    "one kind and size"
                )
        return np.stack(values, axis=min(1, first.ndim))

    return [Clip(folder.name, inside, load, cameras[0].about)] if cameras else []


def _in_file(path: Path, array: str | None, views: bool = False) -> list[Clip]:
    suffix = path.suffix.lower()
    if suffix in IMAGES:
        return [Clip(path.stem, path, lambda: read_mask_image(path)[None])]
    if suffix == ".npz":
        names = npz_names(path)
        if array is not None or len(names) < 2 or any(name in names for name in MASK_ARRAYS):
            return [_array_clip(path, array)]
        return [Clip(name, path / name, lambda name=name: _of_npz(path, name)) for name in names]  # type: ignore[misc]
    if suffix != ".npy":
        return []
    values = map_npy(path)
    axes = (4 if values.dtype.kind == "f" else 3) + views
    if values.ndim != axes + 1 or values.dtype.kind == "b" or values.shape[-1] == 1:
        return [_array_clip(path, array)]
    # mapped anew for each clip: pages that have been read do not stay
    numbers = range(min(len(values), _MOST_CLIPS + 1))
    if len(numbers) > _MOST_CLIPS:
        raise UserError(f"{path} holds more than {_MOST_CLIPS:,} clips")
    return [Clip(str(n), path / str(n), lambda n=n: np.asarray(map_npy(path)[n])) for n in numbers]  # type: ignore[misc]


def _array_clip(path: Path, array: str | None) -> Clip:
    if path.suffix.lower() == ".npy":
        return Clip(path.stem, path, lambda: np.asarray(map_npy(path)))
    return Clip(path.stem, path, lambda: _of_npz(path, array), cache(lambda: _about_npz(path)))


def _of_npz(path: Path, name: str | None) -> np.ndarray:
    if name is None:
        names = npz_names(path)
        known = [name for name in MASK_ARRAYS if name in names]
        name = known[0] if known else names[0] if len(names) == 1 else None
    found = read_npz(path, [name]) if name is not None else {}
    if name is None or name not in found:
        there = one_line(", ".join(npz_names(path)[:5])) or "none"
        wanted = MASKS if name is None else one_line(name, 60)
        raise UserError(
            f"{path} holds no array named {wanted} ({there}); give --array NAME, the one that has the masks"
        )
    return found[name]


def _about_npz(path: Path) -> About:
    """Metadata of an npz file: `video`, a text; `frame`, a number for each frame, from 0; `view`, six sizes."""
    names = [name for name in ("video", "frame", "view") if name in npz_names(path)]
    found = read_npz(path, names, _ABOUT_LIMIT) if names else {}
    video, frames, view = found.get("video"), found.get("frame"), found.get("view")
    if video is not None and (video.ndim or video.dtype.kind != "U" or len(str(video)) > _LONGEST_NAME):
        raise UserError(f"{path} has an array video that is no name; expected a text, what the video is called")
    if frames is not None:
        rising = frames.ndim == 1 and frames.dtype.kind in "iu" and frames.dtype.itemsize <= 8 and len(frames)
        if not rising or frames[0] < 0 or (frames[1:] <= frames[:-1]).any() or frames[-1] > np.iinfo(np.int64).max:
            raise UserError(f"{path} has an array frame that is none; expected rising whole numbers, one for each mask")
        frames = frames.astype(np.int64)
    return About(
        None if video is None else str(video),
        None if frames is None else FrameNumbers(len(frames), frames, from_zero=True),
        None if view is None else _view(view, path),
    )


def _view(values: np.ndarray, path: Path) -> View:
    if values.shape == (6,) and values.dtype.kind in "iu":
        height, width, top, left, rows, columns = (int(value) for value in values)
        inside = 0 <= top < top + rows <= height <= _MOST_PIXELS and 0 <= left < left + columns <= width <= _MOST_PIXELS
        if inside:
            return View((height, width), (top, left, rows, columns))
    raise UserError(
        f"{path} has an array view that is none; expected height and width of the video's frames, and top, left, "
        "height and width of the part that the masks show"
    )


def _has_images(folder: Path) -> bool:
    with os.scandir(folder) as entries:
        return any(Path(entry.name).suffix.lower() in IMAGES and not is_hidden(entry.name) for entry in entries)


def _image_clip(name: str, folder: Path) -> Clip:
    return Clip(name, folder, lambda: _read_images(folder), cache(lambda: About(frames=_numbers(folder))))


def _numbers(folder: Path) -> FrameNumbers:
    """Frame numbers from the names of files: the last number in each, if these rise."""
    files = frame_files(folder, IMAGES)
    found = [re.findall(r"\d{1,15}", file.stem)[-1:] for file in files]
    numbers = np.array([int(number) for one in found for number in one], np.int64)
    rising = len(numbers) == len(files) and bool((np.diff(numbers) > 0).all())
    return FrameNumbers(len(files), numbers if rising else None)


def _read_images(folder: Path) -> np.ndarray:
    files = frame_files(folder, IMAGES)
    first = read_mask_image(files[0])
    if first.size * len(files) * 8 > ARRAY_LIMIT:
        raise FileError(f"{folder} has {len(files):,} images of {first.size:,} pixels: more than fit in memory")
    found = [first]
    for file in files[1:]:
        found.append(read_mask_image(file))
        if found[-1].shape != first.shape:
            size = " x ".join(map(str, first.shape))
            raise UserError(
                f"{file} has {found[-1].shape[0]} x {found[-1].shape[1]} pixels, and {files[0].name} beside it {size}; "
                "expected frames of one size"
            )
    return np.stack(found)
