"""Training clips are changed at random, all frames of one alike, and masks with them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from slotbench.data.augmentation import Augmentation, recoloured
from slotbench.data.base import LoaderOptions
from slotbench.data.folders.video_folder import VideoFolder


@pytest.fixture
def path(tmp_path):
    """A video of 4 equal frames of 8 x 12 pixels, whose masks are its red."""
    frame = np.random.default_rng(0).integers(0, 256, (8, 12, 3), dtype=np.uint8)
    np.save(tmp_path / "a.npy", np.stack([frame] * 4))
    (tmp_path / "masks").mkdir()
    np.savez(tmp_path / "masks" / "a.npz", masks=np.stack([frame[..., 0]] * 4))
    return str(tmp_path)


def clips(path, split="train", **augment):
    loader = LoaderOptions(train_size=20)
    data = VideoFolder(path, 4, 4, (8, 12), loader=loader, augment=Augmentation(**augment))
    return data.dataset(split).clips(range(20 if split == "train" else 1))


def test_half_of_the_clips_are_mirrored_with_their_masks(path):
    plain, mirrored = clips(path), clips(path, flip=True)
    assert torch.equal(mirrored.frames[:, :, 0].long(), mirrored.masks.long())
    same = [torch.equal(mirrored.frames[i], plain.frames[i]) for i in range(20)]
    other = [torch.equal(mirrored.frames[i], plain.frames[i].flip(-1)) for i in range(20)]
    assert [a != b for a, b in zip(same, other, strict=True)] == [True] * 20
    assert 4 < sum(same) < 16
    assert torch.equal(clips(path, "val", flip=True, colour=0.5, crop=0.5).frames, plain.frames[:1])


@pytest.mark.parametrize("augment", [{"colour": 0.5}, {"crop": 0.5}, {"crop": 0.5, "flip": True, "colour": 0.5}])
def test_all_frames_of_a_clip_are_changed_alike_and_each_clip_in_its_own_way(path, augment):
    found, again = clips(path, **augment), clips(path, **augment)
    assert torch.equal(found.frames, again.frames)
    assert all(torch.equal(found.frames[:, i], found.frames[:, 0]) for i in range(4))
    assert torch.unique(found.frames, dim=0).shape[0] > 15
    assert found.frames.dtype == torch.uint8


def test_colours_are_those_of_the_three_factors():
    frames = torch.tensor([[100, 50, 30], [20, 60, 90]], dtype=torch.uint8).T[None, :, None]  # one row of two pixels
    assert torch.equal(recoloured(frames, 1, 1, 1), frames)
    assert recoloured(frames, 2, 1, 1).flatten().tolist() == [200, 40, 100, 120, 60, 180]
    grey = recoloured(frames, 1, 1, 0)
    assert grey.flatten().tolist() == [63, 51] * 3  # 0.299 r + 0.587 g + 0.114 b
    assert recoloured(frames, 1, 0, 1).flatten().tolist() == [57] * 6


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match=r"augment.crop is 0 and augment.colour 0.0; expected a crop above 0"):
        Augmentation(crop=0)
