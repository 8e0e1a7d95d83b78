"""A cache of decoded videos in memory-mapped files, read as fast as memory is copied.

A cache is a folder with one file per field, the videos one after the other, and `cache.json`, which says what they are.
It is written in pieces, by one process at a time; `progress.json` has the checksums of what is on the disk for good,
and gives way to `cache.json` at the end, so a cache is either complete or known not to be, and one that was interrupted
continues behind what is there as it was written. `SHA256SUMS` has the checksums of all files.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, BinaryIO, Literal, cast

import numpy as np
import torch
from msgspec import Meta
from torch import Tensor

from slotbench.checksums import SUMS, add_sums, file_digest
from slotbench.data.clips import ClipSource
from slotbench.data.descriptors import too_many_open
from slotbench.data.preparing import Marks, as_marks, sole_writer
from slotbench.errors import DataFilesError, FileError
from slotbench.files import check_regular, open_regular, write_atomically
from slotbench.interfaces import VideoBatch, VideoSpec
from slotbench.records import read_record

__all__ = ["ClipCache", "is_cache", "write_cache"]

_COMPLETE, _PARTIAL = "cache.json", "progress.json"
_TIMED = ("frames", "masks", "actions", "rays", "codes")
_BLOCK = 1 << 22
_Name = Annotated[str, Meta(pattern=r"^(frames|masks|actions|rays|codes|objects\.[A-Za-z0-9_]{1,100})\Z")]
_Axes = Annotated[list[Annotated[int, Meta(ge=0, lt=1 << 31)]], Meta(max_length=16)]
_Type = Literal[
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"
]


@dataclass(frozen=True)
class _Field:
    """How the values of one video lie in a file."""

    dtype: _Type
    shape: _Axes
    timed: bool

    def __post_init__(self) -> None:
        if self.timed and not self.shape:
            raise ValueError("a field that goes with time has no axes")

    @property
    def num_bytes(self) -> int:
        """Bytes of a video."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass
class _State:
    """The content of `cache.json`, or of `progress.json` while a cache is written."""

    format: Literal[1]
    description: dict[str, Any]
    videos: Annotated[int, Meta(ge=0, lt=1 << 40)]
    fields: dict[_Name, _Field]
    marks: list[Any] | None = None

    def __post_init__(self) -> None:
        if not self.fields and not self.videos:
            return
        frames = self.fields.get("frames")
        if frames is None or len(frames.shape) not in (4, 5) or not frames.num_bytes:
            raise ValueError("it has no frames")
        for name, one in self.fields.items():
            if one.timed and one.shape[0] != frames.shape[0]:
                raise ValueError(f"the field {name} has {one.shape[0]} frames, and there are {frames.shape[0]}")

    def as_json(self) -> bytes:
        """The bytes of its file."""
        content = {name: value for name, value in asdict(self).items() if value is not None}
        return json.dumps(content, indent=1).encode()


def is_cache(folder: Path, complete: bool = False) -> bool:
    """Whether the folder holds a cache, complete or not, or only if it is complete."""
    return (folder / _COMPLETE).is_file() or (not complete and (folder / _PARTIAL).is_file())


def write_cache(
    folder: Path,
    batches: Callable[[int], Iterable[VideoBatch]],
    description: dict[str, Any],
    timed: Collection[str] = (),
    report: Callable[[int], None] | None = None,
) -> int:
    """Writes videos to a cache, or resumes one that was interrupted, and returns how many it holds.

    Args:
        folder: where to.
        batches: gives the videos from a number on, in batches of any size, each whole and all of one layout.
        description: content and origin of the videos, in JSON's types; readers get it back, and a cache of another
            description is not overwritten.
        timed: the `objects` that have an axis of frames after that of videos, which a cut in time cuts.
        report: called after each batch with the number of videos written.

    Raises:
        DataFilesError: the folder holds another cache or cannot be written, or a batch has a field that a cache cannot
            hold.
    """
    with sole_writer(folder):
        for name in (_COMPLETE, _PARTIAL):
            if (folder / name).is_file():
                there = _read_state(folder / name).description
                if there != json.loads(json.dumps(description)):
                    raise DataFilesError(
                        f"{folder} holds a cache of something else: {_difference(there, description)}; name another "
                        "folder, or delete that one"
                    )
        if not (folder / _COMPLETE).is_file():
            return _write(folder, batches, description, timed, report)
        cache = ClipCache(folder)  # complains about files of another size
        if not (folder / SUMS).is_file():
            # a cache of before there were sums
            names = [_COMPLETE, *(_path(folder, name).name for name in cache.fields)]
            add_sums(folder, {name: file_digest(folder / name) for name in names})
        (folder / _PARTIAL).unlink(missing_ok=True)
        return len(cache.lengths)


