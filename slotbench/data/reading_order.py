"""The order in which clips are read, and a loader whose position in it is part of a checkpoint."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sized
from typing import cast

from torch.utils.data import DataLoader, Dataset, DistributedSampler, SequentialSampler

from slotbench.errors import FileError
from slotbench.interfaces import VideoBatch

__all__ = ["InOrder", "ResumableLoader"]


class InOrder(SequentialSampler, DistributedSampler):  # type: ignore[misc]  # both are samplers of int
    """Sampler of this process's share of the indices, in order; the next pass begins at `start`.

    Lightning puts a sampler of its own in the place of one that is no `DistributedSampler` where there are several
    processes: it reads some indices twice, so that all processes have as many, and knows no `start`.

    Args:
        dataset: clips by index.
        batch_size: clips per batch of each process.
        rank: number of this process, from 0.
        processes: how many there are.
        equal_shares: of the last, short batch too all processes get as many clips, and fewer than `processes` are left
            out, as training needs it; else the first processes get one more, and none is left out.

    Attributes:
        batches: of an epoch; None for all. Fewer than there are read on in the next epoch, from batch to batch full,
            over the end of the indices.
        start: place in an epoch, in indices of this process, at which the next pass begins.
    """

    def __init__(
        self, dataset: Sized, batch_size: int, rank: int = 0, processes: int = 1, equal_shares: bool = True
    ) -> None:
        DistributedSampler.__init__(
            self, cast("Dataset[VideoBatch]", dataset), num_replicas=processes, rank=rank, shuffle=False
        )
        self.data_source = dataset
        self.start = 0
        self.batches: int | None = None
        whole, rest = divmod(len(dataset), batch_size * processes)
        share, more = divmod(rest, processes)
        parts = [share + (not equal_shares and other < more) for other in range(processes)]
        self._batch_size, self._whole, self._total = batch_size, whole, len(dataset)
        self._first_of_rest = whole * batch_size * processes + sum(parts[:rank])
        self._length = whole * batch_size + parts[rank]

    def __iter__(self) -> Iterator[int]:
        start, self.start = self.start, 0
        if self.batches is None or self.batches * self._batch_size >= self._length:
            return map(self._index, range(start, self._length))
        # Lightning sets `epoch` with `set_epoch`
        first, length = self.epoch * self.batches * self._batch_size, self.batches * self._batch_size
        return (self._full_batch_index(place) % self._total for place in range(first + start, first + length))

    def __len__(self) -> int:
        return self._length

    def _index(self, place: int) -> int:
        """The index at a position of this process's order."""
        batch, within = divmod(place, self._batch_size)
        return self._first_of_rest + within if batch == self._whole else self._full_batch_index(place)

    def _full_batch_index(self, place: int) -> int:
        batch, within = divmod(place, self._batch_size)
        return (batch * self.num_replicas + self.rank) * self._batch_size + within


def _as_in_the_worker(error: FileError) -> FileError:
    """The error of a worker without the traceback that torch puts before its message."""
    text = str(error)
    if not text.startswith("Caught "):
        return error
    sentence = re.split(r"^[\w.]*Error: ", text, flags=re.MULTILINE)[-1].strip()
    return type(error)(sentence)


class ResumableLoader(DataLoader[VideoBatch]):
    """A `DataLoader` whose position, the number of batches given out, is part of Lightning's checkpoints.

    Attributes:
        epoch_batches: how many batches are an epoch of this loader, asked when a pass begins; None for all.
    """

    epoch_batches: Callable[[ResumableLoader], int | None] | None = None
    _yielded = 0
    _skipped = 0

    def __iter__(self) -> Iterator[VideoBatch]:  # type: ignore[override]
        batches_of_epoch = None if self.epoch_batches is None else self.epoch_batches(self)
        # after all batches of an epoch the next one begins
        self._yielded, self._skipped = self._skipped % (batches_of_epoch or len(self)), 0
        if isinstance(self.sampler, InOrder):
            self.sampler.batches = batches_of_epoch
            self.sampler.start = self._yielded * (self.batch_size or 1)
        batches = super().__iter__()
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                return
            except FileError as error:
                raise _as_in_the_worker(error) from error
            self._yielded += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        """The number of batches of the epoch that the loader has yielded."""
        return {"batches": self._yielded}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Makes the next pass begin after that many batches, or at the first if these were all of an epoch."""
        self._skipped = state["batches"]
