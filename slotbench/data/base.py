"""Base classes of the data sets: a `LightningDataModule` with a `DataSpec`, its clips by index, and their batches."""

from __future__ import annotations

import copy
import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal, get_args

import lightning
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torch.utils.data._utils.collate import default_collate_fn_map

from slotbench.data.reading_order import InOrder, ResumableLoader
from slotbench.errors import DataFilesError
from slotbench.interfaces import DataSpec, DescribedClips, Reporter, VideoBatch, to_unit_range

__all__ = ["ClipDataset", "LoaderOptions", "SimulatedData", "SlotDataModule", "Split", "check_choices", "check_counts"]
__all__ += ["collate", "generator_for", "join_clips", "leave_signals_to_the_main_process", "padded", "to_unit_range"]

Split = Literal["train", "val", "test"]

_SPLITS: tuple[Split, ...] = ("train", "val", "test")


def generator_for(seed: int, split: Split, index: int) -> np.random.Generator:
    """The random generator of one sample, a pure function of its arguments; streams of different splits never meet."""
    return np.random.default_rng(np.random.SeedSequence([seed, _SPLITS.index(split), index]))


def collate(parts: list[VideoBatch]) -> VideoBatch:
    """Joins batches, or clips as batches of one, along the batch axis."""
    return VideoBatch.join(parts)


# so that a plain DataLoader joins clips without `collate_fn=collate`
default_collate_fn_map[VideoBatch] = lambda parts, *, collate_fn_map=None: collate(parts)


_FIELDS = ("frames", "masks", "target", "target_time", "features", "actions")


def join_clips(clips: Sequence[Mapping[str, np.ndarray]]) -> VideoBatch:
    """Joins clips, given as arrays by name, to a batch.

    Args:
        clips: "frames" (time channels height width), perhaps "masks", "target", "target_time", "features" and
            "actions" as in `VideoBatch`, and whatever `objects` has; the same names in each.
    """
    objects = {name: torch.from_numpy(np.stack([clip[name] for clip in clips])) for name in clips[0]}
    fields: dict[str, Any] = {name: objects.pop(name) for name in _FIELDS if name in objects}
    time = torch.arange(fields["frames"].shape[1]).repeat(len(clips), 1)
    return VideoBatch(time=time, objects=objects, **fields)


def padded(values: np.ndarray, size: int, axis: int = 0, fill: int = 0) -> np.ndarray:
    """Pads an array with `fill` to `size` entries along an axis."""
    out = np.full((*values.shape[:axis], size, *values.shape[axis + 1 :]), fill, values.dtype)
    out[(slice(None),) * axis + (slice(0, values.shape[axis]),)] = values
    return out


def check_counts(**counts: int | None) -> None:
    """Checks that the arguments of a data set that are given (not None) are 1 or more."""
    for name, value in counts.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} is {value}; expected 1 or more")


def check_choices(**choices: tuple[str, Any]) -> None:
    """Checks that arguments are among the values of the `Literal` that comes with each."""
    for name, (value, kinds) in choices.items():
        if value not in get_args(kinds):
            raise ValueError(f"{name} is {value!r}; expected one of {', '.join(get_args(kinds))}")