def _write(
    folder: Path,
    batches: Callable[[int], Iterable[VideoBatch]],
    description: dict[str, Any],
    timed: Collection[str],
    report: Callable[[int], None] | None,
) -> int:
    state, marks = _resumed(folder, description)
    with ExitStack() as stack:
        files: dict[str, BinaryIO] = {}
        for batch in batches(state.videos):
            fields = _fields(batch)
            layout = {
                name: _Field(
                    cast(_Type, str(values.dtype)),
                    list(values.shape[1:]),
                    name in _TIMED or name.removeprefix("objects.") in timed,
                )
                for name, values in fields.items()
            }
            if state.fields and layout != state.fields:
                raise DataFilesError(f"videos {state.videos} and on differ from those before: {layout}")
            state.fields = layout
            try:
                for name in layout if not files else ():
                    files[name] = stack.enter_context(_at(folder, name, layout[name], state.videos))
                for name, values in fields.items():
                    content = np.ascontiguousarray(values)
                    files[name].write(content.data)
                    marks.update(name, content.data)
                for file in files.values():
                    file.flush()
                    os.fsync(file.fileno())
                state.videos += len(batch)
                marks.set(state.videos)
                # only now, so that what it says is written has been
                write_atomically(folder / _PARTIAL, replace(state, marks=marks.stored()).as_json())
            except OSError as error:
                raise DataFilesError(
                    f"{folder} cannot be written ({error.strerror or error}): the same command resumes from there"
                ) from error
            if report is not None:
                report(state.videos)
    if not state.videos:
        raise DataFilesError(f"nothing to write to {folder}: the source has no videos")
    sums = {_path(folder, name).name: digest for name, digest in marks.sums().items()}
    add_sums(folder, sums | {_COMPLETE: hashlib.sha256(state.as_json()).hexdigest()})
    # last: with it the cache is complete
    write_atomically(folder / _COMPLETE, state.as_json())
    (folder / _PARTIAL).unlink(missing_ok=True)
    return state.videos


def _resumed(folder: Path, description: dict[str, Any]) -> tuple[_State, Marks]:
    """How far an earlier process has come: as far as the files are what it wrote, whatever their size."""
    anew = _State(1, description, 0, {})
    if not (folder / _PARTIAL).is_file():
        return anew, Marks()
    there = _read_state(folder / _PARTIAL)
    marks = as_marks(there.marks)

    def written(start: int, stop: int) -> Iterator[tuple[str, bytes]]:
        for name, field in there.fields.items():
            size = field.num_bytes
            with open_regular(_path(folder, name)) as file:
                file.seek(size * start)
                left = size * (stop - start)
                yield name, b""
                while left and (block := file.read(min(left, _BLOCK))):
                    left -= len(block)
                    yield name, block

    good = marks.resume(written, there.videos, folder)
    return (replace(there, videos=good, marks=None), marks) if good else (anew, marks)


