"""Masks of clips in files.

    FOLDER/walk.npz   the layout of `slotbench predict --save masks`: `masks`, or else `soft_masks`, and where they are
                      there `video`, whose masks they are, `frame`, their places in it from 0 on, and `view`, the part
                      of its frames that they show
    FOLDER/walk.npy   the masks alone
    FOLDER/walk/      a PNG for each frame, grey or with a palette, in the natural order of the names, whose numbers are
                      those of the truth

Masks are ids, integers "time height width", or soft masks, floating point "time slots height width"; those of several
cameras have an axis of views after that of time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Integer, Shaped
from natsort import natsorted
from PIL import Image

from slotbench.data.folders.names import composed, frame_files, frame_numbers, visible
from slotbench.errors import FileError, UserError, lines, listing
from slotbench.interfaces import View
from slotbench.io import map_npy, npz_names, read_npz

__all__ = ["MaskClip", "find_clips", "matched", "read_clip"]

_ARRAYS = ("masks", "soft_masks")


@dataclass(frozen=True)
class MaskClip:
    """The masks of one clip.

    Attributes:
        path: the file or folder.
        values: ids "time *views height width", or soft masks "time *views slots height width".
        frames: places in the video, from 0 on; None for all of it.
        view: the part of the video's frames that they show; None for whole frames.
        numbers: of the frames in the names of their files; None where they have none.
    """

    path: Path
    values: Shaped[np.ndarray, "time ..."]
    frames: Integer[np.ndarray, " time"] | None = None
    view: View | None = None
    numbers: list[float] | None = None

    @property
    def is_soft(self) -> bool:
        """Whether they are soft masks."""
        return self.values.dtype.kind == "f"


def find_clips(path: Path, what: str) -> dict[str, Path]:
    """The clips in a folder by name, or the one that a file or a folder of PNGs is."""
    expected = "expected a folder of npz or npy files or of folders of PNG frames, or one of these"
    if not path.exists():
        raise UserError(f"{what} {path} is not there; {expected}")
    inside = visible(path) if path.is_dir() else ()
    # pictures beside the arrays that a program has saved are no frames
    found = natsorted(one for one in inside if _is_clip(one)) or [path]
    if not _is_clip(found[0]):
        raise UserError(f"{what} {path} holds no masks; {expected}")
    return {composed(one.stem if one.is_file() else one.name): one for one in found}


def matched(
    masks: Mapping[str, Path], truth: Mapping[str, Path], allow_missing: bool = False
) -> dict[str, tuple[Path, Path]]:
    """Pairs of masks and truth by name: that of the file, or of the video that an npz names."""
    if len(masks) == len(truth) == 1:
        return {next(iter(truth)): (*masks.values(), *truth.values())}  # type: ignore[dict-item]
    videos = {name: name if name in truth else _video_of(path) for name, path in masks.items()}
    pairs = {name: (masks[name], truth[video]) for name, video in videos.items() if video in truth}
    missing = {
        "without masks": [name for name in truth if name not in videos.values()],
        "without truth": [name for name in masks if name not in pairs],
    }
    named = {side: f"{len(names):,}: {listing(names, 3)}" for side, names in missing.items() if names}
    if not pairs:
        raise UserError(lines("masks and truth have no clip in common: clips are matched by their names", **named))
    if named and not allow_missing:
        raise UserError(lines("not every clip has masks and truth; --allow-missing scores those that have", **named))
    return pairs


def read_clip(path: Path) -> MaskClip:
    """The masks in a file or a folder of PNGs."""
    if path.is_dir():
        files = frame_files(path, (".png",))
        return MaskClip(path, np.stack([_image(file) for file in files]), numbers=frame_numbers(files))
    if path.suffix == ".npy":
        return _checked(MaskClip(path, np.asarray(map_npy(path))))
    name = next((name for name in _ARRAYS if name in npz_names(path)), None)
    if name is None:
        raise UserError(f"{path} has no array masks, but {listing(npz_names(path), 5) or 'none'}")
    found = read_npz(path, [name, "frame", "view"])
    view = found.get("view")
    shown = None if view is None else View((int(view[0]), int(view[1])), tuple(map(int, view[2:])))  # type: ignore[arg-type]
    return _checked(MaskClip(path, found[name], found.get("frame"), shown))


def _checked(clip: MaskClip) -> MaskClip:
    kind, axes = clip.values.dtype.kind, clip.values.ndim
    colours = kind in "iu" and clip.values.shape[-1] in (3, 4) and clip.values.shape[-2] > 4
    if colours or not (clip.values.size and ((kind in "iu" and axes in (3, 4)) or (kind == "f" and axes in (4, 5)))):
        raise UserError(
            f"{clip.path} holds {clip.values.dtype} values of shape {clip.values.shape}; expected ids, integers (time, "
            "height, width), or soft masks, floating point (time, slots, height, width), each with views after time if "
            "there are several cameras"
        )
    return clip


def _image(file: Path) -> Integer[np.ndarray, "height width"]:
    try:
        with Image.open(file) as image:
            values = np.array(image)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise FileError(f"{file} cannot be read as an image: {error}") from error
    if values.ndim != 2 or values.dtype.kind not in "iu":
        raise UserError(f"{file} has colours in place of ids; expected a PNG with a palette, or a grey one")
    return values


def _is_clip(path: Path) -> bool:
    if path.is_dir():
        return any(file.suffix.lower() == ".png" for file in visible(path))
    return path.suffix in (".npz", ".npy")


def _video_of(path: Path) -> str:
    return composed(str(read_npz(path, ["video"]).get("video", ""))) if path.suffix == ".npz" else ""
