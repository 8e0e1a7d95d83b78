"""Clips to show a model that comes with slotbench: simulated ones that it has never seen, or stored ones.

FOLDER/clips.npz has the stored ones, where the simulator needs an extra: "frames" (clips time height width channels)
and "masks" (clips time height width), bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from slotbench import registry
from slotbench.data.base import LoaderOptions, SlotDataModule, collate, to_unit_range
from slotbench.data.clips import CutClips
from slotbench.data.compiled import interpreted
from slotbench.data.movi_like.kept import KeptVideos
from slotbench.interfaces import VideoBatch
from slotbench.io import read_json_object, read_npz

__all__ = ["CLIPS", "new_clips", "stored_clips"]

CLIPS = "clips.npz"


def new_clips(folder: Path, count: int, seed: int) -> VideoBatch:
    """Clips of the data that a model was trained on, from the test split of another seed; nothing is kept of them.

    The model's record names its data; a `DataFilesError` where the simulator needs an extra that is not installed.
    """
    named = read_json_object(folder / "record.json")["data"]
    arguments: dict[str, Any] = {**named["init_args"], "loader": LoaderOptions(seed=seed, test_size=count)}
    arguments |= {name: new for name, new in (("scene_seed", seed), ("test_videos", count)) if name in arguments}
    data: SlotDataModule = registry.load("datasets", named["class_path"])(**arguments)
    if isinstance(data, KeptVideos):
        # made as they are read: the user's cache is left alone
        clips: Any = CutClips(data.simulated("test"), "test", count * data.video_frames, data.eval_frames)
        clips = clips.one_per_video()
    else:
        clips = data.dataset("test")
    with interpreted():
        return to_unit_range(collate(clips.__getitems__(list(range(count)))))


def stored_clips(folder: Path) -> VideoBatch:
    """The clips that come with a model."""
    found = read_npz(folder / CLIPS)
    frames, masks = torch.from_numpy(found["frames"]), torch.from_numpy(found["masks"])
    batch = VideoBatch(frames.movedim(-1, 2), torch.arange(frames.shape[1]).repeat(len(frames), 1), masks)
    return to_unit_range(batch)
