"""CLEVRER: objects that move, enter and collide. A reader of the released videos, or of a cache."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, ClassVar, Literal

from slotbench.data.base import LoaderOptions, Split, check_counts
from slotbench.data.clevrer.videos import TIMED, ClevrerVideos, folder_of
from slotbench.data.clip_cache import ClipCache
from slotbench.data.clips import ClipSource
from slotbench.data.formats.images import Fit, Fitting
from slotbench.data.preparing import PreparableVideos

__all__ = ["CLEVRER"]


class CLEVRER(PreparableVideos):
    """The videos of CLEVRER: 128 frames of 480 x 320 pixels, objects that move, enter and collide.

    The mp4 files are decoded once by PyAV (`slotbench[video]`); docs/datasets.md has the layout.

    `masks` are **pseudo masks**: what a detector found in each frame (`derender_proposals`), 0 for the background.
    Scores against them are no scores against the truth, and evaluations say so in their records and headlines. A
    detection belongs to the object of its colour, material and shape, of which there is one in a video; one that is
    like no annotated object is background. Without annotations the objects are numbered as the detector first names
    them.

    Annotations come from the simulator, and are true: there are some for training and validation. Then object i has the
    id i + 1, and `objects`, padded to 12 per video, has "positions" and "velocities" (batch time objects 3; in the
    simulator's units), "inside_view" (batch time objects; an object there may be hidden all the same), "collisions"
    (batch time objects objects; whether two meet in this frame, or, with a stride, since the step before),
    "num_objects" (batch), "present", "shape_label" (0 cube, 1 cylinder, 2 sphere), "material_label" (0 metal, 1 rubber)
    and "color_label" (batch objects; 0 to 7: blue, brown, cyan, gray, green, purple, red, yellow; -1 for none). In
    any case it has "number" (batch; of the video in the release), "video" and "first_frame".

    Source: Yi et al., "CLEVRER: Collision Events for Video Representation and Reasoning", ICLR 2020.

    Args:
        path: folder of the released files, or a cache.
        fit: how a frame becomes a square: "stretch" it, "crop" the square in its middle, or "letterbox" it, black bars
            above and below.
        masks: reads the pseudo masks.
        annotations: reads the annotations of splits that have some.
        test_split: "test", or "validation", which has annotations.
    """

    timed: ClassVar[Collection[str]] = TIMED
    piece: ClassVar[int] = 4
    prepare_arguments: ClassVar[tuple[str, ...]] = ("path", "resolution", "fit", "stride", "masks", "annotations")

    def __init__(
        self,
        path: str,
        num_frames: int = 16,
        eval_frames: int | None = None,
        resolution: int = 64,
        fit: Fitting = "stretch",
        stride: int = 1,
        masks: bool = True,
        annotations: bool = True,
        test_split: Literal["test", "validation"] = "test",
        loader: LoaderOptions = LoaderOptions(val_batch_size=4),
    ) -> None:
        super().__init__(loader, num_frames, eval_frames, stride)
        check_counts(resolution=resolution)
        self.path = Path(path).expanduser()
        self.resolution = resolution
        self.fit: Fitting = fit
        self.masks = masks
        self.annotations = annotations
        self.test_split = test_split

    @property
    def pseudo_masks(self) -> bool:
        """Always: the masks are those of a detector."""
        return True

    def stored_videos(self, split: Split) -> tuple[ClipSource, None]:
        """The videos of a split, all of them."""
        return self.source(split), None

    def stored_name(self, split: Split) -> str:
        """The name of a split on the disk."""
        return self.test_split if split == "test" else super().stored_name(split)

    def has(self, stored: str) -> bool:
        """Whether there are movies of this split."""
        return folder_of(self.path, "video", stored) is not None

    def released(self, stored: str, keep: bool = True) -> ClevrerVideos:
        """The videos of a split in mp4 files."""
        fit = Fit(self.resolution, self.resolution, mode=self.fit)
        return ClevrerVideos(self.path, stored, fit, self.stride, self.masks, self.annotations, keep)

    def describe(self, stored: str, source: ClevrerVideos) -> dict[str, Any]:
        """The set, the split, and the arguments that frames, masks and annotations depend on."""
        look = {"resolution": self.resolution, "fit": self.fit, "stride": self.stride, "masks": self.masks}
        return {"set": "clevrer", "split": stored, **look, "annotations": source.annotations is not None}

    def opened(self, stored: str) -> ClipCache:
        """The cache of a split, of frames in this form."""
        cache = _Prepared(self.path / stored, self.stride)
        needs = {"masks": self.masks, "annotations": self.annotations and stored != "test"}
        cache.check(needs, set="clevrer", split=stored, resolution=self.resolution, fit=self.fit, stride=self.stride)
        if not self.masks:
            cache.fields.pop("masks", None)
        return cache


class _Prepared(ClipCache):
    """A cache of every `stride`-th frame, whose videos have the names of the release."""

    def video_name(self, video: int) -> str:
        return f"video_{int(self.field('objects.number')[video]):05d}"
