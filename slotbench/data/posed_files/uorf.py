"""Scenes from several cameras in the folders of uORF."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from slotbench.data.base import LoaderOptions, Split, check_counts
from slotbench.data.formats.images import read_frame
from slotbench.data.posed_data import Frame, PosedData, PosedVideos
from slotbench.data.posed_files.scenes import PosedFiles, PosedImages, check_matrices
from slotbench.errors import DataFilesError
from slotbench.io import read_text

__all__ = ["UORFScenes"]

_NAME = re.compile(r".*_?sc(\d{1,9})_az(\d{1,9}).*_RT\.txt\Z")


class UORFScenes(PosedData):
    """Static scenes from several cameras, clips of one step, in the folders of uORF.

    An image is `NAME.png` with `NAME_RT.txt` beside it, whose name has `sc` and the number of its scene and `az` and
    that of its view: 16 numbers of a camera-to-world matrix whose columns are right, down, forward and centre. Where
    there are `NAME_mask.png`, an object has one colour in all views of a scene, and what most pixels have is the
    background. Images need square pixels and the same focal length.

    Batches are as those of `MultiCameraLike`, with "cameras", "focal", "views" and "to_world" in `objects`.

    Source: Yu et al., "Unsupervised Discovery of Object Radiance Fields", ICLR 2022.

    Args:
        path: the folder of the scenes that are trained on; the last `val_scenes` of them are validated on.
        test_path: that of the test; null for the scenes of the validation.
        num_cameras: views of each scene, the first ones by their numbers.
        num_shown: those that are shown in training, 2 or more.
        eval_shown: those that are shown otherwise; null for as many. The paper shows one.
        resolution: pixels per side, of the square in the middle of an image.
        focal: focal length as a share of the image's width; 350/320 in the paper's sets of CLEVR.
        frame: of matrices and rays: "world", or "first", that of the first shown camera.
        val_scenes: scenes that are validated on.
    """

    def __init__(
        self,
        path: str,
        test_path: str | None = None,
        num_cameras: int = 4,
        num_shown: int = 2,
        eval_shown: int | None = None,
        resolution: int = 64,
        focal: float = 350.0 / 320.0,
        frame: Frame = "world",
        val_scenes: int = 50,
        loader: LoaderOptions = LoaderOptions(batch_size=8, val_batch_size=8),
    ) -> None:
        super().__init__(loader, 1, 1)
        check_counts(num_cameras=num_cameras, resolution=resolution, val_scenes=val_scenes)
        self.set_views(num_cameras, num_shown, eval_shown, frame)
        self.path = Path(path).expanduser()
        self.test_path = None if test_path is None else Path(test_path).expanduser()
        self.resolution, self.focal, self.val_scenes = resolution, focal, val_scenes

    def max_eval_frames(self, split: Split) -> int:
        """Scenes stand still: 0."""
        return 0

    def stored_videos(self, split: Split) -> tuple[PosedVideos, np.ndarray]:
        """The scenes of a folder, and those of them that take part."""
        own = split == "test" and self.test_path is not None
        source = _Scenes(self.test_path if own and self.test_path else self.path, self)
        scenes = np.arange(len(source.lengths))
        if not own and len(scenes) <= self.val_scenes:
            raise DataFilesError(
                f"{self.path} has {len(scenes)} scenes, of which the last {self.val_scenes} are validated on: set "
                "data.val_scenes to fewer"
            )
        return self.posed(source, split), scenes if own else np.split(scenes, [-self.val_scenes])[split != "train"]


class _Scenes(PosedFiles):
    def __init__(self, folder: Path, data: UORFScenes) -> None:
        super().__init__(data.resolution, data.resolution)
        self.folder, self.focal, self.num_cameras = folder, data.focal, data.num_cameras
        found: dict[int, list[tuple[int, Path]]] = {}
        for file in folder.glob("*_RT.txt"):
            if named := _NAME.match(file.name):
                found.setdefault(int(named[1]), []).append((int(named[2]), file))
        if not found:
            raise DataFilesError(
                f"{folder} has no scenes of uORF; expected NAME.png and NAME_RT.txt with sc and the number of the "
                "scene, az and that of the view in their names, such as 00000_sc0000_az00_RT.txt"
            )
        self.numbers = sorted(found)
        self.poses = [[file for _, file in sorted(found[number])] for number in self.numbers]
        self.lengths = np.ones(len(self.numbers), np.int64)

    def posed(self, video: int, frames: range) -> PosedImages:
        poses = self.poses[video][: self.num_cameras]
        if len(poses) < self.num_cameras:
            raise DataFilesError(
                f"{self.origin(video)} has {len(poses)} views and {self.num_cameras} are asked for: set "
                "data.num_cameras to fewer"
            )
        names = [str(pose).removesuffix("_RT.txt") for pose in poses]
        images = [read_frame(Path(f"{name}.png")) for name in names]
        # from right, down, forward
        cameras = np.stack([_matrix(pose) for pose in poses]) * np.array([1.0, -1.0, -1.0, 1.0])
        masks = None
        if Path(f"{names[0]}_mask.png").exists():
            masks = _ids([read_frame(Path(f"{name}_mask.png")) for name in names])
        size = images[0].shape[:2]
        fitted = [self.fit(image)[None] for image in images]
        return PosedImages(fitted, size, masks, cameras[None], self.focal * size[1])

    def video_name(self, video: int) -> str:
        return f"sc{self.numbers[video]:04d}"

    def origin(self, video: int) -> str:
        return f"{self.folder}, scene {self.numbers[video]}"


def _matrix(path: Path) -> np.ndarray:
    try:
        values = np.array([float(word) for word in read_text(path).split()]).reshape(4, 4)
    except ValueError as error:
        raise DataFilesError(f"{path} cannot be read as a camera-to-world matrix of 16 numbers") from error
    return check_matrices(values, path)


def _ids(colours: list[np.ndarray]) -> list[np.ndarray]:
    """Ids "1 height width" of images of masks: by colour, 0 the most frequent in all of them."""
    packed = [image.astype(np.int64) @ np.array([1 << 16, 1 << 8, 1]) for image in colours]
    known, counts = np.unique(np.concatenate([image.ravel() for image in packed]), return_counts=True)
    known = np.concatenate([known[[counts.argmax()]], np.delete(known, counts.argmax())])
    order = np.argsort(known)
    return [order[np.searchsorted(known[order], image)].astype(np.int32)[None] for image in packed]
