"""The recordings of a split: npz files with frames and actions, or movies with npz files of their actions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from slotbench.data.clips import ClipReader
from slotbench.data.folders.names import MOVIES, composed, entry, is_hidden
from slotbench.data.formats.images import Fit
from slotbench.data.formats.movies import MovieFile, keep_movies
from slotbench.errors import DataFilesError, listing
from slotbench.io import npz_names, read_npz

__all__ = ["Recordings", "action_vectors", "actions_of_frames", "find_recordings"]


def find_recordings(folder: Path) -> list[Path]:
    """The npz files in a folder and in the folders in it, in the order of their paths."""
    files = [path for pattern in ("*", "*/*") for path in folder.glob(pattern) if not is_hidden(path.name)]
    found = sorted(path for path in files if path.suffix.lower() == ".npz")
    named = {composed(str(path.with_suffix(""))) for path in found}
    movies = (path for path in files if path.suffix.lower() in MOVIES)
    alone = sorted(path for path in movies if composed(str(path.with_suffix(""))) not in named)
    if alone:
        raise DataFilesError(
            f"{len(alone)} movies have no npz file of their actions beside them: {listing(map(str, alone), 3)}; "
            "expected NAME.npz beside NAME.mp4"
        )
    if not found:
        raise DataFilesError(f"there is no npz file in {folder} or in the folders in it")
    return found


class Recordings(ClipReader):
    """Clips of recordings. A file is opened when a clip of it is read, and only then its lengths are checked."""

    def __init__(
        self,
        files: Sequence[Path],
        video_frames: int,
        resolution: int,
        num_actions: int,
        action_offset: int,
        frames_name: str = "video",
        actions_name: str = "actions",
        log: Collection[str] = (),
        keep: bool = True,
    ) -> None:
        self.files = files
        self.num_actions, self.action_offset = num_actions, action_offset
        self.fit = Fit(resolution, resolution)
        beside = ((path, entry(path.with_suffix(suffix))) for path in files for suffix in MOVIES)
        self.movies = {
            path: MovieFile(movie, self.fit if keep else None) for path, movie in beside if movie is not None
        }
        keep_movies(movie for path, movie in self.movies.items() if frames_name not in npz_names(path))
        self.frames_name, self.actions_name = frames_name, actions_name
        self.lengths = np.full(len(files), video_frames)
        # those of a batch have to be alike, and the files are not opened but for a clip
        self._shapes: dict[str, tuple[int, ...]] = {}
        if log:
            arrays = _arrays(files[0], log)
            self._shapes = {name: arrays[name].shape[1:] for name in log}

    def clip(self, video: int, frames: range) -> dict[str, np.ndarray]:
        """A clip; of an npz file the whole is read, of a movie only these frames are decoded."""
        path = self.files[video]
        arrays = _arrays(path, (self.actions_name, *self._shapes), (self.frames_name,))
        length, shown = self._frames(path, arrays.get(self.frames_name), frames)
        if length < self.lengths[video]:
            raise DataFilesError(
                f"{path} has {length} frames, and video_frames is {self.lengths[video]}: set data.video_frames to that "
                "or less, or move the file away"
            )
        window = slice(frames.start, frames.stop)
        try:
            actions = actions_of_frames(arrays[self.actions_name], length, self.num_actions, self.action_offset)
        except ValueError as error:
            raise DataFilesError(f"{path} ({self.actions_name}) {error}") from error
        return {
            "frames": shown,
            "actions": actions[window],
            **{name: _logged(path, name, arrays[name], length, shape)[window] for name, shape in self._shapes.items()},
        }

    def video_name(self, video: int) -> str:
        """The names of the file and of its folder: files of several folders may have one name."""
        return f"{self.files[video].parent.name}_{self.files[video].stem}"

    def origin(self, video: int) -> str:
        """The file."""
        return str(self.files[video])

    def _frames(self, path: Path, stored: np.ndarray | None, numbers: range) -> tuple[int, np.ndarray]:
        """The length of a video, and some frames of it."""
        if stored is None:
            if path not in self.movies:
                raise DataFilesError(
                    f"{path} has no {self.frames_name}, and there is no movie beside it; expected uint8 of shape "
                    f"(time, height, width, 3) in it, or {path.stem}.mp4"
                )
            movie = self.movies[path]
            shown = movie.fitted(numbers, self.fit)
            return movie.length, shown
        if stored.ndim != 4 or stored.dtype != np.uint8 or stored.shape[-1] != 3:
            raise DataFilesError(
                f"{path} ({self.frames_name}) holds {stored.dtype} values of shape {stored.shape}; expected uint8 of "
                "shape (time, height, width, 3)"
            )
        return len(stored), np.stack([self.fit(image) for image in stored[numbers.start : numbers.stop]])


def _arrays(path: Path, needed: Collection[str], perhaps: Collection[str] = ()) -> dict[str, np.ndarray]:
    """The arrays of a file, those needed and those that it may have."""
    arrays = read_npz(path, {*needed, *perhaps})
    missing = [name for name in needed if name not in arrays]
    if missing:
        raise DataFilesError(f"{path} has no {', '.join(missing)}; expected an npz file with {', '.join(needed)}")
    return arrays


def _logged(path: Path, name: str, values: np.ndarray, length: int, shape: tuple[int, ...]) -> np.ndarray:
    """An array of the log in single precision; numbers that do not fit are infinite."""
    if values.dtype.kind not in "biuf" or values.shape != (length, *shape):
        raise DataFilesError(
            f"{path} ({name}) holds {values.dtype} values of shape {values.shape}; expected numbers of shape "
            f"{(length, *shape)}, as many entries as frames and each as in the first file"
        )
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def action_vectors(values: np.ndarray, num_actions: int) -> Float32[np.ndarray, "entries num_actions"]:
    """One-hot vectors of actions that a file has as ids, or as one-hot vectors, where zeros stand for no action."""
    if values.ndim == 1 and values.dtype.kind in "iu":
        low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
        if low < 0 or high >= num_actions:
            raise ValueError(f"has ids from {low} to {high}; expected 0 to {num_actions - 1}: set num_actions")
        return np.eye(num_actions, dtype=np.float32)[values]
    if values.ndim != 2 or values.dtype.kind not in "biuf":
        raise ValueError(f"holds {values.dtype} values of shape {values.shape}; expected whole numbers, one a frame")
    if values.shape[1] != num_actions:
        raise ValueError(f"has vectors of {values.shape[1]}; expected {num_actions}: set num_actions to their length")
    if not ((values == 0) | (values == 1)).all() or values.sum(1, dtype=np.float64).max(initial=0) > 1:
        raise ValueError("has vectors that are not one-hot; expected a 1 among zeros, or zeros alone for no action")
    return values.astype(np.float32)


def actions_of_frames(
    values: np.ndarray, num_frames: int, num_actions: int, offset: int
) -> Float32[np.ndarray, "frames num_actions"]:
    """The action that is taken in each frame, and leads to the next one; zeros if the last frame has none."""
    entries, fewest = values.shape[0] if values.ndim else 0, num_frames - 1 + offset
    # before there are vectors of them: a small file may hold any number of zeros
    if not fewest <= entries <= fewest + 1:
        raise ValueError(
            f"has {entries} entries for {num_frames} frames; expected {fewest} or {fewest + 1} with action_offset "
            f"{offset}: 0 where entry t is taken in frame t, 1 where it led to frame t"
        )
    taken = action_vectors(values, num_actions)[offset:]
    return np.concatenate([taken, np.zeros((num_frames - len(taken), num_actions), np.float32)])