class ClipCache(ClipSource):
    """The videos of a cache.

    Args:
        folder: where `write_cache` wrote it.
        stride: frames of the videos' files from one frame of the cache to the next.

    Attributes:
        description: the one given to `write_cache`.
        lengths: frames of each video.

    Raises:
        DataFilesError: it is not there, not complete, damaged, or its files do not have the size that they should have.
    """

    def __init__(self, folder: Path, stride: int = 1) -> None:
        self.folder, self.stride = folder, stride
        if not (folder / _COMPLETE).is_file():
            if (folder / _PARTIAL).is_file():
                done = _read_state(folder / _PARTIAL).videos
                raise DataFilesError(
                    f"the cache {folder} is not complete ({done} videos so far): run the `slotbench prepare` command "
                    "that began it again, it resumes from there"
                )
            raise DataFilesError(f"there is no cache at {folder}: `slotbench prepare` writes one")
        state = _read_state(folder / _COMPLETE)
        self.description, self.fields = state.description, state.fields
        for name, field in self.fields.items():
            path = _path(folder, name)
            expected = field.num_bytes * state.videos
            size = path.stat().st_size if path.is_file() else 0
            if size != expected or not path.is_file():
                raise DataFilesError(
                    f"{path} has {size:,} bytes and cache.json says {expected:,}: copy the cache again, or delete it "
                    "and prepare it anew"
                )
        self.lengths = np.full(state.videos, self.fields["frames"].shape[0])
        self._maps: dict[str, np.ndarray] = {}

    def check(
        self,
        resolution: int,
        needs: Mapping[str, bool] = MappingProxyType({}),
        views: int | None = None,
        **arguments: Any,
    ) -> None:
        """Checks that the cache was prepared with the arguments of the data set that reads it.

        Args:
            resolution: pixels per side of the frames.
            needs: arguments that, where they are true, the cache must have been prepared with.
            views: cameras of each step; None where frames have no axis of views.
            arguments: all other arguments that decide what it holds.

        Raises:
            DataFilesError: it was prepared with others; says which, and what to set.
        """
        for name, asked in {"resolution": resolution, **arguments}.items():
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
        shape = self.fields["frames"].shape
        seen = [] if views is None else [views]
        if shape != [arguments.get("video_frames", shape[0]), *seen, 3, resolution, resolution]:
            raise DataFilesError(
                f"the cache {self.folder} is damaged: its frames have the shape {shape}; prepare it anew"
            )

    @property
    def code_spec(self) -> VideoSpec | None:
        """The codes that come with each frame; None where the cache was prepared without.

        Raises:
            DataFilesError: the cache does not say how many codes there are.
        """
        if "codes" not in self.fields:
            return None
        about, field = self.description.get("codes"), self.fields["codes"]
        count = about.get("num_codes") if isinstance(about, dict) else None
        if type(count) is not int or count < 1 or len(field.shape) != 3 or np.dtype(field.dtype).kind != "i":
            raise DataFilesError(f"the cache {self.folder} is damaged: its codes are of no known kind; prepare it anew")
        _, rows, cols = field.shape
        return VideoSpec(count, rows, cols)

    def field(self, name: str) -> np.ndarray:
        """A whole field "videos ...", mapped: "frames", "masks", or "objects.NAME"."""
        if name not in self._maps:
            if name not in self.fields:
                raise DataFilesError(f"the cache {self.folder} has no {name}: prepare it anew")
            field, path = self.fields[name], _path(self.folder, name)
            shape = (len(self.lengths), *field.shape)
            if not field.num_bytes:  # nothing can be mapped that has no bytes
                return np.empty(shape, field.dtype)
            try:
                # as a plain array: each slice of a memmap costs several times as much
                self._maps[name] = np.asarray(np.memmap(check_regular(path), field.dtype, "r", shape=shape))
            except (OSError, ValueError) as error:
                if isinstance(error, FileError):
                    raise
                reason = too_many_open(error) or f"{path} cannot be mapped into memory: {error}"
                raise DataFilesError(reason) from error
        return self._maps[name]

    def read(self, videos: Sequence[int], starts: Sequence[int], num_frames: int) -> VideoBatch:
        """Clips, copied out of the files."""
        cut: dict[str, Any] = {name: self._cut(name, videos, starts, num_frames) for name in self.fields}
        if (spec := self.code_spec) is not None:
            codes = cut["codes"] = cut["codes"].long()
            if codes.numel() and not 0 <= codes.min() <= codes.max() < spec.channels:
                raise DataFilesError(
                    f"the cache {self.folder} is damaged: it has codes from {codes.min()} to {codes.max()} of "
                    f"{spec.channels}; prepare it anew"
                )
        objects = {name.removeprefix("objects."): value for name, value in cut.items() if name.startswith("objects.")}
        return VideoBatch(
            **{name: value for name, value in cut.items() if not name.startswith("objects.")},
            time=torch.arange(num_frames).repeat(len(videos), 1),
            objects=objects | {"video": torch.tensor(videos), "first_frame": torch.tensor(starts) * self.stride},
        )

    def _cut(self, name: str, videos: Sequence[int], starts: Sequence[int], num_frames: int) -> Tensor:
        whole = self.field(name)
        if not self.fields[name].timed:
            return torch.from_numpy(whole[list(videos)])
        parts = [whole[video, start : start + num_frames] for video, start in zip(videos, starts, strict=True)]
        return torch.from_numpy(np.stack(parts))

    def __getstate__(self) -> dict[str, Any]:
        # a mapping sent to another process would be sent as its content
        return self.__dict__ | {"_maps": {}}


def _fields(batch: VideoBatch) -> dict[str, np.ndarray]:
    if batch.target is not None:
        raise DataFilesError("a cache holds videos that are their own target; this one has another")
    if batch.held_out is not None:
        raise DataFilesError("a cache holds the views of one batch; this one has views that are held out")
    given = {name: getattr(batch, name) for name in _TIMED}
    # readers add where a clip is from
    given |= {f"objects.{name}": value for name, value in batch.objects.items() if name not in ("video", "first_frame")}
    return {name: value.numpy() for name, value in given.items() if value is not None}


def _at(folder: Path, name: str, field: _Field, videos: int) -> BinaryIO:
    """The file of a field, open for writing after so many videos; what lies behind them is dropped."""
    # not through a link: it might lead anywhere
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    file = os.fdopen(os.open(_path(folder, name), flags, 0o666), "r+b")
    file.truncate(field.num_bytes * videos)
    file.seek(0, os.SEEK_END)
    return file


def _path(folder: Path, name: str) -> Path:
    return folder / f"{name}.bin"


def _read_state(path: Path) -> _State:
    """The content of cache.json or progress.json."""
    advice = "delete its folder and prepare it anew"
    state = read_record(path, _State, advice=advice, raising=DataFilesError)
    if path.name == _COMPLETE and not state.videos:
        raise DataFilesError(f"{path} is damaged: it has no videos; {advice}")
    return state


def _difference(there: dict[str, Any], asked: dict[str, Any]) -> str:
    differing = [name for name in there | asked if there.get(name) != asked.get(name)]
    return ", ".join(f"{name} is {there.get(name)} and {asked.get(name)} is asked for" for name in differing)
