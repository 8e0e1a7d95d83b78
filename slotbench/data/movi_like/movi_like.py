"""MOViLike, videos simulated in the manner of MOVi, with its fields and conventions; they are not MOVi's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from slotbench.data.base import LoaderOptions
from slotbench.data.crops import check_crop
from slotbench.data.movi.record import TIMED
from slotbench.data.movi_like.kept import KeptVideos
from slotbench.data.movi_like.scenes import Level, SceneLaw
from slotbench.data.movi_like.videos import SimulatedVideos

__all__ = ["MOViLike"]

_WIDEST = 0.8  # zoom at which the horizon would come into view


class MOViLike(KeptVideos):
    """Videos of objects that fall, roll and collide, simulated here, with the fields of MOVi.

    Scores on them compare only with each other, never with scores on MOVi. Levels are "a" (plain), "tex" (solid
    textures), "cam" (a camera that moves in a line) and "hard" (both, one palette, long shadows): docs/datasets.md.
    The videos are made once and kept in the user's cache folder, or written by `slotbench prepare MOViLike`. Each is a
    pure function of `scene_seed`, split and index, for one version of mujoco and numpy on one machine.

    Fields, names, shapes, units and the cutting into clips are those of `MOVi`: "category" is the shape again,
    "is_dynamic" is 1, "background_color" the floor's (first) colour, "friction" and "restitution" the material's.

    Args:
        path: a cache that `slotbench prepare MOViLike` wrote with the same arguments; null to make it where needed.
        level: "a", "tex", "cam" or "hard".
        num_objects: fewest and most objects of a video; annotations are padded to the most.
        video_frames: frames of a video, 12 per second.
        object_sizes: the small and the large size: side of a cube, diameter and height of the others.
        spread: objects start above a square of twice this side, and are thrown to within 0.8 of it.
        zoom: times the focal length of MOVi's camera, which stands 7 to 9 units from the centre.
        lowest_camera: the least elevation of the camera above the floor, in degrees, from 30 to below 90.
        orbit: degrees by which the camera circles the scene from one frame to the next, so that objects pass behind
            each other for as long as a video lasts.
        samples_per_side: rays per pixel are its square.
        depth: gives the distance from the camera as well.
        scene_seed: of the videos.
        train_videos: videos that training clips are cut out of.
        val_videos: videos of the validation split.
        test_videos: videos of the test split.
        crop: the least share of the image that a random crop of a training clip keeps, enlarged to the size of all,
            as SAVi++ has it (0.75); 1 for whole images.
    """

    set_name = "MOViLike"
    timed = TIMED
    later: ClassVar[Mapping[str, Any]] = {"lowest_camera": 30.0, "orbit": 0.0}
    prepare_arguments: ClassVar[tuple[str, ...]] = (
        "level", "resolution", "num_objects", "video_frames", "object_sizes", "spread", "zoom", "lowest_camera",
        "orbit", "samples_per_side", "depth", "scene_seed", "train_videos", "val_videos", "test_videos",
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
        orbit: float = 0.0,
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
        videos = (train_videos, val_videos, test_videos)
        self.set_videos(path, resolution, video_frames, samples_per_side, depth, scene_seed, videos)
        if zoom < _WIDEST:
            raise ValueError(f"zoom is {zoom}; expected {_WIDEST} or more, for a camera that sees floor only")
        self.law = SceneLaw(level, num_objects, object_sizes, float(spread), float(lowest_camera), float(orbit))
        self.crop = check_crop(crop)
        self.zoom = float(zoom)

    def simulations(self, **look: Any) -> SimulatedVideos:
        """The videos of a split, with the law and the camera of this set."""
        return SimulatedVideos(self.law, zoom=self.zoom, **look)

    def _look(self) -> dict[str, Any]:
        """The arguments that a video depends on."""
        return {
            "lowest_camera": self.law.lowest_camera,
            "orbit": self.law.orbit,
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