class ClipDataset(Dataset[VideoBatch], DescribedClips, ABC):
    """Clips by index, several at a time: a subclass writes `clips`, and a `DataLoader` asks for a whole batch at once.

    Args:
        size: number of clips.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    @abstractmethod
    def clips(self, indices: Sequence[int]) -> VideoBatch:
        """The clips of these indices; clip i depends on nothing but i."""

    def one_per_video(self) -> ClipDataset:
        """The data set with one clip of each video; the data set itself by default."""
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
    """Adapter of a data set that gives clips one at a time."""

    def __init__(self, dataset: Dataset[VideoBatch]) -> None:
        super().__init__(len(dataset))  # type: ignore[arg-type]  # torch's Dataset does not declare __len__
        self._dataset = dataset

    def clips(self, indices: Sequence[int]) -> VideoBatch:
        return collate([self._dataset[index] for index in indices])


@dataclass(frozen=True)
class LoaderOptions:
    """Arguments of the loaders that all data sets share: batches, workers, seed and sizes of the splits.

    Args:
        batch_size: clips per training batch of each process.
        val_batch_size: clips per batch of each process in validation, test and prediction.
        num_workers: processes that make samples; 0 makes them in the training process.
        seed: with the split and the index it determines a sample.
        train_size: clips in the training split; null for as many as the data set has by default.
        val_size: clips in the validation split, likewise; where they are read from files, at most.
        test_size: clips in the test split, likewise.
    """

    batch_size: int = 16
    val_batch_size: int = 64
    num_workers: int = 0
    seed: int = 0
    train_size: int | None = None
    val_size: int | None = None
    test_size: int | None = None


class SlotDataModule(lightning.LightningDataModule, ABC):
    """Base class of data sets: a subclass has a `spec`, the sizes of its frames, and a `dataset` of clips per split.

    Samples are read in order, in training too: those of a simulator are independent, so shuffling would add nothing,
    and training resumes with the next batch (the loader's position is in the checkpoint). With `limit_train_batches`
    an epoch begins where the one before has ended, and starts again from the first clip at the end. Frames are bytes
    until they are on the device, and floats in [0, 1] there.

    With several processes, process r of w reads the r-th of the w parts of each batch, and no clip is read twice: w
    processes with batches of n clips train on what one process trains on with batches of w * n. A last, short batch is
    shared evenly; in training the fewer than w clips that remain of it are left out.

    Arguments that many data sets have: `num_frames`, frames of a training clip; `eval_frames`, frames of a validation
    or test clip, null for whole stored videos; `stride`, reads every so many frames; `resolution`, pixels per side.

    Args:
        loader: batches, workers, sizes and seed, or a mapping of some; a subclass may have other defaults.
    """

    default_sizes: ClassVar[Mapping[Split, int]] = {"train": 1_000_000, "val": 1000, "test": 1000}
    """Clips of each split for which the `loader` has no size."""

    def __init__(self, loader: LoaderOptions | Mapping[str, Any] = LoaderOptions()) -> None:
        super().__init__()
        if isinstance(loader, Mapping):
            loader = LoaderOptions(**loader)
        for name, value in asdict(loader).items():
            least = 0 if name in ("num_workers", "seed") else 1
            if value is not None and value < least:
                raise ValueError(f"{name} is {value}; expected {least} or more")
        self.loader = loader
        given: dict[Split, int | None] = {s: getattr(loader, f"{s}_size") for s in _SPLITS}
        self.sizes = {split: size or self.default_sizes[split] for split, size in given.items()}

    @property
    def feature_weights(self) -> Mapping[str, str] | None:
        """Name and hash, "weights" and "weights_sha256", of the network whose features the data brings, if known."""
        return None

    @property
    @abstractmethod
    def spec(self) -> DataSpec:
        """Sizes of a step of the input and of the target, known before any clip is made."""

    @property
    def version(self) -> str:
        """The edition of the data, for the records of evaluations."""
        return "unknown"

    @property
    def pseudo_masks(self) -> bool:
        """Whether `masks` are predictions of a model, so that scores against them do not compare with the truth."""
        return False

    @abstractmethod
    def dataset(self, split: Split) -> Dataset[VideoBatch]:
        """The clips of a split, by index; each is a `VideoBatch` of one clip."""

    def __getitem__(self, index: int) -> VideoBatch:
        """A clip of the training split, as a batch of one; `dataset(split)[index]` is one of another."""
        return self.dataset("train")[index]

    def reading(self, splits: Sequence[Split] = _SPLITS) -> str | None:
        """A summary in two lines of the user's files: those that are read, and those left out; None by default."""
        return None

    def max_eval_frames(self, split: Split) -> int | None:
        """The most frames that an evaluation clip of a split may have: None for no limit, 0 for a fixed length."""
        return 0

    def overrides_for_length(self, split: Split, frames: int, clips: int) -> dict[str, Any]:
        """Arguments that override this data set's so that `clips` evaluation clips of a split have `frames` frames."""
        return {"eval_frames": frames}

    def oracle_predictions(self, batch: VideoBatch, context: int, horizon: int) -> dict[str, Tensor]:
        """Predictions by oracles, which know the simulator: from the log of the batch up to the last context frame.

        Args:
            batch: clips with their log.
            context: frames that a predictor sees.
            horizon: frames to predict.

        Returns:
            frames "batch horizon channels height width" in [0, 1], by the predictor's name; none by default.
        """
        return {}

    def baseline_predictions(self, batch: VideoBatch, context: int, horizon: int) -> dict[str, Tensor]:
        """Predictions by simple means that suit this data set, in the form of `oracle_predictions`; none by default."""
        return {}

    def held_out_baselines(self, batch: VideoBatch) -> dict[str, Tensor]:
        """Predictions of `batch.held_out.frames`, in [0, 1], by means that learn nothing, by name; none by default."""
        return {}

    def pixel_groups(self, batch: VideoBatch, context: int, horizon: int) -> dict[str, Tensor]:
        """Which pixels "batch horizon height width" roll-outs are also scored on, by name; none by default."""
        return {}

    def layers(self, batch: VideoBatch) -> Tensor | None:
        """Every object alone on black "batch time objects channels height width", in [0, 1], in the order of `masks`.

        None, by default, if the set does not know them.
        """
        return None

    def train_dataloader(self) -> DataLoader[VideoBatch]:
        """Training batches in order of index; after an epoch of fewer batches, the next one reads on."""
        loader = self._loader("train", self.loader.batch_size)
        loader.epoch_batches = self._batches_of_an_epoch
        return loader

    def val_dataloader(self) -> DataLoader[VideoBatch]:
        """Validation batches, in order of index."""
        return self._loader("val", self.loader.val_batch_size)

    def test_dataloader(self) -> DataLoader[VideoBatch]:
        """Test batches, in order of index."""
        return self._loader("test", self.loader.val_batch_size)

    def predict_dataloader(self) -> DataLoader[VideoBatch]:
        """The test split for prediction: whole videos, piece by piece, where the data set and the task support it.

        Otherwise the test batches, of each video one clip.
        """
        task = None if self.trainer is None else self.trainer.lightning_module
        frames = task.piece_frames if isinstance(task, Reporter) else None
        rank, processes = self._place_among_processes()
        pieces = None if frames is None else self.video_pieces("test", frames, rank, processes)
        if pieces is None:
            return self._loader("test", self.loader.val_batch_size, one_per_video=True)
        if not len(pieces):
            raise DataFilesError("there are fewer videos than processes: lower trainer.devices")
        return self._loader_of(pieces, InOrder(pieces, 1, equal_shares=False), 1)

    def video_pieces(self, split: Split, frames: int, rank: int = 0, processes: int = 1) -> ClipDataset | None:
        """The whole videos of a split, in pieces of `frames` frames at most (`slotbench.data.clips.VideoPieces`).

        None by default: a clip is all that there is of a video.
        """
        return None

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Converts frames of bytes to floats on the device."""
        return to_unit_range(batch) if isinstance(batch, VideoBatch) else batch

    def _place_among_processes(self) -> tuple[int, int]:
        """The number of this process, and how many there are."""
        return (0, 1) if self.trainer is None else (self.trainer.global_rank, self.trainer.world_size)

    def _batches_of_an_epoch(self, loader: ResumableLoader) -> int | None:
        """How many batches of this loader the trainer makes an epoch of; None where no training reads it.

        None too with `overfit_batches`, which asks for the same ones again.
        """
        trainer: Any = self.trainer
        if trainer is None or trainer.overfit_batches or trainer.train_dataloader is not loader:
            return None
        batches = trainer.num_training_batches
        return int(batches) if 0 < batches < float("inf") else None

    def _loader(self, split: Split, batch_size: int, one_per_video: bool = False) -> ResumableLoader:
        dataset = self.dataset(split)
        if not isinstance(dataset, ClipDataset):
            dataset = _AsClips(dataset)
        if one_per_video:
            dataset = dataset.one_per_video()
        rank, processes = self._place_among_processes()
        if len(dataset) < processes:
            raise DataFilesError(
                f"the {split} split has {len(dataset)} clip(s) and there are {processes} processes; expected at least "
                f"one clip for each: raise data.loader.{split}_size, or lower trainer.devices"
            )
        sampler = InOrder(dataset, batch_size, rank, processes, equal_shares=split == "train")
        return self._loader_of(dataset, sampler, batch_size)

    def _loader_of(self, dataset: ClipDataset, sampler: InOrder, batch_size: int) -> ResumableLoader:
        # a worker runs torch on one thread without being asked to
        return ResumableLoader(
            dataset,
            sampler=sampler,
            batch_size=batch_size,
            num_workers=self.loader.num_workers,
            collate_fn=collate,
            persistent_workers=self.loader.num_workers > 0,
            pin_memory=torch.cuda.is_available(),
            worker_init_fn=leave_signals_to_the_main_process,
            # for the workers' seeds: drawn from torch's own generator, they would depend on which workers run already
            generator=torch.Generator().manual_seed(self.loader.seed),
        )


class SimulatedData(SlotDataModule):
    """Base class of data sets that a simulator makes on the fly: a subclass writes `spec` and `simulate`."""

    @abstractmethod
    def simulate(self, split: Split, generators: list[np.random.Generator]) -> VideoBatch:
        """The clips of a split that these random generators determine, one clip for each."""

    def max_eval_frames(self, split: Split) -> int | None:
        """No limit: clips are simulated."""
        return None

    def dataset(self, split: Split) -> Dataset[VideoBatch]:
        """The clips of a split; clip i is a pure function of seed, split and i."""
        return _SimulatedClips(self, split)


class _SimulatedClips(ClipDataset):
    def __init__(self, data: SimulatedData, split: Split) -> None:
        super().__init__(data.sizes[split])
        self.data, self.split = data, split

    def clips(self, indices: Sequence[int]) -> VideoBatch:
        seed = self.data.loader.seed
        return self.data.simulate(self.split, [generator_for(seed, self.split, index) for index in indices])

    def __getstate__(self) -> dict[str, Any]:
        # without the trainer, which no worker needs
        data = copy.copy(self.data)
        data.trainer = None
        return self.__dict__ | {"data": data}


def leave_signals_to_the_main_process(worker: int) -> None:
    """Ctrl-C and a scheduler's SIGTERM reach every process of the group; only the main one knows how to end a run."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
