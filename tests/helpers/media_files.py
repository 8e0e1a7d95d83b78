"""Videos and maps of their frames, written in each form that a folder of videos may have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image


def write_video(path: Path, frames: np.ndarray, between_keys: int = 7) -> Path:
    """Frames "time height width 3" in the form that the path's ending names; a folder of PNGs without an ending."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npz":
        np.savez_compressed(path, video=frames)
    elif path.suffix == ".npy":
        np.save(path, frames)
    elif path.suffix == ".gif":
        first, *others = (Image.fromarray(frame) for frame in frames)
        first.save(path, save_all=True, append_images=others)
    elif path.suffix:
        write_movie(path, frames, between_keys)
    else:
        write_pictures(path, frames)
    return path


def write_pictures(folder: Path, frames: np.ndarray, ending: str = "png") -> Path:
    """A picture, or an npy file, for each frame."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, frame in enumerate(frames):
        if ending == "npy":
            np.save(folder / f"{number}.npy", frame)
        else:
            Image.fromarray(frame).save(folder / f"{number}.{ending}")
    return folder


def write_movie(
    path: Path,
    frames: np.ndarray,
    between_keys: int = 7,
    bit_rate: int | None = None,
    codec: str = "mpeg4",
    pixels: str = "yuv420p",
) -> Path:
    """A movie, in MPEG-4."""
    av = pytest.importorskip("av")
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=25)
        stream.pix_fmt = pixels
        stream.height, stream.width = frames.shape[1:3]
        stream.gop_size = between_keys
        if bit_rate is not None:
            stream.bit_rate = bit_rate
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    return path


def write_maps(path: Path, values: np.ndarray) -> Path:
    """Maps "time height width" in the form that the path's ending names.

    An npz has them under the name of its folder, beside another array; `NAME/png` and `NAME/npy` are folders of a file
    for each frame.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npz":
        np.savez(path, **{path.parent.name: values, "other": np.zeros(3)})
    elif path.suffix == ".npy":
        np.save(path, values)
    else:
        write_pictures(path.parent, values, path.name)
    return path
