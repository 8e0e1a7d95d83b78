"""What an npz file says of its masks beside them: the video, its frames, and the part of them that the masks show."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from slotbench.arrays import npz_names, read_npz
from slotbench.errors import UserError
from slotbench.evaluation.frame_numbers import Side
from slotbench.interfaces import View

__all__ = ["About", "about_npz"]

_LIMIT = 1 << 24
_LONGEST_NAME = 1000
_MOST_PIXELS = 1 << 20


@dataclass(frozen=True)
class About:
    """What a file says of its masks; nothing by default.

    Attributes:
        video: what the video is called, and so its truth.
        frames: their numbers.
        view: the part of the video's frames that they show.
    """

    video: str | None = None
    frames: Side | None = None
    view: View | None = None


def about_npz(path: Path) -> About:
    """What an npz file says: `video`, a text; `frame`, a number for each frame, from 0; `view`, six sizes.

    Raises:
        UserError: one of them cannot be that.
        FileError: the file is damaged.
    """
    names = [name for name in ("video", "frame", "view") if name in npz_names(path)]
    found = read_npz(path, names, _LIMIT) if names else {}
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
        None if frames is None else Side(len(frames), frames, from_zero=True),
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
