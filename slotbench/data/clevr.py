"""CLEVR with masks, from the gzipped TFRecord file of the multi-object data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
import torch
from torch.utils.data import Dataset

from slotbench.data.base import LoaderOptions, SlotDataModule, Split, check_counts, join_clips
from slotbench.data.clip_cache import ClipCache, is_cache, write_cache
from slotbench.data.clips import CutClips
from slotbench.data.formats.images import resize_bilinear, resize_nearest
from slotbench.data.formats.tfrecord import Example, stream_gzip
from slotbench.data.preparing import Preparable, Report
from slotbench.errors import DataFilesError
from slotbench.interfaces import DataSpec, VideoBatch

__all__ = ["CLEVR"]

_ROWS, _COLUMNS, _ENTITIES = 240, 320, 11
_LABELS = ("size", "material", "shape", "color")
_TIMED = ("positions", "rotation", "pixel_coords", "visibility")
_PIECE = 64  # scenes that are written at a time
_EXPECTED = "one of CLEVR with masks"
_FLIP = 4  # tells the generators of flips from those of samples and orders
_GET = (
    "`gsutil cp gs://multi-object-datasets/clevr_with_masks/clevr_with_masks_train.tfrecords DIR` copies it, and "
    "`slotbench prepare CLEVR --path FILE --out CACHE` makes the cache that path is to name"
)


class CLEVR(SlotDataModule, Preparable):
    """Single images of 3 to 10 simple objects on a grey floor, with masks: clips of one frame.

    The file is one compressed stream of a hundred thousand scenes, so it is prepared once: `slotbench prepare CLEVR`
    crops and resizes every scene, images bilinearly without anti-aliasing, masks to the nearest pixel, and `path`
    then names the cache. The first 70 per cent of the scenes, in the file's order, are for training, 15 for validation
    and 15 for test. Training goes through them again and again, each time in another order.

    In `masks` entity i of the file is i, the background being 0. `objects`, for 10 objects, has "num_objects" (batch),
    the objects to be seen before cropping, and "present" (batch objects); "positions" (3), "rotation", "pixel_coords"
    (3, in the uncropped image) and "visibility" (pixels there), all (batch time objects ...); "size_label",
    "material_label", "shape_label" and "color_label" (batch objects), the numbers in the file, or -1 where there is no
    object; "video" (batch), the scene's number; and in training "flipped" (batch) if `flip` is set.

    Source: the multi-object data sets; crop of Locatello et al. (Slot Attention, 2020). Krimmel et al. crop the exact
    centre, (24, 216, 64, 256), and flip. CLEVR6 is max_objects=6.

    Args:
        path: the cache; for `slotbench prepare`, the TFRecord file.
        crop: first row, last row, first column and last column (the last ones exclusive) of 240 x 320 pixels.
        max_objects: passes over scenes of more objects; null takes all.
        flip: mirrors half of the training images. Positions in "objects" stay as they are.
        loader: batches, workers, sizes, and the seed of the scenes' order and of the flips. Training goes through the
            scenes again and again until there are `train_size`; `val_size` and `test_size` take a random subset.
    """

    default_sizes: ClassVar[Mapping[Split, int]] = {"train": 100_000_000, "val": 100_000, "test": 100_000}
    prepare_arguments: ClassVar[tuple[str, ...]] = ("path", "resolution", "crop")

    def __init__(
        self,
        path: str,
        resolution: int = 128,
        crop: tuple[int, int, int, int] = (29, 221, 64, 256),
        max_objects: int | None = None,
        flip: bool = False,
        loader: LoaderOptions = LoaderOptions(batch_size=64),
    ) -> None:
        super().__init__(loader)
        check_counts(resolution=resolution, max_objects=max_objects)
        top, bottom, left, right = crop
        if not (0 <= top < bottom <= _ROWS and 0 <= left < right <= _COLUMNS):
            raise ValueError(f"crop is {tuple(crop)}; expected rows and columns of {_ROWS} x {_COLUMNS} pixels")
        self.path = Path(path).expanduser()
        self.resolution = resolution
        self.crop = (top, bottom, left, right)
        self.max_objects = max_objects
        self.flip = flip

    @property
    def spec(self) -> DataSpec:
        """Coloured images, which are their own target."""
        return DataSpec.of_frames(3, self.resolution)

    def dataset(self, split: Split) -> Dataset[VideoBatch]:
        """The images of a split."""
        cache = self._cache()
        count = len(cache.lengths)
        edges = [0, count * 70 // 100, count * 85 // 100, count]
        place = get_args(Split).index(split)
        chosen = np.arange(edges[place], edges[place + 1])
        if self.max_objects is not None:
            chosen = chosen[cache.field("objects.num_objects")[chosen] <= self.max_objects]
        kind = _Flipped if self.flip and split == "train" else CutClips
        return kind(cache, split, self.sizes[split], 1, self.loader.seed, chosen)

    def prepare(self, out: Path, report: Report, jobs: int | None = None) -> None:
        """Crops and resizes all scenes into a cache."""
        if not self.path.is_file():
            what = "is a folder" if self.path.is_dir() else "does not exist"
            raise DataFilesError(f"{self.path} {what}; expected the TFRecord file of CLEVR with masks: {_GET}")
        size = self.path.stat().st_size
        pieces = partial(self._pieces, lambda done: report("scenes", done, size))
        write_cache(out, pieces, self._description() | {"file": self.path.name}, _TIMED)
        report("scenes", size, size)

    def _pieces(self, report: Callable[[int], None], first: int) -> Iterator[VideoBatch]:
        records, where = stream_gzip(self.path, first, report), f"{self.path}: a record"
        while piece := list(islice(records, _PIECE)):
            scenes = (Example(memoryview(record), where, _EXPECTED) for record in piece)
            yield join_clips([_scene(scene, self.crop, self.resolution) for scene in scenes])

    def _description(self) -> dict[str, Any]:
        return {"set": "clevr_with_masks", "resolution": self.resolution, "crop": list(self.crop)}

    def _cache(self) -> ClipCache:
        if not is_cache(self.path):
            what = "is no cache" if self.path.exists() else "does not exist"
            raise DataFilesError(f"{self.path} {what}; expected a cache of CLEVR with masks: {_GET}")
        cache = ClipCache(self.path)
        cache.check(**self._description())
        return cache


class _Flipped(CutClips):
    """The images, half of them mirrored, as a pure function of seed and index."""

    def clips(self, indices: Sequence[int]) -> VideoBatch:
        batch = super().clips(indices)
        seeds = (np.random.SeedSequence([self.seed, _FLIP, index]) for index in indices)
        flipped = torch.tensor([bool(np.random.default_rng(seed).integers(2)) for seed in seeds])
        assert batch.masks is not None
        batch.frames = torch.where(flipped[:, None, None, None, None], batch.frames.flip(-1), batch.frames)
        batch.masks = torch.where(flipped[:, None, None, None], batch.masks.flip(-1), batch.masks)
        batch.objects["flipped"] = flipped
        return batch


def _scene(scene: Example, crop: tuple[int, int, int, int], resolution: int) -> dict[str, np.ndarray]:
    top, bottom, left, right = crop
    image = scene.bytes_of("image", (_ROWS, _COLUMNS, 3))[top:bottom, left:right]
    one_hot = scene.bytes_of("mask", (_ENTITIES, _ROWS, _COLUMNS))[:, top:bottom, left:right]
    frame = torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))[None]
    visibility = scene.floats("visibility", (_ENTITIES,))[1:]
    present = visibility > 0
    codes = {name: scene.bytes_of(name, (_ENTITIES,))[1:].astype(np.int64) for name in _LABELS}
    return {
        "frames": resize_bilinear(frame, resolution, resolution, antialias=False).numpy(),
        # nearest pixels first: there are fewer of them to look for the entity of
        "masks": resize_nearest(one_hot, resolution, resolution).argmax(0).astype(np.uint8)[None],
        "num_objects": np.array(present.sum()),
        "present": present,
        "positions": np.stack([scene.floats(axis, (_ENTITIES,))[1:] for axis in "xyz"], axis=-1)[None],
        "rotation": scene.floats("rotation", (_ENTITIES,))[None, 1:],
        "pixel_coords": scene.floats("pixel_coords", (_ENTITIES, 3))[None, 1:],
        "visibility": visibility[None],
        **{f"{name}_label": np.where(present, values, -1) for name, values in codes.items()},
    }
