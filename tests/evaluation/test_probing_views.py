"""Objects that several posed cameras see are probed in the frame of the rays, if a shown camera sees them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from drawing_tasks import DrawnByBatch
from torch import nn

from slotbench.data.base import LoaderOptions, to_unit_range
from slotbench.data.multi_camera_like.multi_camera_like import MultiCameraLike
from slotbench.evaluation.probe_clips import Clips, collect
from slotbench.evaluation.probing import ClipChoice, ProbeReport, ProbeSettings, probe_task
from slotbench.interfaces import Segmentation, VideoBatch

pytest.importorskip("mujoco")


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLOTBENCH_CACHE", str(tmp_path_factory.mktemp("home")))
        yield


def small(**arguments: object) -> MultiCameraLike:
    few = {"resolution": 24, "video_frames": 2, "num_frames": 2, "samples_per_side": 1, "depth": False}
    few |= {"train_videos": 40, "val_videos": 1, "test_videos": 20, "loader": LoaderOptions(20, 20)}
    return MultiCameraLike(**(few | arguments))  # type: ignore[arg-type]


class Oracle(DrawnByBatch, nn.Module):
    """A slot per true id in an order drawn for each clip, with the mean colour of its pixels."""

    def __init__(self, num_slots: int = 6) -> None:
        super().__init__()
        self.num_slots = num_slots
        self.shown: list[int] = []

    def evaluate(self, batch: VideoBatch) -> Segmentation:
        self.shown.append(batch.num_views)
        true = batch.require("masks").long()
        order = torch.rand(len(true), self.num_slots).argsort(1)
        ids = order.gather(1, true.flatten(1)).view(true.shape)
        masks = nn.functional.one_hot(ids, self.num_slots).movedim(-1, 3).float()
        colours = torch.einsum("btvshw,btvchw->btsc", masks, batch.frames)
        pixels = masks.sum((2, 4, 5))[..., None]
        return Segmentation(slots=torch.cat([pixels, colours / pixels.clamp(min=1)], -1), masks=masks)

    def attention_masks(self, attention: torch.Tensor, size: tuple[int, int]) -> None:
        return None


def probed(data: MultiCameraLike, task: Oracle, **settings: object) -> ProbeReport:
    return probe_task(task, data, ClipChoice(fit_clips=80), ProbeSettings(heads=("linear",), restarts=1, **settings))  # type: ignore[arg-type]


@pytest.mark.parametrize("arguments", [{}, {"frame": "first"}, {"level": "ego", "num_shown": 5, "frame": "first"}])
def test_rays_through_the_masks_meet_where_the_objects_are(arguments: dict[str, object]) -> None:
    data = small(**arguments)
    report = probed(data, Oracle())
    scores = {score.factor.name: score for score in report.scores}
    assert {"positions", "velocities", "color", "scale", "shape_label", "material_label"} <= set(scores)
    # the cameras of the ego are next to each other, so that directions are nearly all that masks say
    assert scores["positions"].baselines["mask"] > (0.8 if data.level == "ego" else 0.94)
    assert scores["color"].heads["linear"] > 0.7
    assert abs(scores["positions"].heads["linear"]) < 0.3
    assert report.matching["test"]["frame_iou"] == 1


def collected(data: MultiCameraLike) -> tuple[Clips, VideoBatch]:
    batch = to_unit_range(data.dataset("test").clips(list(range(20))))
    return collect(Oracle(), [batch], 20), batch


def test_objects_that_no_shown_camera_sees_are_left_out() -> None:
    clips, batch = collected(small(level="ego", num_shown=2))
    views = batch.objects["views"][:, None, :, None].expand(-1, 2, -1, 5)
    pixels = batch.objects["visibility"].gather(2, views).sum(2)
    assert torch.equal(clips.visible, pixels > 0)
    elsewhere = batch.objects["visibility"].sum(2) > 0
    assert (elsewhere & ~clips.visible).any()


@pytest.mark.parametrize("frame", ["world", "first"])
def test_positions_and_velocities_are_in_the_frame_of_the_rays(frame: str) -> None:
    clips, batch = collected(small(frame=frame))
    to_world = batch.objects["to_world"][:, None, None]
    places = torch.cat([clips.labels["positions"], torch.ones(20, 2, 4, 1)], -1)
    world = (to_world @ places[..., None])[..., :3, 0]
    torch.testing.assert_close(world, batch.objects["positions"], atol=1e-4, rtol=1e-4)
    ways = (to_world[..., :3, :3] @ clips.labels["velocities"][..., None])[..., 0]
    torch.testing.assert_close(ways, batch.objects["velocities"], atol=1e-4, rtol=1e-4)
    assert torch.equal(clips.labels["positions"], batch.objects["positions"]) is (frame == "world")


@pytest.mark.parametrize("same", [True, False])
def test_heads_are_fitted_to_clips_of_which_as_many_cameras_are_shown(same: bool) -> None:
    task = Oracle()
    probe_task(task, small(eval_shown=2), ClipChoice(fit_clips=20, same_views=same), ProbeSettings(heads=("linear",)))
    assert set(task.shown) == ({2} if same else {2, 3})
