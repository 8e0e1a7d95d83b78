"""What every data set is: a `LightningDataModule` that knows its sizes before it has made a single sample."""

from __future__ import annotations

import re
import signal
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, Literal

import lightning
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler, SequentialSampler

from slotbench.data.descriptors import enough_descriptors, too_many_open
from slotbench.data.files import DataFilesError
from slotbench.errors import FileError
from slotbench.interfaces import DataSpec, VideoBatch

__all__ = ["ClipDataset", "SlotDataModule", "Split", "collate", "generator_for", "to_unit_range"]

Split = Literal["train", "val", "test"]

_SPLITS: tuple[Split, ...] = ("train", "val", "test")


def generator_for(seed: int, split: Split, index: int) -> np.random.Generator:
    """The random generator of one sample, a pure function of its arguments; streams of different splits never meet."""
    return np.random.default_rng(np.random.SeedSequence([seed, _SPLITS.index(split), index]))


def collate(parts: list[VideoBatch]) -> VideoBatch:
    """Joins batches, or clips as batches of one, along the batch axis."""
    first = parts[0]
    if len(parts) == 1:
        return first
    joined = {
        f.name: torch.cat([getattr(part, f.name) for part in parts])
        for f in fields(first)
        if isinstance(getattr(first, f.name), Tensor)
    }
    objects = {name: torch.cat([part.objects[name] for part in parts]) for name in first.objects}
    return replace(first, **joined, objects=objects)


def to_unit_range(batch: VideoBatch) -> VideoBatch:
    """The batch with frames of bytes 0..255 turned into floats in [0, 1]; frames that are floats stay as they are."""
    if batch.frames.is_floating_point():
        return batch
    return replace(batch, frames=batch.frames.float() / 255)


