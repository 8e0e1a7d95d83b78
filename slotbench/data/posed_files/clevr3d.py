"""CLEVR3D, scenes of CLEVR from three cameras, in the files of ObSuRF."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from slotbench.data.base import LoaderOptions, Split, check_counts
from slotbench.data.cameras import look_at
from slotbench.data.folders.frame_maps import read_map
from slotbench.data.formats.images import read_frame
from slotbench.data.posed_data import Frame, PosedData, PosedVideos
from slotbench.data.posed_files.scenes import PosedFiles, PosedImages
from slotbench.errors import DataFilesError
from slotbench.io import read_npz

__all__ = ["CLEVR3D"]

_VIEWS = 3
_FOCAL = 0.035 / 0.032  # of the image's width
_SCENES: dict[Split, tuple[int, int]] = {"train": (0, 70_000), "val": (70_000, 75_000), "test": (85_000, 100_000)}


class CLEVR3D(PosedData):
    """Static scenes of CLEVR from three cameras, clips of one step, in the files of ObSuRF.

    A folder has `images/img_{scene}_{view}.png` of 320 x 240 pixels, `masks/masks_{scene}_{view}.png` with ids, 0 the
    background, and `metadata.npz` with `camera_pos` (scenes, views, 3) and `shape` (scenes, objects), 0 where there is
    none. Scenes 0 to 69,999 are trained on, 70,000 to 74,999 validated, 85,000 to 99,999 tested. Cameras look at the
    origin, with the focal length .035 and the sensor .032 wide.

    Batches are as those of `MultiCameraLike`; `objects` has "cameras", "focal", "views", "to_world", and of each object
    "present" and "shape_label" (-1 where there is none).

    Source: Stelzner et al., "Decomposing 3D Scenes into Objects via Unsupervised Volume Segmentation", 2021; Sajjadi et
    al., "Object Scene Representation Transformer", NeurIPS 2022, whose scenes of at most 6 objects are the default.

    Args:
        num_shown: cameras that are shown in training, 2 or 3.
        eval_shown: those that are shown otherwise; null for as many. The papers show one.
        height: rows of pixels.
        width: columns; as many as rows for the square in the middle of an image, else 4/3 of them.
        frame: of matrices and rays: "world", or "first", that of the first shown camera.
        max_objects: scenes with more objects are left out.
    """

    def __init__(
        self,
        path: str,
        num_shown: int = 2,
        eval_shown: int | None = None,
        height: int = 120,
        width: int = 160,
        frame: Frame = "world",
        max_objects: int = 6,
        loader: LoaderOptions = LoaderOptions(batch_size=8, val_batch_size=8),
    ) -> None:
        super().__init__(loader, 1, 1)
        check_counts(height=height, width=width, max_objects=max_objects)
        self.set_views(_VIEWS, num_shown, eval_shown, frame)
        self.path = Path(path).expanduser()
        self.resolution, self.width = height, width
        self.max_objects = max_objects

    def max_eval_frames(self, split: Split) -> int:
        """Scenes stand still: 0."""
        return 0

    def stored_videos(self, split: Split) -> tuple[PosedVideos, np.ndarray]:
        """The scenes of all splits, and those of this one that have few enough objects."""
        source = _Scenes(self.path, self.resolution, self.width or self.resolution)
        start, stop = _SCENES[split]
        few = source.present[start:stop].sum(1) <= self.max_objects
        return self.posed(source, split), start + np.flatnonzero(few)


class _Scenes(PosedFiles):
    def __init__(self, path: Path, height: int, width: int) -> None:
        super().__init__(height, width)
        self.path = path
        about = path / "metadata.npz"
        found = read_npz(about, ("camera_pos", "shape"))
        centres, shape = found.get("camera_pos", np.empty(0)), found.get("shape", np.empty(0))
        if centres.shape != (len(shape), max(_VIEWS, *centres.shape[1:2]), 3) or shape.ndim != 2:
            raise DataFilesError(
                f"{about} is no metadata of CLEVR3D; expected ObSuRF's camera_pos of shape (scenes, 3 or more views, "
                "3) and shape of shape (scenes, objects)"
            )
        self.centres, self.shape = centres[:, :_VIEWS].astype(np.float32), shape.astype(np.int64)
        self.present = self.shape > 0
        self.lengths = np.ones(len(centres), np.int64)

    def posed(self, video: int, frames: range) -> PosedImages:
        places = [f"{video}_{view}.png" for view in range(_VIEWS)]
        images = [read_frame(self.path / "images" / f"img_{place}") for place in places]
        masks = [read_map(self.path / "masks" / f"masks_{place}")[None].astype(np.int32) for place in places]
        cameras = look_at(torch.from_numpy(self.centres[video])).numpy()[None]
        about = {"present": self.present[video], "shape_label": self.shape[video] - 1}
        size = images[0].shape[:2]
        return PosedImages([self.fit(image)[None] for image in images], size, masks, cameras, _FOCAL * size[1], about)

    def video_name(self, video: int) -> str:
        return f"scene{video:06d}"

    def origin(self, video: int) -> str:
        return f"{self.path}, scene {video}"
