"""Decoded videos in files that are mapped into memory: read as fast as memory is copied.

A cache is a folder with one file per field, the videos one after the other, and `cache.json`, which says what they are.
It is written in pieces; `progress.json` says how much of it is on the disk for good, and gives way to `cache.json` at
the end, so a cache is either complete or known not to be, and one that was interrupted goes on. `SHA256SUMS` has the
check sums of all files.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np
import torch
from torch import Tensor

from slotbench.data.checksums import SUMS, add_sums, file_digest
from slotbench.data.clip_source import ClipSource
from slotbench.data.files import DataFilesError, write_atomically
from slotbench.interfaces import VideoBatch

__all__ = ["ClipCache", "Preparable", "Report", "is_cache", "write_cache"]

Report = Callable[[str, int, int], None]
"""Is told what is being prepared, how much of it is done, and how much there is (videos, or bytes of a file)."""

_COMPLETE, _PARTIAL = "cache.json", "progress.json"
_TIMED = ("frames", "masks", "actions", "rays")
_FORMAT = 1
_BLOCK = 1 << 22


class Preparable(ABC):
    """A data set that `slotbench prepare` can write to a cache, which its `path` may then name."""

    prepare_arguments: ClassVar[tuple[str, ...]]
    """The constructor's arguments that decide what the cache holds: those that the command takes."""

    @abstractmethod
    def prepare(self, out: Path, report: Report, jobs: int | None = None) -> None:
        """Writes everything below `out`, or goes on where an earlier call was interrupted.

        Args:
            out: the folder.
            report: is told how far it has come.
            jobs: processes that work on it, which change no byte of what is written; None for what the machine has.
        """


def is_cache(folder: Path) -> bool:
    """Whether the folder holds a cache, complete or not."""
    return (folder / _COMPLETE).is_file() or (folder / _PARTIAL).is_file()


