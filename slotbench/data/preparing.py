"""What `slotbench prepare` can write: data sets of stored videos, each split decoded to a cache."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from slotbench.data.base import Split, leave_signals_to_the_main_process
from slotbench.data.clip_cache import ClipCache, is_cache, write_cache
from slotbench.data.clips import ClipSource, StoredVideos
from slotbench.data.reading_order import ResumableLoader
from slotbench.errors import DataFilesError
from slotbench.interfaces import DataSpec, VideoBatch
from slotbench.io import cache_home

__all__ = ["Coder", "Preparable", "PreparableVideos", "Report", "cache_videos", "in_order"]
__all__ += ["kept_cache", "kept_folder", "processes_for", "whole"]

Report = Callable[[str, int, int], None]
"""Called with the name of the work, the amount done, and the total (videos, or bytes of a file)."""

_WORTH_A_PROCESS = 4  # pieces; a process takes seconds to import torch


class Preparable(ABC):
    """A data set that `slotbench prepare` can write to a cache, which its `path` may then name."""

    prepare_arguments: ClassVar[tuple[str, ...]]
    """The constructor's arguments that decide what the cache holds: those that the command takes."""

    @abstractmethod
    def prepare(self, out: Path, report: Report, jobs: int | None = None) -> None:
        """Writes everything below `out`, or resumes where an earlier call was interrupted.

        Args:
            out: the folder.
            report: called with the progress.
            jobs: processes that work on it, which change no byte of the result; None for as many as the machine has.
        """


@dataclass(frozen=True)
class Coder:
    """A tokenizer whose codes a cache holds beside the frames.

    Attributes:
        encode: makes codes "batch time rows cols" of frames of bytes "batch time channels height width".
        description: which tokenizer, in JSON's types, and `num_codes`.
    """

    encode: Callable[[Tensor], Tensor]
    description: dict[str, Any]


