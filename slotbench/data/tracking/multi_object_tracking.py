"""The public sets for multi-object tracking: Video Multi-dSprites, Sprites-MOT, Video Objects Room.

The layout of their files, from the code of github.com/ecker-lab/object-centric-representation-benchmark (commits
b758c32 and 0f18aff; the files themselves lie elsewhere and have not been opened here):

- `ocrb/data/extract_data.py` turns NAME.hdf5 into `NAME/NAME_KEY.npy`; `dataloader.py` reads the keys train, val and
  test, takes the first 10 frames and divides by 255; `create_batches.py` names the axes: videos, frames, channels, then
  the two sides of the frame. With `--testsets` the keys of VMDS' further test sets are written beside them.
- `ocrb/eval/eval_mot.py` reads the annotations: a list of videos, each a list of frames, each an object with `masks`
  (run lengths as text, see `run_lengths`), `ids` (whole numbers, one per mask, the same for an object over the frames
  of its video), and, for the truth, `num_bg`: so many of the last masks are background. Only NAME_test.json is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import UInt8

from slotbench.arrays import map_npy
from slotbench.data.base import LoaderOptions, Split
from slotbench.data.clips import ClipReader, StoredVideos, check_alike, first_file
from slotbench.data.tracking.run_lengths import decode_runs
from slotbench.errors import DataFilesError, FileError
from slotbench.files import read_json
from slotbench.interfaces import DataSpec

__all__ = ["MultiObjectTracking", "TrackedVideos"]

_MOST_BYTES = 1 << 27  # of an annotation file
_MOST_OBJECTS = 255
_ARRAYS = (
    "expected an npy file of bytes, videos x frames x 3 x height x width, as the benchmark's extract_data.py writes it"
)
_ANNOTATIONS = (
    "expected a list of videos, each a list of frames, each an object with `masks` (run lengths as text), `ids` and "
    "perhaps `num_bg`, as in NAME_test.json of the benchmark"
)


class MultiObjectTracking(StoredVideos):
    """Videos of the object-centric representation benchmark, extracted to npy files, with their masks where known.

    `path` is the folder of NAME_train.npy, NAME_val.npy and NAME_test.npy, of which those are needed that are used: the
    benchmark's `extract_data.py` writes them out of its HDF5 files. `masks` are there for splits with an annotation
    file; the benchmark has one of the test split. In them the objects of a video are numbered from 1 by their ids, and
    what is background is 0; where masks overlap, the later one in the file has the pixel. `objects` has "video" and
    "first_frame", and with masks "num_objects" (batch; objects of the whole video).

    The benchmark scores MOTA on frames 2 to 9; here that is `slotbench score`, see docs/score.md.

    Source: Weis et al., "Benchmarking Unsupervised Object Representations for Video Sequences", JMLR 22:183, 2021.

    Args:
        path: the folder.
        name: of the set, with which its files begin: "vmds", "spmot" or "vor".
        annotations: folder of NAME_SPLIT.json; absent, they are looked for beside the videos.
        test_set: what the test split is called in the names of its files; VMDS has further ones.
        num_frames: frames of a training clip.
        eval_frames: frames of a validation or test clip; null for whole videos.
        loader: batches, workers, sizes, and the seed of the videos' order and of the cuts. Training goes through the
            videos again and again until there are `train_size` clips; `val_size` and `test_size` are upper bounds.

    Raises:
        ValueError: for arguments that cannot be; when sizes or clips are asked for, as a `DataFilesError`, where the
            files are missing or not what they should be.
    """

    default_sizes: ClassVar[Mapping[Split, int]] = {"train": 100_000_000, "val": 100_000, "test": 100_000}

    def __init__(
        self,
        path: str,
        name: str = "vmds",
        annotations: str | None = None,
        test_set: str = "test",
        num_frames: int = 10,
        eval_frames: int | None = 10,
        loader: LoaderOptions = LoaderOptions(),
    ) -> None:
        super().__init__(loader, num_frames, eval_frames)
        for key, value in {"name": name, "test_set": test_set}.items():
            if not value or Path(value).name != value:
                raise ValueError(f"{key} is {value!r}; expected a part of a file's name, such as 'vmds' or 'test'")
        self.path = Path(path).expanduser()
        self.name = name
        self.annotations = None if annotations is None else Path(annotations).expanduser()
        self.test_set = test_set

    @cached_property
    def spec(self) -> DataSpec:  # type: ignore[override]
        """Coloured frames in and out, in the size that the files have.

        Raises:
            DataFilesError: there is no file, or one that cannot be read.
        """
        return TrackedVideos(first_file(self.path, f"videos of {self.name}", self.file, _ARRAYS)).spec

    def file(self, split: Split) -> Path:
        """Where the videos of a split are."""
        return self.path / f"{self.name}_{self._called(split)}.npy"

    def annotation_file(self, split: Split) -> Path | None:
        """Where the masks of a split are, if it has any.

        Raises:
            DataFilesError: a folder of annotations is given, and those of the test split are not there.
        """
        path = (self.annotations or self.path) / f"{self.name}_{self._called(split)}.json"
        if path.exists():
            return path
        if self.annotations is not None and split == "test":
            raise DataFilesError(f"there is no file {path}; {_ANNOTATIONS}")
        return None

    def stored_videos(self, split: Split) -> tuple[TrackedVideos, None]:
        """The videos of a split; all of them take part."""
        source = TrackedVideos(self.file(split), self.annotation_file(split))
        check_alike(source.path, source.spec, self.spec)
        return source, None

    def _called(self, split: Split) -> str:
        return self.test_set if split == "test" else split


class TrackedVideos(ClipReader):
    """The videos of one npy file, with the masks of one annotation file.

    Args:
        path: the npy file.
        annotations: the JSON file, if there is one.

    Attributes:
        lengths: frames of each video, those that are annotated.
        spec: sizes of the frames.

    Raises:
        DataFilesError: a file is not there, or not what it should be.
    """

    def __init__(self, path: Path, annotations: Path | None = None) -> None:
        self.path, self.annotations = path, annotations
        values = self._values()
        self.spec = DataSpec.of_frames(3, *values.shape[3:])
        self.lengths = np.full(len(values), values.shape[1])
        self._videos: list[list[Any]] | None = None
        if annotations is not None:
            self._videos = _read_annotations(annotations, len(values))
            self.lengths = np.minimum(self.lengths, [len(video) for video in self._videos])
            if not self.lengths.min():
                raise DataFilesError(f"{annotations} has a video without frames; {_ANNOTATIONS}")

    def clip(self, video: int, frames: range) -> dict[str, np.ndarray]:
        """A clip, with masks where there are annotations."""
        # mapped anew, so that nothing that is open goes into a worker
        found = {"frames": self._values()[video, frames.start : frames.stop]}
        if self._videos is not None:
            numbers = self._numbers(video)
            found |= {"num_objects": np.array(len(numbers)), "masks": self._masks(video, frames, numbers)}
        return found

    def _values(self) -> np.ndarray:
        try:
            values = map_npy(self.path)
        except FileError as error:
            raise DataFilesError(f"{error}; {_ARRAYS}") from error
        if values.ndim != 5 or values.dtype != np.uint8 or not values.size or values.shape[2] != 3:
            raise DataFilesError(f"{self.path} holds {values.dtype} values of shape {values.shape}; {_ARRAYS}")
        return values

    def _numbers(self, video: int) -> dict[int, int]:
        """The ids of the objects of a video, and the number from 1 that each gets: those of its background get none."""
        assert self._videos is not None
        ids = sorted(
            {i for place, frame in enumerate(self._videos[video]) for _, i in self._objects(video, place, frame)}
        )
        if len(ids) > _MOST_OBJECTS:
            raise DataFilesError(
                f"{self.annotations}, video {video} has {len(ids)} objects; expected at most {_MOST_OBJECTS}"
            )
        return {i: number for number, i in enumerate(ids, start=1)}

    def _masks(self, video: int, frames: range, numbers: Mapping[int, int]) -> UInt8[np.ndarray, "time height width"]:
        assert self._videos is not None
        size = self.spec.input.height, self.spec.input.width
        masks = np.zeros((len(frames), *size), dtype=np.uint8)
        for mask, frame in zip(masks, frames, strict=True):
            for text, i in self._objects(video, frame, self._videos[video][frame]):
                try:
                    mask[decode_runs(text, *size)] = numbers[i]
                except DataFilesError as error:
                    raise DataFilesError(f"{self.annotations}, video {video}, frame {frame}: {error}") from error
        return masks

    def _objects(self, video: int, place: int, frame: Any) -> list[tuple[str, int]]:
        """(mask, id) of each object of a frame, without the background."""
        masks, ids, background = (
            (frame.get("masks"), frame.get("ids"), frame.get("num_bg", 0)) if isinstance(frame, dict) else (None,) * 3
        )
        good = isinstance(masks, list) and isinstance(ids, list) and len(masks) == len(ids)
        good = good and all(isinstance(mask, str) for mask in masks or ())
        good = good and all(isinstance(i, int) and not isinstance(i, bool) for i in ids or ())
        if not good or not isinstance(background, int) or not 0 <= background <= len(masks or ()):
            raise DataFilesError(f"{self.annotations}, video {video}, frame {place} is not as expected; {_ANNOTATIONS}")
        assert masks is not None
        assert ids is not None
        return list(zip(masks, ids, strict=True))[: len(masks) - background]


def _read_annotations(path: Path, count: int) -> list[list[Any]]:
    """The frames of every video."""
    try:
        found = read_json(path, _MOST_BYTES)
    except FileError as error:
        raise DataFilesError(f"{error}; {_ANNOTATIONS}") from error
    if not isinstance(found, list) or not all(isinstance(video, list) for video in found):
        raise DataFilesError(f"{path} holds no list of lists; {_ANNOTATIONS}")
    if len(found) != count:
        raise DataFilesError(
            f"{path} has {len(found)} videos, and the file of the videos {count}: they do not belong together"
        )
    return found
