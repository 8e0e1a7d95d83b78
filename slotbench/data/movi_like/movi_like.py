"""MOViLike, videos simulated in the manner of MOVi, with its fields and conventions; they are not MOVi's."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from slotbench.data.base import LoaderOptions, Split, check_counts
from slotbench.data.clip_cache import ClipCache
from slotbench.data.clips import StoredVideos
from slotbench.data.crops import check_crop
from slotbench.data.movi.record import TIMED
from slotbench.data.movi_like.scenes import Level, SceneLaw, mujoco_version
from slotbench.data.movi_like.videos import SimulatedVideos
from slotbench.data.prepared_videos import cache_videos
from slotbench.data.preparing import Preparable, Report, processes_for
from slotbench.errors import DataFilesError, FileError
from slotbench.files import cache_home, check_writable
from slotbench.locks import Lock

__all__ = ["MOViLike"]

_STORED: dict[Split, str] = {"train": "train", "val": "validation", "test": "test"}
_FORMAT = 1  # to be raised by every change that changes a byte of a video
_PIECE = 100  # videos that are made and written to a cache at a time
_LOWEST_CAMERA = SceneLaw().lowest_camera
_WIDEST = 0.8  # zoom at which the horizon would come into view


class MOViLike(StoredVideos, Preparable):
    """Videos of objects that fall, roll and collide, simulated here, with the fields of MOVi.

    Scores on them compare only with each other, never with scores on MOVi.

    3 to 10 cubes, cylinders and spheres in 8 colours, two sizes and two materials are thrown over a grey floor (level
    "a"); with solid textures on everything (level "tex"); with a camera that moves in a line (level "cam"); with both,
    one palette for floor and objects, and a low lamp at the side (level "hard"). mujoco moves them and our own
    ray-caster draws them, so neither a graphics card nor OpenGL is needed.

    The videos are made once and kept: the first run writes those of the splits that it uses to
    `$SLOTBENCH_CACHE/MOViLike` (or `$XDG_CACHE_HOME/slotbench/MOViLike`, or `~/.cache/slotbench/MOViLike`), runs that
    start meanwhile wait for it, and later ones with the same arguments read them. `slotbench prepare MOViLike` writes
    them to a folder that `path` may name.

    Fields, names, shapes, units and the cutting into clips are those of `MOVi`, and `objects` has all of the per-object
    entries of MOVi-A to E that make sense here: "category" is the shape again, "is_dynamic" is 1, "background_color"
    the floor's (first) colour. "friction" and "restitution" are the material's. "visibility" counts pixels of `masks`.
    Each video is a pure function of `scene_seed`, split and index, for one version of mujoco and numpy on one machine.

    Args:
        path: a cache that `slotbench prepare MOViLike` wrote with the same arguments; null to make it where needed.
        level: "a", "tex", "cam" or "hard".
        resolution: pixels per side.
        num_objects: fewest and most objects of a video; annotations are padded to the most.
        video_frames: frames of a video, 12 per second.
        num_frames: frames of a training clip.
        eval_frames: frames of a validation or test clip, cut one after the other; null for whole videos.
        object_sizes: the small and the large size: side of a cube, diameter and height of the others.
        spread: objects start above a square of twice this side, and are thrown to within 0.8 of it.
        zoom: times the focal length of MOVi's camera, which stands 7 to 9 units from the centre.
        lowest_camera: the least elevation of the camera above the floor, in degrees, from 30 to below 90.
        samples_per_side: rays per pixel are its square.
        depth: gives the distance from the camera as well.
        scene_seed: of the videos.
        train_videos: videos that training clips are cut out of.
        val_videos: videos of the validation split.
        test_videos: videos of the test split.
        crop: the least share of the image that a random crop of a training clip keeps, enlarged to the size of all,
            as SAVi++ has it (0.75); 1 for whole images.
        loader: batches, workers, sizes, and the seed of the videos' order and of the cuts. Training goes through the
            videos again and again until there are `train_size` clips; `val_size` and `test_size` are upper bounds.

    Raises:
        ValueError: for arguments that cannot be; when clips are asked for, as a `DataFilesError`, where mujoco or the
            files of `path` are missing or not what they should be.
    """

    prepare_arguments: ClassVar[tuple[str, ...]] = (
        "level", "resolution", "num_objects", "video_frames", "object_sizes", "spread", "zoom", "lowest_camera",
        "samples_per_side", "depth", "scene_seed", "train_videos", "val_videos", "test_videos",
    )  # fmt: skip

    def __init__(
        self,
        path: str | None = None,
        level: Level = "a",
        resolution: int = 64,
        num_objects: tuple[int, int] = (3, 10),
        video_frames: int = 24,
        num_frames: int = 6,
        eval_frames: int | None = None,
        object_sizes: tuple[float, float] = (0.7, 1.4),
        spread: float = 3.5,
        zoom: float = 1.0,
        lowest_camera: float = 30.0,
        samples_per_side: int = 2,
        depth: bool = False,
        scene_seed: int = 0,
        train_videos: int = 4000,
        val_videos: int = 100,
        test_videos: int = 200,
        crop: float = 1.0,
        loader: LoaderOptions = LoaderOptions(val_batch_size=16),
    ) -> None:
        super().__init__(loader, num_frames, eval_frames)
        check_counts(resolution=resolution, samples_per_side=samples_per_side, video_frames=video_frames)
        check_counts(train_videos=train_videos, val_videos=val_videos, test_videos=test_videos)
        for name, frames in {"num_frames": num_frames, "eval_frames": eval_frames}.items():
            if frames is not None and frames > video_frames:
                raise ValueError(f"{name} is {frames}; expected at most video_frames, which is {video_frames}")
        if scene_seed < 0:
            raise ValueError(f"scene_seed is {scene_seed}; expected 0 or more")
        if zoom < _WIDEST:
            raise ValueError(f"zoom is {zoom}; expected {_WIDEST} or more, for a camera that sees floor only")
        self.law = SceneLaw(level, num_objects, object_sizes, float(spread), float(lowest_camera))
        self.path = None if path is None else Path(path).expanduser()
        self.crop = check_crop(crop)
        self.video_frames = video_frames
        self.resolution = resolution
        self.zoom = float(zoom)
        self.samples_per_side = samples_per_side
        self.depth = depth
        self.scene_seed = scene_seed
        self.videos: dict[Split, int] = {"train": train_videos, "val": val_videos, "test": test_videos}

    @property
    def version(self) -> str:
        """Hash of the arguments that a video depends on, and of the format that they are simulated in."""
        return hashlib.sha256(json.dumps({"format": _FORMAT, **self._look()}).encode()).hexdigest()[:16]

    def max_eval_frames(self, split: Split) -> int | None:
        """No limit for simulated videos; `video_frames` for a cache that `path` names."""
        return self.video_frames if self.path is not None else None

    def overrides_for_length(self, split: Split, frames: int, clips: int) -> dict[str, Any]:
        """Videos of so many frames, and of them as many as are read."""
        videos = {} if self.path is not None else {"video_frames": frames, f"{split}_videos": clips}
        return {"eval_frames": frames, **videos}

    def stored_videos(self, split: Split) -> tuple[ClipCache, np.ndarray]:
        """The videos of a split, and those of them that take part."""
        source = self._kept(split) if self.path is None else self._given(self.path / _STORED[split], split)
        return source, np.arange(self.videos[split])

    def simulated(self, split: Split, threads: int = 1) -> SimulatedVideos:
        """The videos of a split, made when they are read; slow, and what a cache is written from."""
        return SimulatedVideos(
            self.law,
            split,
            self.videos[split],
            num_frames=self.video_frames,
            resolution=self.resolution,
            zoom=self.zoom,
            samples_per_side=self.samples_per_side,
            seed=self.scene_seed,
            depth=self.depth,
            threads=threads,
        )

    def prepare(self, out: Path, report: Report, jobs: int | None = None) -> None:
        """Writes the videos of all splits to a cache below `out`; in this process, on its threads, if `jobs` is None.

        Raises:
            DataFilesError: mujoco is missing, or `out` holds something else.
        """
        for split, stored in _STORED.items():
            self._write(split, out / stored, report, jobs)

    def _write(self, split: Split, folder: Path, report: Report, jobs: int | None = None) -> None:
        total, stored = self.videos[split], _STORED[split]
        jobs = None if jobs is None else processes_for(jobs, total)
        source = self.simulated(split, torch.get_num_threads() if jobs is None else 1)
        if jobs is not None and jobs > 1:
            source.read([0], [0], 1)  # compiles, which only one process should do
        size = _PIECE if jobs is None else max(1, _PIECE // jobs)
        cache_videos(folder, source, self._description(split), TIMED, partial(report, stored), jobs or 1, size)

    def _look(self) -> dict[str, Any]:
        """The arguments that a video depends on; `lowest_camera`, a later one, only if it is not the default."""
        later = {} if self.law.lowest_camera == _LOWEST_CAMERA else {"lowest_camera": self.law.lowest_camera}
        return later | {
            "level": self.law.level,
            "resolution": self.resolution,
            "num_objects": list(self.law.num_objects),
            "video_frames": self.video_frames,
            "object_sizes": list(self.law.object_sizes),
            "spread": self.law.spread,
            "zoom": self.zoom,
            "samples_per_side": self.samples_per_side,
            "scene_seed": self.scene_seed,
        }

    def _description(self, split: Split) -> dict[str, Any]:
        """All that decides the bytes of a split's cache."""
        made_with = {"format": _FORMAT, "mujoco": mujoco_version(), "numpy": np.__version__}
        held = {"depth": self.depth, "videos": self.videos[split]}
        return {"set": "MOViLike", "split": _STORED[split], **self._look(), **held, **made_with}

    def _kept(self, split: Split) -> ClipCache:
        """The cache in the user's cache folder, written on first use."""
        description = self._description(split)
        key = hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:16]
        folder = cache_home() / "MOViLike" / f"{self.law.level}-{self.resolution}-{_STORED[split]}-{key}"
        if not (folder / "cache.json").is_file():
            try:
                check_writable(folder, "set SLOTBENCH_CACHE to another folder")
            except FileError as error:
                raise DataFilesError(str(error)) from error
            folder.parent.mkdir(parents=True, exist_ok=True)
            lock = Lock(f"{folder}.lock")
            lock.acquire(math.inf, f"MOViLike: waiting for another process that writes {folder}")
            try:
                if not (folder / "cache.json").is_file():
                    self._write_with_bar(split, folder)
            finally:
                lock.release()
        return ClipCache(folder)

    def _write_with_bar(self, split: Split, folder: Path) -> None:
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True)) as progress:
            bar = progress.add_task(f"MOViLike {_STORED[split]}", total=self.videos[split])
            self._write(split, folder, lambda what, done, total: progress.update(bar, completed=done))
        print(f"MOViLike: {self.videos[split]:,} {_STORED[split]} videos are kept in {folder}", file=sys.stderr)

    def _given(self, folder: Path, split: Split) -> ClipCache:
        cache = ClipCache(folder)
        cache.description.setdefault("lowest_camera", _LOWEST_CAMERA)
        asked: dict[str, Any] = {"set": "MOViLike", "lowest_camera": self.law.lowest_camera} | self._look()
        cache.check(needs={"depth": self.depth}, **asked)
        if len(cache.lengths) < self.videos[split]:
            raise DataFilesError(
                f"the cache {folder} has {len(cache.lengths)} videos and {self.videos[split]} are asked for: set "
                f"{split}_videos to that or less"
            )
        return cache