class ClipDataset(Dataset[VideoBatch], ABC):
    """Clips by index, several at a time: a subclass writes `clips`, and a `DataLoader` asks for a whole batch at once.

    Args:
        size: number of clips.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    @abstractmethod
    def clips(self, indices: Sequence[int]) -> VideoBatch:
        """The clips of these indices; what clip i is depends on nothing but i."""

    def clip_name(self, index: int) -> str | None:
        """What a person calls clip `index`, for the names of files about it; None by default, as it is but a number."""
        return None

    def one_per_video(self) -> ClipDataset:
        """The data set without the clips that go on with a video of which another one is there; itself by default."""
        return self

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> VideoBatch:
        """One clip, as a batch of one."""
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: list[int]) -> list[VideoBatch]:
        """A list of one batch that holds all the clips: what `DataLoader` calls, and `collate` unwraps."""
        for index in indices:
            if not 0 <= index < self.size:
                raise IndexError(f"clip {index} does not exist; expected 0 to {self.size - 1}")
        return [replace(self.clips(indices), index=torch.tensor(indices))]


class _AsClips(ClipDataset):
    """A data set of single clips, each of which says its index here."""

    def __init__(self, dataset: Dataset[VideoBatch]) -> None:
        super().__init__(len(dataset))  # type: ignore[arg-type]  # torch's Dataset does not declare __len__
        self._dataset = dataset

    def clips(self, indices: Sequence[int]) -> VideoBatch:
        return collate([self._dataset[index] for index in indices])


class SlotDataModule(lightning.LightningDataModule, ABC):
    """Base of the data sets: a subclass says what its clips look like (`spec`) and has one `dataset` per split.

    Samples are read in order, in training too: a simulator's samples are independent, so shuffling would add nothing,
    and training that stopped after some batches goes on with the next one (the loader's position is in the checkpoint).
    Frames travel as bytes and become floats in [0, 1] on the device.

    Several processes share each batch: process r of w reads the r-th of its w parts, and no clip is read twice. So w
    processes with batches of n clips train on what one process trains on with batches of w * n. What is left at the end
    for a last, short batch is dealt out evenly, in training without the fewer than w clips that remain.

    Args:
        batch_size: clips per training batch of each process.
        val_batch_size: clips per batch of each process in validation, test and prediction.
        num_workers: processes that make samples; 0 makes them in the training process.
        seed: with the split and the index it determines a sample.
        train_size: clips in the training split.
        val_size: clips in the validation split.
        test_size: clips in the test split.

    Raises:
        ValueError: for sizes below 1, and for a negative seed or number of workers.
    """

    def __init__(
        self,
        batch_size: int = 16,
        val_batch_size: int = 64,
        num_workers: int = 0,
        seed: int = 0,
        train_size: int = 1_000_000,
        val_size: int = 1000,
        test_size: int = 1000,
    ) -> None:
        super().__init__()
        sizes = {"batch_size": batch_size, "val_batch_size": val_batch_size}
        sizes |= {"train_size": train_size, "val_size": val_size, "test_size": test_size}
        for name, value in sizes.items():
            if value < 1:
                raise ValueError(f"{name} is {value}; expected 1 or more")
        for name, value in {"num_workers": num_workers, "seed": seed}.items():
            if value < 0:
                raise ValueError(f"{name} is {value}; expected 0 or more")
        self.batch_size = batch_size
        self.val_batch_size = val_batch_size
        self.num_workers = num_workers
        self.seed = seed
        self.sizes: dict[Split, int] = {"train": train_size, "val": val_size, "test": test_size}

    @property
    @abstractmethod
    def spec(self) -> DataSpec:
        """What a step of the input and of the target looks like; known as soon as the object exists."""

    @abstractmethod
    def dataset(self, split: Split) -> Dataset[VideoBatch]:
        """The clips of a split, by index; each is a `VideoBatch` of one clip."""

    def continuations(self, batch: VideoBatch, context: int, horizon: int) -> dict[str, Tensor]:
        """How predictors that know the simulator would go on after `context` frames: oracles, and no trivial answers.

        None by default. A subclass may use the log of the batch up to the last context frame, and nothing after it.

        Args:
            batch: clips with their log.
            context: frames that a predictor has seen.
            horizon: frames to predict.

        Returns:
            frames "batch horizon channels height width" in [0, 1], by the predictor's name.
        """
        return {}

    def train_dataloader(self) -> DataLoader[VideoBatch]:
        """Training batches, in order of index."""
        return self._loader("train", self.batch_size)

    def val_dataloader(self) -> DataLoader[VideoBatch]:
        """Validation batches, the last one short if need be."""
        return self._loader("val", self.val_batch_size)

    def test_dataloader(self) -> DataLoader[VideoBatch]:
        """Test batches, the last one short if need be."""
        return self._loader("test", self.val_batch_size)

    def predict_dataloader(self) -> DataLoader[VideoBatch]:
        """The videos of the test split: whole ones, piece by piece, where the data has them and the task reads pieces.

        Otherwise the test batches, of each video one clip.
        """
        frames = None if self.trainer is None else getattr(self.trainer.lightning_module, "piece_frames", None)
        rank, processes = self._place_among_processes()
        pieces = None if frames is None else self.video_pieces("test", frames, rank, processes)
        if pieces is None:
            return self._loader("test", self.val_batch_size, one_per_video=True)
        if not len(pieces):
            raise DataFilesError("there are fewer videos than processes: lower trainer.devices")
        return self._loader_of(pieces, _InOrder(pieces, 1, equal_shares=False), 1)

    def video_pieces(self, split: Split, frames: int, rank: int = 0, processes: int = 1) -> ClipDataset | None:
        """The whole videos of a split, piece by piece (`slotbench.data.video_pieces.VideoPieces`).

        None by default: a clip is all that there is of a video.

        Args:
            split: "test", or another.
            frames: of a piece at most.
            rank: number of this process.
            processes: how many there are.
        """
        return None

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Turns bytes into floats once they are on the device."""
        return to_unit_range(batch) if isinstance(batch, VideoBatch) else batch

    def _place_among_processes(self) -> tuple[int, int]:
        """The number of this process, and how many there are."""
        return (0, 1) if self.trainer is None else (self.trainer.global_rank, self.trainer.world_size)

    def _loader(self, split: Split, batch_size: int, one_per_video: bool = False) -> DataLoader[VideoBatch]:
        dataset = self.dataset(split)
        if not isinstance(dataset, ClipDataset):
            dataset = _AsClips(dataset)
        if one_per_video:
            dataset = dataset.one_per_video()
        rank, processes = self._place_among_processes()
        if len(dataset) < processes:
            raise DataFilesError(
                f"the {split} split has {len(dataset)} clip(s) and there are {processes} processes; expected at least "
                f"one clip for each: raise data.{split}_size, or lower trainer.devices"
            )
        sampler = _InOrder(dataset, batch_size, rank, processes, equal_shares=split == "train")
        return self._loader_of(dataset, sampler, batch_size)

    def _loader_of(self, dataset: ClipDataset, sampler: _InOrder, batch_size: int) -> DataLoader[VideoBatch]:
        enough_descriptors(self.num_workers)
        # a worker runs torch on one thread without being asked to
        return _ResumableLoader(
            dataset,
            sampler=sampler,
            batch_size=batch_size,
            num_workers=self.num_workers,
            collate_fn=collate,
            persistent_workers=self.num_workers > 0,
            pin_memory=torch.cuda.is_available(),
            worker_init_fn=_leave_signals_to_the_main_process,
            # for the workers' seeds: drawn from torch's own generator, they would depend on which workers run already
            generator=torch.Generator().manual_seed(self.seed),
        )


def _leave_signals_to_the_main_process(worker: int) -> None:
    """Ctrl-C and a scheduler's SIGTERM reach every process of the group; only the main one knows how to end a run."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


class _InOrder(SequentialSampler, DistributedSampler):  # type: ignore[misc]  # both are samplers of int
    """This process's part of the indices in order, the next time from its `start`-th and after that from the first.

    Lightning puts a sampler of its own in the place of one that is no `DistributedSampler` where there are several
    processes: it reads some indices twice, so that all processes have as many, and knows no `start`.

    Args:
        dataset: clips by index.
        batch_size: clips per batch of each process.
        rank: number of this process, from 0.
        processes: how many there are.
        equal_shares: of the last, short batch too all processes get as many clips, and fewer than `processes` are left
            out, as training needs it; else the first processes get one more, and none is left out.
    """

    def __init__(
        self, dataset: ClipDataset, batch_size: int, rank: int = 0, processes: int = 1, equal_shares: bool = True
    ) -> None:
        DistributedSampler.__init__(self, dataset, num_replicas=processes, rank=rank, shuffle=False)
        self.data_source = dataset
        self.start = 0
        whole, rest = divmod(len(dataset), batch_size * processes)
        share, more = divmod(rest, processes)
        parts = [share + (not equal_shares and other < more) for other in range(processes)]
        self._batch_size, self._whole = batch_size, whole
        self._first_of_rest = whole * batch_size * processes + sum(parts[:rank])
        self._length = whole * batch_size + parts[rank]

    def __iter__(self) -> Iterator[int]:
        start, self.start = self.start, 0
        return map(self._index, range(start, self._length))

    def __len__(self) -> int:
        return self._length

    def _index(self, place: int) -> int:
        """The index that comes at a place of this process's order."""
        batch, within = divmod(place, self._batch_size)
        if batch == self._whole:
            return self._first_of_rest + within
        return (batch * self.num_replicas + self.rank) * self._batch_size + within


def _as_in_the_worker(error: FileError) -> FileError:
    """An error of a worker without the traceback that torch puts before its words."""
    text = str(error)
    if not text.startswith("Caught "):
        return error
    sentence = re.split(r"^[\w.]*Error: ", text, flags=re.MULTILINE)[-1].strip()
    return type(error)(sentence)


class _ResumableLoader(DataLoader[VideoBatch]):
    """A loader that knows how many batches it has handed out, which Lightning keeps in its checkpoints."""

    _handed_out = 0
    _skipped = 0

    def __iter__(self) -> Iterator[VideoBatch]:  # type: ignore[override]
        self._handed_out, self._skipped = self._skipped, 0
        batches = super().__iter__()
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                return
            except FileError as error:
                raise _as_in_the_worker(error) from error
            except (OSError, RuntimeError) as error:
                if (reason := too_many_open(error)) is not None:
                    raise DataFilesError(reason) from error
                raise
            self._handed_out += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        """How many batches of the epoch have been handed out."""
        return {"batches": self._handed_out}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Lets the next pass over the data begin after that many batches, or at the beginning if these were all."""
        self._skipped = state["batches"] % len(self)
        if isinstance(self.sampler, _InOrder):
            self.sampler.start = self._skipped * (self.batch_size or 1)
