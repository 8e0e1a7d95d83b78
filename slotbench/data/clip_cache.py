"""A cache of decoded videos in memory-mapped npy files, read as fast as memory is copied.

A cache is a folder with an npy file per field, "videos ...", and `cache.json`, which says what they are. It is written
in pieces; `progress.json` says how many videos are finished, and gives way to `cache.json` at the end, so that a cache
is either complete or known not to be, and one that was interrupted continues behind the last finished video.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from slotbench.data.clips import ClipSource
from slotbench.data.formats.npy import GrowingNpy
from slotbench.errors import DataFilesError, FileError
from slotbench.interfaces import VideoBatch, VideoSpec
from slotbench.io import dump_json, lock, map_npy, plain, read_json_object, write_atomically

__all__ = ["ClipCache", "is_cache", "write_cache"]

_COMPLETE, _PARTIAL = "cache.json", "progress.json"
_TIMED = ("frames", "masks", "features", "actions", "rays", "codes")


def is_cache(folder: Path, complete: bool = False) -> bool:
    """Whether the folder holds a cache, complete or not, or only if it is complete."""
    return (folder / _COMPLETE).is_file() or (not complete and (folder / _PARTIAL).is_file())


def _state(file: Path) -> dict[str, Any]:
    try:
        return read_json_object(file)
    except FileError as error:
        raise DataFilesError(f"{error}: delete {file.parent} and prepare it anew") from error


def write_cache(
    folder: Path,
    batches: Callable[[int], Iterable[VideoBatch]],
    description: dict[str, Any],
    timed: Collection[str] = (),
    report: Callable[[int], None] | None = None,
    lengths: np.ndarray | None = None,
) -> int:
    """Writes videos to a cache, or resumes one that was interrupted, and returns how many it holds.

    Args:
        folder: where to.
        batches: gives the videos from a number on, in batches of any size, each whole and all of one layout.
        description: content and origin of the videos, in JSON's types; readers get it back, and a cache of another
            description is not overwritten.
        timed: the `objects` that have an axis of frames after that of videos, which a cut in time cuts.
        report: called after each batch with the number of videos written.
        lengths: frames of each video where they differ: then each frame is an entry of the files, not each video.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # those who wait find it complete
        with lock(folder / ".prepare.lock", timeout=math.inf):
            return _write(folder, batches, plain(description), list(timed), report, lengths)
    except OSError as error:
        raise DataFilesError(
            f"{folder} cannot be written ({error.strerror or error}): the same command resumes from there"
        ) from error


def _write(
    folder: Path,
    batches: Callable[[int], Iterable[VideoBatch]],
    description: dict[str, Any],
    timed: list[str],
    report: Callable[[int], None] | None,
    lengths: np.ndarray | None,
) -> int:
    done = 0
    by_frame = frozenset((*_TIMED, *(f"objects.{name}" for name in timed))) if lengths is not None else frozenset()

    def entries(name: str) -> int:
        return int(lengths[:done].sum()) if lengths is not None and name in by_frame else done

    for name in (_COMPLETE, _PARTIAL):
        if (folder / name).is_file():
            state = _state(folder / name)
            done, there = state["videos"], state["description"]
            if there != description:
                keys = [key for key in there | description if there.get(key) != description.get(key)]
                differing = (f"{key} is {there.get(key)} and {description.get(key)} is asked for" for key in keys)
                raise DataFilesError(
                    f"{folder} holds a cache of something else: {', '.join(differing)}; name another folder, or delete "
                    "that one"
                )
            if name == _COMPLETE:
                return done
    with ExitStack() as stack:
        files: dict[str, GrowingNpy] = {}
        try:
            for path in folder.glob("*.npy") if done else ():
                files[path.stem] = stack.enter_context(GrowingNpy(path, entries(path.stem)))
            for batch in batches(done):
                for name, values in _fields(batch).items():
                    if name not in files:
                        files[name] = stack.enter_context(GrowingNpy(folder / f"{name}.npy", entries(name)))
                    files[name].append(values.reshape(-1, *values.shape[2:]) if name in by_frame else values)
                    files[name].flush()
                done += len(batch)
                if any(file.count != entries(name) for name, file in files.items()):
                    raise ValueError("some videos have a field that others have not")
                write_atomically(folder / _PARTIAL, dump_json({"videos": done, "description": description}))
                if report is not None:
                    report(done)
        except ValueError as error:
            if isinstance(error, DataFilesError):
                raise
            raise DataFilesError(f"{folder}: {error}; delete it and prepare it anew") from error
    if not done:
        raise DataFilesError(f"nothing to write to {folder}: the source has no videos")
    state = {"videos": done, "description": description, "timed": timed, "fields": sorted(files)}
    state |= {} if lengths is None else {"lengths": lengths.tolist()}
    write_atomically(folder / _COMPLETE, dump_json(state, indent=1))
    (folder / _PARTIAL).unlink(missing_ok=True)
    return done


