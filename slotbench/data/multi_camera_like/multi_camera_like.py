"""MultiCameraLike, dynamic scenes that several posed cameras see, in the manner of PSB's sets; they are not these."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from slotbench.data.base import LoaderOptions, Split, to_unit_range
from slotbench.data.cameras import in_frame_of, pixel_rays, turntable
from slotbench.data.clips import ClipSource
from slotbench.data.movi_like.kept import KeptVideos
from slotbench.data.multi_camera_like.scenes import LEVELS, Level
from slotbench.data.multi_camera_like.videos import TIMED, PosedSimulations, draw_views
from slotbench.data.posed_data import Frame, PosedData
from slotbench.interfaces import VideoBatch

__all__ = ["MultiCameraLike"]


class MultiCameraLike(PosedData, KeptVideos):
    """Moving objects that several posed cameras see at the same instants, simulated here after the 3-D sets of PSB.

    Level "simple" is after Dynamic 3D CLEVR-Simple (Singh et al., PSB, App. C.1): 2 to 4 objects, thrown at the centre
    of an empty floor, and 5 cameras on a hemisphere, drawn anew for each video. Level "ego" is after Dynamic 3D
    CLEVR-Natural-Ego (App. C.2): 3 to 5 objects and an ego, which is not seen, move through four rooms with walls and a
    prop each; 6 cameras on the ego look all around. docs/datasets.md says what differs from these sets, which are not
    public; scores compare only with each other. Videos are kept as those of `MOViLike` are.

    `frames` "batch time views 3 side side" are of the shown cameras, `held_out` is a batch of the same steps from the
    others; both have `masks`, with ids that all cameras share, and `rays` "batch time views 6 side side": origin and
    unit direction. Which cameras are shown is drawn for each clip in training and for each video in evaluation, from
    their numbers alone. In `objects` of both: "cameras", camera-to-world matrices "batch time views 4 4", whose columns
    are right, up, backward and centre; "depth" "batch time views side side" along the ray (1000 where nothing is met);
    "views", which camera each view is; "focal" in pixels; "to_world", from the frame of matrices and rays to the world.
    In `objects` of the batch alone, what `MOViLike` logs of each object, in the world, and "visibility", pixels of the
    masks of all cameras, shown or not "batch time cameras objects".

    Args:
        path: a cache that `slotbench prepare MultiCameraLike` wrote with the same arguments; null to make it where
            needed.
        level: "simple" or "ego"; it decides cameras, objects, and frames of a video.
        num_shown: cameras that the encoder is shown, of training clips; 2 or more.
        eval_shown: the same of validation and test clips; null for as many.
        video_frames: frames of a video, 12 per second; null for those of the level.
        frame: of matrices and rays: "world", as PSB has them, or "first", that of the first shown camera at the clip's
            first step, as OSRT has them.
        samples_per_side: rays per pixel are its square.
        depth: gives the distance from the camera.
        scene_seed: of the videos.
        train_videos: videos that training clips are cut out of.
        val_videos: videos of the validation split.
        test_videos: videos of the test split.
    """

    set_name = "MultiCameraLike"
    timed = TIMED
    prepare_arguments: ClassVar[tuple[str, ...]] = (
        "level", "resolution", "video_frames", "samples_per_side", "depth", "scene_seed", "train_videos", "val_videos",
        "test_videos",
    )  # fmt: skip

    def __init__(
        self,
        path: str | None = None,
        level: Level = "simple",
        num_shown: int = 3,
        eval_shown: int | None = None,
        resolution: int = 32,
        num_frames: int = 6,
        eval_frames: int | None = None,
        video_frames: int | None = None,
        frame: Frame = "world",
        samples_per_side: int = 2,
        depth: bool = True,
        scene_seed: int = 0,
        train_videos: int = 1000,
        val_videos: int = 50,
        test_videos: int = 100,
        loader: LoaderOptions = LoaderOptions(batch_size=8, val_batch_size=8),
    ) -> None:
        super().__init__(loader, num_frames, eval_frames)
        self.facts = LEVELS[level]
        self.level: Level = level
        frames = self.facts.video_frames if video_frames is None else video_frames
        videos = (train_videos, val_videos, test_videos)
        self.set_videos(path, resolution, frames, samples_per_side, depth, scene_seed, videos)
        self.set_views(len(self.facts.cameras), num_shown, eval_shown, frame)

    @property
    def focal_length(self) -> float:
        """In pixels."""
        return self.facts.focal_length * self.resolution

    def stored_videos(self, split: Split) -> tuple[ClipSource, np.ndarray | None]:
        """The videos of a split, their views parted, and those of them that take part."""
        return self.posed(self.cache(split), split, self.focal_length), np.arange(self.videos[split])

    def simulations(self, **look: Any) -> PosedSimulations:
        """The videos of a split, of this level."""
        return PosedSimulations(self.level, **look)

    def held_out_baselines(self, batch: VideoBatch) -> dict[str, Tensor]:
        """Held-out views by the nearest shown view, the mean training image, and the scene without its objects."""
        if batch.held_out is None:
            return {}
        return super().held_out_baselines(batch) | {"empty_scene": self.empty_scene(batch.held_out)}

    def empty_scene(self, batch: VideoBatch) -> Tensor:
        """What the cameras of a batch, or of its `held_out`, would see if there were no objects.

        Returns:
            frames "batch time views channels height width" in [0, 1].
        """
        world = batch.objects["to_world"][:, None, None] @ batch.objects["cameras"]
        drawn = [
            draw_views(self.level, clip.numpy(), self.resolution, self.samples_per_side)[0] for clip in world.cpu()
        ]
        return (torch.from_numpy(np.stack(drawn)).float() / 255).to(batch.frames.device)

    def seen_from(self, batch: VideoBatch, cameras: Tensor) -> VideoBatch:
        """A batch for a decoder that paints what cameras see that nobody recorded.

        Returns:
            a batch of these steps with `rays` in the frame of the given batch, "cameras" and "to_world"; its frames are
            the empty scene.
        """
        to_world = batch.objects["to_world"]
        posed = in_frame_of(cameras.to(to_world)[None], to_world[:, None, None])
        time = torch.arange(cameras.shape[0], device=batch.time.device).repeat(len(batch), 1)
        made = VideoBatch(
            batch.frames.new_zeros(len(batch), *posed.shape[1:3], self.channels, self.resolution, self.resolution),
            time,
            rays=pixel_rays(posed, self.focal_length, self.resolution, self.resolution),
            objects={"cameras": posed, "to_world": to_world},
        )
        made.frames = self.empty_scene(made)
        return to_unit_range(made)

    def turntable(self, batch: VideoBatch, steps: int | None = None) -> VideoBatch:
        """`seen_from` of one camera that goes once around the scene; by default in the steps of the batch."""
        steps = batch.num_steps if steps is None else steps
        return self.seen_from(batch, turntable(steps, self.facts.turntable[0], self.facts.turntable[1])[:, None])

    def _look(self) -> dict[str, Any]:
        names = ("level", "resolution", "video_frames", "samples_per_side", "scene_seed")
        return {name: getattr(self, name) for name in names}
