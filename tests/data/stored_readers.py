"""Every reader of stored videos: what writes its files in small, and what reads them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from action_files import FRAMES, write_mazes, write_movies, write_npz
from cater_files import write_cater
from clevrer_files import write_clevrer
from feature_files import write_feature_file
from media_files import write_maps, write_video
from real_files import write_davis, write_youtube_vis
from tfrecord_files import movi_video, write_movi

from slotbench.data.action_videos.action_videos import ActionVideos, MemoryMaze
from slotbench.data.base import LoaderOptions
from slotbench.data.cater.cater import CATER
from slotbench.data.clevrer.clevrer import CLEVRER
from slotbench.data.features import FeatureFile
from slotbench.data.folders.depth_video import DepthVideo
from slotbench.data.folders.video_folder import VideoFolder
from slotbench.data.movi.movi import MOVi
from slotbench.data.real.davis import DAVIS
from slotbench.data.real.youtube_vis import YouTubeVIS


@dataclass(frozen=True)
class Reader:
    """A reader: what writes its files below a folder, and what reads them there.

    Args:
        write: writes all splits.
        kind: the data set.
        arguments: beside `path` and `frames`.
        within: what `path` names in the folder.
        masks: whether its videos have masks.
        frames: of clips, by argument.
        prepared: whether the files are prepared to a cache, which is read in their place.
    """

    write: Callable[[Path], Any]
    kind: Callable[..., Any]
    arguments: dict[str, Any]
    within: str = ""
    prepared: bool = False
    masks: bool = True
    frames: dict[str, int] = field(default_factory=lambda: {"num_frames": 2, "eval_frames": 2})

    def data(self, folder: Path, **arguments: Any) -> Any:
        given = {**self.frames, **self.arguments, **arguments}
        if "loader" in given:
            given["loader"] = LoaderOptions(**given["loader"])
        return self.kind(path=str(folder / self.within), **given)


def write_features(folder: Path) -> None:
    for split in ("train", "val", "test"):
        write_feature_file(folder / f"{split}.h5")


def write_folder(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for split in ("train", "val", "test"):
        for number in range(3):
            write_video(folder / split / f"{number}.npy", rng.integers(0, 256, (9, 8, 12, 3), dtype=np.uint8))
            for kind in ("masks", "depth"):
                write_maps(folder / split / kind / f"{number}.npy", rng.integers(0, 4, (9, 8, 12), dtype=np.uint8))


def write_movi_a(folder: Path) -> None:
    videos = [movi_video(seed, 16, num_objects=3 + seed) for seed in range(4)]
    write_movi(folder / "movi_a" / "128x128" / "1.0.0", {"train": videos, "validation": videos[:3]})


def write_vis(folder: Path) -> None:
    for stored in ("train", "valid", "test"):
        write_youtube_vis(folder, stored)


def packed_videos(**arguments: Any) -> Any:
    """The data set of docs/your_own_videos.md."""
    page = Path(__file__).parents[2] / "docs" / "your_own_videos.md"
    (code,) = (found for found in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.S) if "@reg" in found)
    names: dict[str, Any] = sys.modules.setdefault("page_of_own_videos", ModuleType("page_of_own_videos")).__dict__
    if "PageVideos" not in names:
        # under another name: that of the page is for its own test
        exec(code.replace('@register("datasets")\n', "").replace("PackedVideos", "PageVideos"), names)
    return names["PageVideos"](**arguments)


def write_packed(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for split, count in (("train", 4), ("val", 3), ("test", 2)):
        frames = rng.integers(0, 256, (count, 8, 8, 8, 3), dtype=np.uint8)
        np.savez(folder / f"{split}.npz", frames=frames, masks=(frames[..., 0] // 90).astype(np.uint8))


ACTIONS: dict[str, Any] = {"resolution": 8, "video_frames": FRAMES}
MOVI: dict[str, Any] = {"resolution": 16, "depth": True}
READERS = {
    "FeatureFile": Reader(write_features, FeatureFile, {}),
    "VideoFolder": Reader(write_folder, VideoFolder, {"resolution": 8}),
    "DAVIS": Reader(write_davis, DAVIS, {"resolution": (8, 12)}),
    "YouTubeVIS": Reader(write_vis, YouTubeVIS, {"resolution": 8, "split_rule": "release"}),
    "DepthVideo": Reader(write_folder, DepthVideo, {"resolution": 8, "unit": "metres"}),
    "MOVi": Reader(write_movi_a, MOVi, MOVI),
    "MOVi, prepared": Reader(write_movi_a, MOVi, MOVI, prepared=True),
    "CLEVRER": Reader(write_clevrer, CLEVRER, {"resolution": 8}),
    "PackedVideos": Reader(write_packed, packed_videos, {"resolution": 8}),
    "CLEVRER, prepared": Reader(write_clevrer, CLEVRER, {"resolution": 8}, prepared=True),
    "ActionVideos": Reader(write_npz, ActionVideos, ACTIONS, masks=False),
    "ActionVideos of movies": Reader(write_movies, ActionVideos, ACTIONS, masks=False),
    "ActionVideos, prepared": Reader(write_npz, ActionVideos, ACTIONS, masks=False, prepared=True),
    "MemoryMaze": Reader(write_mazes, MemoryMaze, ACTIONS, masks=False),
}

CATER_FILES = Reader(
    lambda folder: write_cater(folder / "set"), CATER, {"resolution": 8}, "set", frames={"num_frames": 4}
)
"""Its clips are of any frames of a video, so that the laws of consecutive ones are not its own."""
