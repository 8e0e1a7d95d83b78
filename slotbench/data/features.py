"""Features that a frozen network has computed of videos: a data set that reads them, and what writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, get_args

import h5py
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from slotbench.data.base import LoaderOptions, SlotDataModule, Split, check_counts
from slotbench.data.clip_cache import ClipCache, is_cache, write_cache
from slotbench.data.clips import ClipReader, ClipSource, StoredVideos
from slotbench.data.formats.images import refused_if_damaged, resize_nearest
from slotbench.data.preparing import Report, in_order, processes_for, whole
from slotbench.errors import DataFilesError, MissingSplitError
from slotbench.interfaces import DataSpec, VideoBatch, VideoSpec

__all__ = ["FeatureFile", "StoredFeatures", "write_features"]

_LAYOUT = (
    "expected what `slotbench prepare NAME --features WEIGHTS` writes of a data set, which says where it is had (an "
    "experiment's first lines have the command), or HDF5 files with `features` (videos, frames, tokens, width) in "
    "float16, `frames` (videos, frames, 3, height, width) in bytes, perhaps `masks` (videos, frames, height, width) "
    "and `num_objects` (videos), and the attributes grid (rows, columns) and has_class_token"
)
_WORTH_READING_ELSEWHERE = 16  # videos; most of the time is the network's


class FeatureFile(StoredVideos):
    """Features of videos with the frames and masks that they belong to.

    `path` is a folder that `slotbench prepare NAME --features WEIGHTS ...` has written from any data set of stored
    videos, or one of train.h5, val.h5 and test.h5, of which those are needed that are used (docs/datasets.md says what
    is in them).

    A batch has `features` (float16), `frames`, `masks`, "video", "first_frame", and perhaps "num_objects". With clips
    of one frame, the default, frames are independent images: training takes one at random from every video, pass after
    pass, and evaluation a random subset of all, the same for every seed.

    Source: Krimmel et al., TMLR 2024, Appendix F (MOVi-C; MOVi-C6 is max_objects=6, and 1,280 images are scored).

    Args:
        max_objects: passes over videos of more objects; null takes all.
    """

    default_sizes: ClassVar[Mapping[Split, int]] = {"train": 100_000_000, "val": 100_000, "test": 100_000}

    def __init__(
        self,
        path: str,
        num_frames: int = 1,
        eval_frames: int | None = 1,
        max_objects: int | None = None,
        loader: LoaderOptions = LoaderOptions(batch_size=64),
    ) -> None:
        super().__init__(loader, num_frames, eval_frames)
        check_counts(max_objects=max_objects)
        self.path = Path(path).expanduser()
        self.max_objects = max_objects

    @cached_property
    def spec(self) -> DataSpec:  # type: ignore[override]
        """Coloured frames in and out, and their features, in the sizes that the files have."""
        for split in get_args(Split):
            if is_cache(self.path / split) or (self.path / f"{split}.h5").is_file():
                return _spec(self._source(split))
        reason = "has no features" if self.path.is_dir() else "does not exist"
        raise DataFilesError(f"the folder {self.path} {reason}; {_LAYOUT}")

    @property
    def feature_weights(self) -> Mapping[str, str] | None:
        """Name and hash of the weights that made the features, if `slotbench prepare` wrote them."""
        folder = next((self.path / split for split in get_args(Split) if is_cache(self.path / split)), None)
        given = ClipCache(folder).description.get("features", {}).get("init_args", {}) if folder is not None else {}
        return {name: given[name] for name in ("weights", "weights_sha256")} if "weights_sha256" in given else None

    def stored_videos(self, split: Split) -> tuple[ClipSource, np.ndarray | None]:
        """The videos of a split, and those of them that take part if not all do."""
        source = self._source(split)
        if (spec := _spec(source)) != self.spec:
            raise DataFilesError(f"{self.path / split} holds {spec}, and the files beside it {self.spec}")
        if self.max_objects is None:
            return source, None
        counts = source.object_counts() if isinstance(source, StoredFeatures) else source.field("objects.num_objects")
        return source, np.flatnonzero(counts <= self.max_objects)

    def _source(self, split: Split) -> ClipCache | StoredFeatures:
        folder = self.path / split
        return ClipCache(folder) if is_cache(folder) else StoredFeatures(self.path / f"{split}.h5")


def _spec(source: ClipCache | StoredFeatures) -> DataSpec:
    if isinstance(source, StoredFeatures):
        return source.spec
    if "features" not in source.fields:
        raise DataFilesError(f"the cache {source.folder} has no features; {_LAYOUT}")
    frame, features = (VideoSpec(*source.fields[name][1:]) for name in ("frames", "features"))
    return DataSpec(input=frame, target=frame, features=features)


class StoredFeatures(ClipReader):
    """The videos of one HDF5 file.

    Attributes:
        lengths: frames of each video, all the same.
        spec: sizes of the frames and of their features.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise DataFilesError(f"there is no file {path}; {_LAYOUT}")
        self.path = path
        with self._refused(), h5py.File(path, "r") as file:
            rows, cols = (int(side) for side in file.attrs["grid"])
            self.grid, self.has_class_token = (rows, cols), bool(file.attrs["has_class_token"])
            videos, length, _, width = file["features"].shape
            height, wide = file["frames"].shape[3:]
            tokens = rows * cols + self.has_class_token
            expected = {"features": (videos, length, tokens, width), "frames": (videos, length, 3, height, wide)}
            expected |= {"masks": (videos, length, height, wide), "num_objects": (videos,)}
            found = {name: file[name].shape for name in expected if name in file}
            for name, shape in found.items():
                if shape != expected[name]:
                    raise ValueError(f"{name} has the shape {shape}, not {expected[name]}")
            self._counts = file["num_objects"][...].astype(np.int64) if "num_objects" in file else None
        self.fields = [name for name in found if name != "num_objects"]
        self.lengths = np.full(videos, length)
        frame = VideoSpec(channels=3, height=height, width=wide)
        self.spec = DataSpec(input=frame, target=frame, features=VideoSpec(width, rows, cols))

    def _refused(self) -> AbstractContextManager[None]:
        return refused_if_damaged(f"{self.path} is no HDF5 file of features; {_LAYOUT}")

    def object_counts(self) -> np.ndarray:
        """How many objects each video has."""
        if self._counts is None:
            raise DataFilesError(f"{self.path} has no num_objects, so videos cannot be passed over for their objects")
        return self._counts

    def clip(self, video: int, frames: range) -> Mapping[str, np.ndarray]:
        """A clip, for which the file is opened."""
        return self.clips([video], [frames])[0]

    def clips(self, videos: Sequence[int], windows: Sequence[range]) -> list[Mapping[str, np.ndarray]]:
        """Several clips, for which it is opened once; not for all, as HDF5 must not go on reading after a fork."""
        with self._refused(), h5py.File(self.path, "r") as file:
            return [self._clip(file, video, frames) for video, frames in zip(videos, windows, strict=True)]

    def _clip(self, file: h5py.File, video: int, frames: range) -> dict[str, np.ndarray]:
        found = {name: file[name][video, frames.start : frames.stop] for name in self.fields}
        tokens = found["features"][:, int(self.has_class_token) :]
        # a view: what reads cells as tokens turns the axes back
        found["features"] = tokens.swapaxes(1, 2).reshape(len(frames), -1, *self.grid)
        if self._counts is not None:
            found["num_objects"] = self._counts[video]
        return found


