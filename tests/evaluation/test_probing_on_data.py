"""Rows of the annotations and ids of the masks belong together, in the data sets that are simulated here."""

from __future__ import annotations

import pytest
import torch
from drawing_tasks import DrawnByBatch
from torch import nn

from slotbench.data.balls.bouncing_balls import BouncingBalls
from slotbench.data.base import LoaderOptions, SlotDataModule, to_unit_range
from slotbench.evaluation.probe_clips import collect
from slotbench.evaluation.probe_factors import choose_factors
from slotbench.evaluation.probing import ProbeSettings, probe
from slotbench.interfaces import Segmentation, VideoBatch


class Oracle(DrawnByBatch, nn.Module):
    """A slot per true id, in an order drawn for each clip: centre, area and mean colour of its pixels."""

    def __init__(self, num_slots: int) -> None:
        super().__init__()
        self.num_slots = num_slots

    def evaluate(self, batch: VideoBatch) -> Segmentation:
        true = batch.require("masks").long()
        height, width = true.shape[-2:]
        order = torch.rand(len(true), self.num_slots).argsort(1)
        ids = order.gather(1, true.flatten(1)).view(true.shape)
        masks = nn.functional.one_hot(ids, self.num_slots).movedim(-1, 2).float()
        area = masks.mean((-2, -1))
        rows = torch.linspace(0, 1, height)[:, None].expand(height, width)
        columns = torch.linspace(0, 1, width).expand(height, width)
        seen = [batch.frames[:, :, channel] for channel in range(batch.frames.shape[2])]
        means = [(masks * x.expand(true.shape)[:, :, None]).mean((-2, -1)) / area.clamp(min=1e-9)
                 for x in (rows, columns, *seen)]  # fmt: skip
        return Segmentation(slots=torch.stack([area, *means], -1), masks=masks)

    def attention_masks(self, attention: torch.Tensor, size: tuple[int, int]) -> None:
        return None


def scores(data: SlotDataModule, num_slots: int, match: str) -> dict[str, float]:
    parts = [
        collect(Oracle(num_slots), map(to_unit_range, loader), 64)
        for loader in (data.train_dataloader(), data.test_dataloader())
    ]
    report = probe(*parts, choose_factors(parts[0].labels), ProbeSettings(match=match, heads=("linear",)))
    return {score.factor.name: score.heads["linear"] for score in report.scores}


@pytest.mark.parametrize("match", ["masks", "position"])
def test_balls(match: str) -> None:
    data = BouncingBalls(num_balls=3, num_frames=4, eval_frames=4, resolution=32, loader=LoaderOptions(test_size=64))
    found = scores(data, 4, match)
    assert found["positions"] > 0.98
    assert found["radii"] > 0.5
    assert found["velocities"] < 0.3


def test_simulated_scenes(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mujoco")
    from slotbench.data.movi_like.movi_like import MOViLike

    monkeypatch.setenv("SLOTBENCH_CACHE", str(tmp_path))
    data = MOViLike(resolution=24, num_objects=(2, 3), video_frames=4, num_frames=4, train_videos=60, test_videos=20,
                    val_videos=1)  # fmt: skip
    found = scores(data, 4, "masks")
    assert found["image_positions"] > 0.9
    assert found["color"] > 0.6
    assert found["scale"] > 0.3