def processes_for(asked: int | None, pieces: int) -> int:
    """The number of processes to use: the given one, or that of the cores if there is enough work for them."""
    if asked is not None and asked < 1:
        raise DataFilesError(f"jobs is {asked}; expected 1 or more")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return asked or max(1, min(cores, pieces // _WORTH_A_PROCESS))


def in_order(work: Callable[[Any], VideoBatch], pieces: Sequence[Any], jobs: int) -> Iterator[VideoBatch]:
    """Yields `work(piece)` for every piece in order, whichever of `jobs` processes computes it.

    With one job all is done in this process.
    """
    if jobs == 1 or len(pieces) < 2:
        return map(work, pieces)
    # without a batch size the loader hands each piece to `collate_fn`, in the worker
    return iter(
        ResumableLoader(
            pieces,  # type: ignore[arg-type]  # a sequence is a data set
            batch_size=None,
            collate_fn=work,
            num_workers=min(jobs, len(pieces)),
            worker_init_fn=leave_signals_to_the_main_process,
        )
    )


def cache_videos(
    folder: Path,
    source: ClipSource,
    description: dict[str, Any],
    timed: Collection[str],
    report: Callable[[int, int], None],
    jobs: int = 1,
    size: int = 16,
    coder: Coder | None = None,
) -> None:
    """Writes all videos of a source to a cache, whole, or resumes one that was interrupted.

    Args:
        folder: where to.
        source: of videos of one length.
        description: see `write_cache`.
        timed: see `write_cache`.
        report: called with the number of videos written and their total.
        jobs: processes that read them.
        size: videos that are read and written at a time.
        coder: makes the codes of frames, in this process.
    """
    if coder is not None:
        description = description | {"codes": coder.description}
    total = len(source.lengths)
    report(0, total)

    def batches(first: int) -> Iterator[VideoBatch]:
        pieces = [range(start, min(start + size, total)) for start in range(first, total, size)]
        for batch in in_order(partial(whole, source), pieces, jobs):
            yield batch if coder is None else replace(batch, codes=coder.encode(batch.frames))

    write_cache(folder, batches, description, timed, lambda done: report(done, total))
    report(total, total)


def kept_folder(kind: str, name: str, description: dict[str, Any]) -> Path:
    """The folder of a cache in the user's cache folder.

    Args:
        kind: the data set.
        name: the folder's, before a hash of the description.
        description: all that decides what it holds.
    """
    key = hashlib.sha256(json.dumps({"cache": 2} | description, sort_keys=True).encode()).hexdigest()[:16]
    return cache_home() / kind / f"{name}-{key}"


def kept_cache(
    kind: str, name: str, description: dict[str, Any], write: Callable[[Path, Callable[[int, int], None]], None]
) -> ClipCache:
    """The cache of `kept_folder`, which `write` makes at first use, with a bar: it is given folder and report."""
    from rich.console import Console
    from rich.progress import Progress

    folder = kept_folder(kind, name, description)
    if not is_cache(folder, complete=True):
        with Progress(console=Console(stderr=True)) as progress:
            bar = progress.add_task(f"{kind} {name}", total=None)
            write(folder, lambda done, total: progress.update(bar, completed=done, total=total))
        print(f"{kind}: the videos {name} are kept in {folder}", file=sys.stderr)
    return ClipCache(folder)


def whole(source: ClipSource, videos: Sequence[int]) -> VideoBatch:
    """Whole videos of a source, all of one length."""
    return source.read(videos, [0] * len(videos), int(source.lengths[videos[0]]))


class PreparableVideos(StoredVideos, Preparable):
    """Stored videos of which `slotbench prepare` writes a cache for each split, which `path` may then name.

    A subclass finds the released files (`has`, `released`), describes the caches of their videos (`describe`), and
    opens one (`opened`).
    """

    path: Path
    stored: ClassVar[Mapping[Split, str]] = {"train": "train", "val": "validation", "test": "test"}
    """The names of the splits on the disk."""
    timed: ClassVar[Collection[str]]
    """The entries of `objects` that have an axis of frames."""
    piece: ClassVar[int] = 16
    """Videos that are decoded and written to a cache at a time."""

    @abstractmethod
    def has(self, stored: str) -> bool:
        """Whether the released files have this split."""

    @abstractmethod
    def released(self, stored: str, keep: bool = True) -> ClipSource:
        """The videos of a split in the released files."""

    @abstractmethod
    def describe(self, stored: str, source: Any) -> dict[str, Any]:
        """All that decides what the cache of a source's videos holds."""

    @abstractmethod
    def opened(self, stored: str) -> ClipCache:
        """The cache of a split."""

    @property
    def spec(self) -> DataSpec:
        """The sizes of `StoredVideos`, with the codes of the cache if it has some."""
        return self.with_codes(super().spec)

    def with_codes(self, spec: DataSpec) -> DataSpec:
        """The spec with the codes that the cache has beside the frames; crops have none."""
        folders = [self.path / stored for stored in self.stored.values()]
        complete = next((folder for folder in folders if is_cache(folder, complete=True)), None)
        if complete is None or self.crop != 1:
            return spec
        return replace(spec, input=replace(spec.input, codes=ClipCache(complete).code_spec))

    def stored_name(self, split: Split) -> str:
        """The name of a split on the disk."""
        return self.stored[split]

    def source(self, split: Split) -> ClipSource:
        """The videos of a split: of its cache if `path` has one, or of the released files."""
        stored = self.stored_name(split)
        return self.opened(stored) if is_cache(self.path / stored) else self.released(stored)

    def prepare(self, out: Path, report: Report, jobs: int | None = None, coder: Coder | None = None) -> None:
        """Decodes every split that `path` has into a cache below `out`."""
        if is_cache(self.path / "train"):
            raise DataFilesError(f"{self.path} is a cache already; name the folder of the released files")
        # without any the first one says what is missing
        for stored in [name for name in self.stored.values() if self.has(name)] or ["train"]:
            source = self.released(stored, keep=False)
            count = processes_for(jobs, len(source.lengths) // self.piece)
            description = self.describe(stored, source)
            cache_videos(
                out / stored, source, description, self.timed, partial(report, stored), count, self.piece, coder
            )
