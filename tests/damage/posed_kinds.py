"""Files of several posed cameras: matrices as text and as arrays, and what is known of scenes."""

from __future__ import annotations

from pathlib import Path

from kinds import Kind, fingerprint
from posed_scene_files import write_clevr3d, write_posed_videos, write_uorf

from slotbench.data.posed_files.clevr3d import CLEVR3D
from slotbench.data.posed_files.posed_video_folder import PosedVideoFolder
from slotbench.data.posed_files.uorf import UORFScenes


def clevr3d(folder: Path) -> str:
    return fingerprint([CLEVR3D(str(folder), height=6, width=8).dataset("train").clips([0, 1, 2, 3])])


def uorf(folder: Path) -> str:
    return fingerprint([UORFScenes(str(folder), resolution=8, val_scenes=1).dataset("val").clips([0])])


def own_videos(folder: Path) -> str:
    return fingerprint([PosedVideoFolder(str(folder), 3, resolution=8).dataset("test").clips([0])])


KINDS: dict[str, Kind] = {
    "posed cameras: metadata of CLEVR3D": Kind(
        lambda folder: write_clevr3d(folder, (0, 1, 2, 3)) / "metadata.npz", clevr3d, exact=True
    ),
    "posed cameras: masks of CLEVR3D": Kind(
        lambda folder: write_clevr3d(folder, (0, 1, 2, 3)) / "masks" / "masks_0_0.png", clevr3d
    ),
    "posed cameras: a matrix of uORF": Kind(lambda folder: write_uorf(folder) / "00008_sc0002_az00_RT.txt", uorf),
    "posed cameras: cameras.npz": Kind(
        lambda folder: write_posed_videos(folder, ("test",), 1) / "test" / "clip0" / "cameras.npz",
        own_videos,
        exact=True,
    ),
}
