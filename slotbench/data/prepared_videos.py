"""Stored videos of released files, of which `slotbench prepare` writes a cache for each split."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from slotbench.data.base import Split
from slotbench.data.clip_cache import ClipCache, is_cache, write_cache
from slotbench.data.clips import ClipSource, StoredVideos
from slotbench.data.preparing import Preparable, Report, in_order, processes_for
from slotbench.errors import DataFilesError
from slotbench.interfaces import VideoBatch

__all__ = ["PreparableVideos", "cache_videos"]


def cache_videos(
    folder: Path,
    source: ClipSource,
    description: dict[str, Any],
    timed: Collection[str],
    report: Callable[[int, int], None],
    jobs: int = 1,
    size: int = 16,
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
    """
    total = len(source.lengths)
    report(0, total)

    def batches(first: int) -> Iterator[VideoBatch]:
        pieces = (range(start, min(start + size, total)) for start in range(first, total, size))
        return in_order(partial(_whole, source), pieces, jobs)

    write_cache(folder, batches, description, timed, lambda done: report(done, total))
    report(total, total)


def _whole(source: ClipSource, videos: range) -> VideoBatch:
    return source.read(videos, [0] * len(videos), int(source.lengths[0]))


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
    def released(self, stored: str, verify: bool = False) -> ClipSource:
        """The videos of a split in the released files.

        Args:
            stored: the split's name on the disk.
            verify: compares the checksums of the files, where the format has some.

        Raises:
            DataFilesError: they are missing or not what they should be.
        """

    @abstractmethod
    def describe(self, stored: str, source: Any) -> dict[str, Any]:
        """All that decides what the cache of a source's videos holds."""

    @abstractmethod
    def opened(self, stored: str) -> ClipCache:
        """The cache of a split.

        Raises:
            DataFilesError: it was prepared with other arguments.
        """

    def stored_name(self, split: Split) -> str:
        """The name of a split on the disk."""
        return self.stored[split]

    def source(self, split: Split) -> ClipSource:
        """The videos of a split: of its cache if `path` has one, or of the released files."""
        stored = self.stored_name(split)
        return self.opened(stored) if is_cache(self.path / stored) else self.released(stored)

    def prepare(self, out: Path, report: Report, jobs: int | None = None) -> None:
        """Decodes every split that `path` has into a cache below `out`; compares checksums where there are some.

        Raises:
            DataFilesError: there is nothing to prepare, or `out` holds something else.
        """
        if is_cache(self.path / "train"):
            raise DataFilesError(f"{self.path} is a cache already; name the folder of the released files")
        # without any the first one says what is missing
        for stored in [name for name in self.stored.values() if self.has(name)] or ["train"]:
            source = self.released(stored, verify=True)
            count = processes_for(jobs, len(source.lengths) // self.piece)
            description = self.describe(stored, source)
            cache_videos(out / stored, source, description, self.timed, partial(report, stored), count, self.piece)