class ClipCache(ClipSource):
    """The videos of a cache.

    Attributes:
        description: the one given to `write_cache`.
        fields: the shape of a video's values, by name: "frames", "masks", "objects.NAME", ...; of the longest video.
        lengths: frames of each video.
    """

    def __init__(self, folder: Path, stride: int = 1) -> None:
        self.folder, self.stride = folder, stride
        if not (folder / _COMPLETE).is_file():
            if (folder / _PARTIAL).is_file():
                raise DataFilesError(
                    f"the cache {folder} is not complete ({_state(folder / _PARTIAL)['videos']} videos so far): "
                    "run the `slotbench prepare` command that began it again, it resumes from there"
                )
            raise DataFilesError(f"there is no cache at {folder}: `slotbench prepare` writes one")
        state = _state(folder / _COMPLETE)
        self._maps: dict[str, np.ndarray] = {}
        self._first: np.ndarray | None = None
        try:
            self.description, self._timed = state["description"], (*_TIMED, *(f"objects.{n}" for n in state["timed"]))
            self.fields = {name: map_npy(folder / f"{name}.npy").shape[1:] for name in state["fields"]}
            if (lengths := state.get("lengths")) is None:
                lengths = np.full(state["videos"], self.fields["frames"][0])
                counts = {len(self.field(name)) for name in self.fields}
            else:
                by_frame = [name for name in self.fields if name in self._timed]
                counts = {len(self.field(name)) for name in self.fields if name not in by_frame} | {len(lengths)}
                counts |= {len(lengths) + len(self.field(name)) - sum(lengths) for name in by_frame}
                self._first = np.cumsum([0, *lengths])
                self.fields |= {name: (max(lengths), *self.field(name).shape[1:]) for name in by_frame}
            self.lengths = np.asarray(lengths)
        except FileError as error:
            raise DataFilesError(f"{error}: delete {folder} and prepare it anew") from error
        except (KeyError, TypeError, IndexError) as error:
            raise DataFilesError(f"{folder / _COMPLETE} is damaged: delete the folder and prepare it anew") from error
        if counts != {len(self.lengths)}:
            raise DataFilesError(f"{folder} is damaged: its files differ in their numbers of videos; prepare it anew")

    def check(self, needs: Mapping[str, bool] = MappingProxyType({}), **arguments: Any) -> None:
        """Checks that the cache was prepared with the arguments of the data set that reads it.

        Args:
            needs: arguments that, where they are true, the cache must have been prepared with.
            arguments: all other arguments that decide what it holds.
        """
        for name, asked in arguments.items():
            if (held := self.description.get(name)) != asked:
                raise DataFilesError(
                    f"the cache {self.folder} was prepared with {name} {held}, and {name} is {asked}: set data.{name} "
                    f"to {held}, or prepare another cache"
                )
        for name, needed in needs.items():
            if needed and not self.description.get(name):
                raise DataFilesError(
                    f"the cache {self.folder} was prepared without {name}: prepare another with --{name} true, or set "
                    f"data.{name} to false"
                )

    @property
    def code_spec(self) -> VideoSpec | None:
        """The codes that come with each frame; None where the cache was prepared without."""
        if "codes" not in self.fields:
            return None
        _, rows, cols = self.fields["codes"]
        return VideoSpec(self.description["codes"]["num_codes"], rows, cols)

    def video_name(self, video: int) -> str | None:
        """The name that the video had where it was read, if the description has it."""
        names: list[str | None] = self.description.get("names", [])
        return names[video] if video < len(names) else None

    def field(self, name: str) -> np.ndarray:
        """A whole field "videos ...", mapped: "frames", "masks", or "objects.NAME"; "frames ..." of unequal videos."""
        if name not in self._maps:
            if name not in self.fields:
                raise DataFilesError(f"the cache {self.folder} has no {name}: prepare it anew")
            # as a plain array: each slice of a memmap costs several times as much
            self._maps[name] = np.asarray(map_npy(self.folder / f"{name}.npy"))
        return self._maps[name]

    def read(self, videos: Sequence[int], starts: Sequence[int], num_frames: int) -> VideoBatch:
        """Clips, copied out of the files."""
        cut: dict[str, Any] = {name: self._cut(name, videos, starts, num_frames) for name in self.fields}
        if "codes" in cut:
            cut["codes"] = cut["codes"].long()
        objects = {name.removeprefix("objects."): value for name, value in cut.items() if name.startswith("objects.")}
        return VideoBatch(
            **{name: value for name, value in cut.items() if not name.startswith("objects.")},
            time=torch.arange(num_frames).repeat(len(videos), 1),
            objects=objects | {"video": torch.tensor(videos), "first_frame": torch.tensor(starts) * self.stride},
        )

    def _cut(self, name: str, videos: Sequence[int], starts: Sequence[int], num_frames: int) -> Tensor:
        whole = self.field(name)
        if name not in self._timed:
            return torch.from_numpy(whole[list(videos)])
        if self._first is None:
            parts = [whole[video, start : start + num_frames] for video, start in zip(videos, starts, strict=True)]
        else:
            places = [self._first[video] + start for video, start in zip(videos, starts, strict=True)]
            parts = [whole[place : place + num_frames] for place in places]
        return torch.from_numpy(np.stack(parts))

    def __getstate__(self) -> dict[str, Any]:
        # a mapping sent to another process would be sent as its content
        return self.__dict__ | {"_maps": {}}


def _fields(batch: VideoBatch) -> dict[str, np.ndarray]:
    given = {name: getattr(batch, name) for name in _TIMED}
    # readers add where a clip is from
    given |= {f"objects.{name}": value for name, value in batch.objects.items() if name not in ("video", "first_frame")}
    return {name: value.numpy() for name, value in given.items() if value is not None}