def write_features(
    data: SlotDataModule,
    extract: Callable[[Tensor], Tensor],
    resolution: tuple[int, int] | None,
    out: Path,
    description: dict[str, Any],
    splits: Iterable[Split] = get_args(Split),
    report: Report | None = None,
    jobs: int | None = None,
) -> None:
    """Writes a cache of features for each split, or resumes where an earlier call was interrupted.

    A split that has the videos of an earlier one, as where a folder has no splits, becomes a link to its cache.

    Args:
        data: where the videos are from: a data set that cuts clips out of stored videos.
        extract: makes the features "time channels rows cols" of frames "time channels height width" in [0, 1].
        resolution: height and width of the frames (bicubic, no anti-aliasing) and masks (nearest) that are written;
            None for their own.
        out: the folder.
        description: content and origin of the features, in JSON's types; files of another one are not touched.
        splits: those to write; of these, the ones that the data set does not have are left out.
        report: called with the split, the number of its videos written, and their total.
        jobs: processes that read the videos; None for as many as the machine has.
    """
    if not isinstance(data, StoredVideos):
        raise DataFilesError(
            f"{type(data).__name__} makes its clips as they are asked for; features are computed once for a data set "
            "of stored videos, such as MOVi"
        )
    found, refusal = {}, None
    for split in splits:
        try:
            found[split] = data.stored_videos(split)
        except MissingSplitError as error:
            refusal = refusal or error
    if not found:
        raise refusal or DataFilesError("no split is named; expected some of train, val and test")
    written: dict[tuple[str, ...], Split] = {}
    for split, (source, chosen) in found.items():
        videos = np.arange(len(source.lengths)) if chosen is None else chosen
        same = written.setdefault(tuple(source.origin(video) for video in videos.tolist()), split)
        if same != split:
            if not (out / split).exists():
                (out / split).symlink_to(same, target_is_directory=True)
            continue
        lengths = source.lengths[videos]
        total = len(videos)
        about = description | {"split": split, "videos": total}
        if any(names := [source.video_name(video) for video in videos.tolist()]):
            about["names"] = names

        def told(done: int, split: str = split, total: int = total) -> None:
            if report is not None:
                report(split, done, total)

        differ = lengths if lengths.min() != lengths.max() else None
        featured = partial(_featured, source, videos, extract, resolution, jobs)
        write_cache(out / split, featured, about, (), told, differ)


def _featured(
    source: ClipSource,
    chosen: np.ndarray,
    extract: Callable[[Tensor], Tensor],
    resolution: tuple[int, int] | None,
    jobs: int | None,
    first: int,
) -> Iterator[VideoBatch]:
    """The videos from a number on, with their features."""
    videos = [[int(video)] for video in chosen[first:]]
    jobs = processes_for(jobs, len(videos) // _WORTH_READING_ELSEWHERE)
    for batch in in_order(partial(whole, source), videos, jobs):
        masks, counts = batch.masks, batch.objects.get("num_objects")
        size = resolution or (batch.frames.shape[-2], batch.frames.shape[-1])
        if masks is not None:
            # -1 is void; unsigned ids have none
            kind = np.uint8 if masks.dtype == torch.uint8 else np.int16
            masks = torch.from_numpy(resize_nearest(masks.numpy(), *size).astype(kind))
        yield VideoBatch(
            frames=_resized(batch.frames[0], size)[None],
            time=batch.time,
            masks=masks,
            features=extract(batch.frames[0].float() / 255)[None].half(),
            objects={} if counts is None else {"num_objects": counts},
        )


def _resized(frames: Tensor, size: tuple[int, int]) -> Tensor:
    if frames.shape[-2:] == size:
        return frames
    resized = F.interpolate(frames.float(), size=size, mode="bicubic", align_corners=False)
    return resized.round_().clamp_(0, 255).to(torch.uint8)
