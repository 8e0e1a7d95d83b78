"""Random crops of training clips: what they keep, and that masks, depth and boxes stay with the pixels."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from slotbench.data.augmentation import Augmentation
from slotbench.data.clips import ClipSource, CutClips
from slotbench.data.crops import Crop, cropped, draw_crop
from slotbench.interfaces import VideoBatch
from slotbench.nn.slot_init import first_boxes

SIDE = 16


class Squares(ClipSource):
    """Videos of one object, whose depth and brightness are those of its id, with its box."""

    lengths = np.full(5, 4)

    def read(self, videos, starts, num_frames):
        masks = torch.zeros(len(videos), num_frames, SIDE, SIDE, dtype=torch.uint8)
        masks[:, :, 5:11, 4:9] = 1
        boxes = torch.tensor([5, 4, 11, 9]).div(SIDE).expand(len(videos), num_frames, 1, 4)
        return VideoBatch(
            frames=(200 * masks)[:, :, None].repeat(1, 1, 3, 1, 1),
            time=torch.arange(num_frames).repeat(len(videos), 1),
            masks=masks,
            objects={
                "video": torch.tensor(videos),
                "depth": 9.0 - 4 * masks,
                "bboxes": boxes,
                "visibility": masks.sum((-1, -2)),
            },
        )


@pytest.mark.parametrize("least", [0.2, 0.75, 0.99])
def test_a_crop_keeps_the_least_share_within_the_image_and_its_aspects(least):
    rng = np.random.default_rng(0)
    drawn = [draw_crop(rng, least, 64, 96) for _ in range(200)]
    for crop in drawn:
        assert crop.top >= 0
        assert crop.left >= 0
        assert crop.top + crop.height <= 64
        assert crop.left + crop.width <= 96
        assert crop.height * crop.width >= least * 64 * 96
        assert crop == (0, 0, 64, 96) or 0.7 < crop.width / crop.height < 1.4
    assert len(set(drawn)) > 20 or least > 0.9


def test_masks_depth_and_boxes_stay_with_the_pixels():
    batch = cropped(Squares().read([0, 1], [0, 0], 3), Crop(3, 2, 12, 10))
    assert batch.frames.shape == (2, 3, 3, SIDE, SIDE)
    assert batch.frames.dtype == torch.uint8
    assert torch.equal(batch.objects["depth"], 9.0 - 4 * batch.masks)
    inside = batch.frames[:, :, 0] > 190
    assert (batch.masks[inside] == 1).all()
    drawn = first_boxes(VideoBatch(batch.frames, batch.time, batch.masks), 1)
    assert (drawn - batch.objects["bboxes"][:, 0]).abs().max() < 1 / SIDE
    assert "visibility" not in batch.objects
    gone = cropped(Squares().read([0], [0], 3), Crop(12, 10, 4, 4))
    assert (gone.masks == 0).all()
    assert (gone.objects["bboxes"] == 0).all()


def test_training_clips_are_cropped_as_their_number_says_and_others_are_not():
    clips = CutClips(Squares(), "train", 100, 2, seed=3, augment=Augmentation(crop=0.5))
    together, apart = clips.clips([7, 2, 9]), [clips.clips([number]) for number in (7, 2, 9)]
    assert torch.equal(together.frames, VideoBatch.join(apart).frames)
    assert not torch.equal(apart[0].masks, apart[1].masks)
    assert not torch.equal(
        clips.clips([7]).masks,
        CutClips(Squares(), "train", 100, 2, seed=4, augment=Augmentation(crop=0.5)).clips([7]).masks,
    )
    val = CutClips(Squares(), "val", 100, 2, augment=Augmentation(crop=0.5)).clips([0])
    assert torch.equal(val.masks, Squares().read([0], [0], 2).masks)
