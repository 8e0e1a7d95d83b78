"""Files of depth beside videos."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from kinds import Kind, fingerprint
from media_files import write_maps, write_video

from slotbench.data.folders.depth_video import DepthVideo

SIDE, FRAMES = 8, 4


def depth_file(name: str) -> Any:
    """What writes a video with depth in the form of the file `name`, or marks of what is valid if it is one of them."""

    def make(folder: Path) -> Path:
        rng = np.random.default_rng(0)
        path = folder / "video" / name
        write_video(folder / "video" / "a.npy", rng.integers(0, 256, (FRAMES, SIDE, SIDE, 3), np.uint8))
        values = rng.integers(1000, 9000, (FRAMES, SIDE, SIDE)).astype(np.uint16)
        if path.parent.name == "depth_valid":
            write_maps(folder / "video" / "depth" / "a.npy", values)
            values = (values > 4000).astype(np.uint16)
        write_maps(path.parent / path.suffix[1:] if path.parent.name == "a" else path, values)
        return path

    return make


def read_depth(folder: Path) -> str:
    dataset = DepthVideo(str(folder / "video"), "millimetres", eval_frames=2, resolution=SIDE).dataset("test")
    clips = [dataset[i] for i in range(len(dataset))]
    assert all(bool((clip.objects["depth"].isfinite() & (clip.objects["depth"] >= 0)).all()) for clip in clips)
    return fingerprint([clip.objects for clip in clips])


KINDS: dict[str, Kind] = {
    "depth: npy": Kind(depth_file("depth/a.npy"), read_depth),
    "depth: npz": Kind(depth_file("depth/a.npz"), read_depth, exact=True),
    "depth: png": Kind(depth_file("depth/a/1.png"), read_depth),
    "depth: maps": Kind(depth_file("depth/a/1.npy"), read_depth),
    "depth: valid": Kind(depth_file("depth_valid/a.npy"), read_depth),
}