def write_cache(
    folder: Path,
    batches: Callable[[int], Iterable[VideoBatch]],
    description: dict[str, Any],
    timed: Collection[str] = (),
    report: Callable[[int], None] | None = None,
) -> int:
    """Writes videos to a cache, or goes on with one that was interrupted, and returns how many it holds.

    Args:
        folder: where to.
        batches: gives the videos from a number on, in batches of any size, each whole and all of one layout.
        description: what they are and how they were made, in JSON's types; a reader gets it back, and a cache of
            another description is not overwritten.
        timed: the `objects` that have an axis of frames after that of videos, which a cut in time cuts.
        report: is told after each batch how many videos have been written.

    Raises:
        DataFilesError: the folder holds another cache, or a batch has a field that a cache cannot hold.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in (_COMPLETE, _PARTIAL):
        if (folder / name).is_file():
            there = _read_json(folder / name)["description"]
            if there != json.loads(json.dumps(description)):
                raise DataFilesError(
                    f"{folder} holds a cache of something else: {_difference(there, description)}; name another "
                    "folder, or delete that one"
                )
    if (folder / _COMPLETE).is_file():
        if not (folder / SUMS).is_file():
            # a cache of before there were sums
            names = [_COMPLETE, *(_path(folder, name).name for name in ClipCache(folder).fields)]
            add_sums(folder, {name: file_digest(folder / name) for name in names})
        return int(_read_json(folder / _COMPLETE)["videos"])
    state = _read_json(folder / _PARTIAL) if (folder / _PARTIAL).is_file() else None
    state = state or {"format": _FORMAT, "description": description, "videos": 0, "fields": {}}
    with ExitStack() as stack:
        files: dict[str, BinaryIO] = {}
        digests: dict[str, Any] = {}
        for batch in batches(state["videos"]):
            fields = _fields(batch)
            layout = {
                name: {
                    "dtype": str(values.dtype),
                    "shape": list(values.shape[1:]),
                    "timed": name in _TIMED or name.removeprefix("objects.") in timed,
                }
                for name, values in fields.items()
            }
            if state["fields"] and layout != state["fields"]:
                raise DataFilesError(f"videos {state['videos']} and on differ from those before: {layout}")
            state["fields"] = layout
            if not files:
                for name in layout:
                    files[name] = stack.enter_context(_at(folder, name, layout[name], state["videos"]))
                    digests[name] = _digest(files[name])
            for name, values in fields.items():
                content = np.ascontiguousarray(values)
                files[name].write(content.data)
                digests[name].update(content.data)
            for file in files.values():
                file.flush()
                os.fsync(file.fileno())
            state["videos"] += len(batch)
            _write_json(folder / _PARTIAL, state)
            if report is not None:
                report(state["videos"])
    if not state["videos"]:
        raise DataFilesError(f"nothing to write to {folder}: the source has no videos")
    sums = {name: digest.hexdigest() for name, digest in digests.items()}
    # there are none if it was interrupted after the last piece
    sums = sums or {name: file_digest(_path(folder, name)) for name in state["fields"]}
    sums = {_path(folder, name).name: digest for name, digest in sums.items()}
    add_sums(folder, sums | {_COMPLETE: hashlib.sha256(_as_json(state)).hexdigest()})
    # last: with it the cache is complete
    _write_json(folder / _COMPLETE, state)
    (folder / _PARTIAL).unlink(missing_ok=True)
    return int(state["videos"])


class ClipCache(ClipSource):
    """The videos of a cache.

    Args:
        folder: where `write_cache` wrote it.

    Attributes:
        description: what was given to `write_cache`.
        lengths: frames of each video.

    Raises:
        DataFilesError: it is not there, not complete, or its files do not have the size that they should have.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not (folder / _COMPLETE).is_file():
            if (folder / _PARTIAL).is_file():
                done = _read_json(folder / _PARTIAL)["videos"]
                raise DataFilesError(
                    f"the cache {folder} is not complete ({done} videos so far): run the `slotbench prepare` command "
                    "that began it again, it goes on from there"
                )
            raise DataFilesError(f"there is no cache at {folder}: `slotbench prepare` writes one")
        state = _read_json(folder / _COMPLETE)
        if state.get("format") != _FORMAT:
            raise DataFilesError(
                f"{folder} is a cache of format {state.get('format')}; expected {_FORMAT}: write it anew"
            )
        self.description: dict[str, Any] = state["description"]
        self.fields: dict[str, dict[str, Any]] = state["fields"]
        self.lengths = np.full(state["videos"], self.fields["frames"]["shape"][0])
        for name, field in self.fields.items():
            expected = _item_bytes(field) * state["videos"]
            size = _path(folder, name).stat().st_size if _path(folder, name).is_file() else 0
            if size < expected:
                raise DataFilesError(
                    f"{_path(folder, name)} has {size:,} bytes and cache.json says {expected:,}: copy the cache again, "
                    "or delete it and prepare it anew"
                )
        self._maps: dict[str, np.ndarray] = {}

    def field(self, name: str) -> np.ndarray:
        """A whole field "videos ...", mapped: "frames", "masks", or "objects.NAME"."""
        if name not in self._maps:
            field = self.fields[name]
            shape = (len(self.lengths), *field["shape"])
            # as a plain array: each slice of a memmap costs several times as much
            self._maps[name] = np.asarray(np.memmap(_path(self.folder, name), field["dtype"], "r", shape=shape))
        return self._maps[name]

    def read(self, videos: Sequence[int], starts: Sequence[int], num_frames: int) -> VideoBatch:
        """Clips, copied out of the files."""
        cut = {name: self._cut(name, videos, starts, num_frames) for name in self.fields}
        objects = {name.removeprefix("objects."): value for name, value in cut.items() if name.startswith("objects.")}
        return VideoBatch(
            **{name: value for name, value in cut.items() if not name.startswith("objects.")},
            time=torch.arange(num_frames).repeat(len(videos), 1),
            objects=objects | {"video": torch.tensor(videos), "first_frame": torch.tensor(starts)},
        )

    def _cut(self, name: str, videos: Sequence[int], starts: Sequence[int], num_frames: int) -> Tensor:
        whole = self.field(name)
        if not self.fields[name]["timed"]:
            return torch.from_numpy(whole[list(videos)])
        parts = [whole[video, start : start + num_frames] for video, start in zip(videos, starts, strict=True)]
        return torch.from_numpy(np.stack(parts))

    def __getstate__(self) -> dict[str, Any]:
        # a mapping sent to another process would be sent as its content
        return self.__dict__ | {"_maps": {}}


def _fields(batch: VideoBatch) -> dict[str, np.ndarray]:
    if batch.target is not None:
        raise DataFilesError("a cache holds videos that are their own target; this one has another")
    given = {name: getattr(batch, name) for name in _TIMED}
    # where a clip is from is said by who reads it
    given |= {f"objects.{name}": value for name, value in batch.objects.items() if name not in ("video", "first_frame")}
    return {name: value.numpy() for name, value in given.items() if value is not None}


def _at(folder: Path, name: str, field: dict[str, Any], videos: int) -> BinaryIO:
    """The file of a field, open for writing after so many videos; what lies behind them is dropped."""
    path = _path(folder, name)
    path.touch()
    file = path.open("r+b")
    file.truncate(_item_bytes(field) * videos)
    return file


def _digest(file: BinaryIO) -> Any:
    """Of what lies in a file that goes on, to be updated by what follows."""
    digest = hashlib.sha256()
    while block := file.read(_BLOCK):
        digest.update(block)
    return digest


def _item_bytes(field: dict[str, Any]) -> int:
    return math.prod(field["shape"]) * np.dtype(field["dtype"]).itemsize


def _path(folder: Path, name: str) -> Path:
    return folder / f"{name}.bin"


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataFilesError(f"{path} cannot be read ({error}): delete its folder and prepare it anew") from error
    return content


def _write_json(path: Path, content: dict[str, Any]) -> None:
    write_atomically(path, _as_json(content))


def _as_json(content: dict[str, Any]) -> bytes:
    return json.dumps(content, indent=1).encode()


def _difference(there: dict[str, Any], asked: dict[str, Any]) -> str:
    differing = [name for name in there | asked if there.get(name) != asked.get(name)]
    return ", ".join(f"{name} is {there.get(name)} and {asked.get(name)} is asked for" for name in differing)
