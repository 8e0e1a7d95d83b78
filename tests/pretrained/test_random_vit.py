"""A transformer that is drawn at random has the features that its seed decides."""

from __future__ import annotations

import pytest
import torch

from slotbench.interfaces import VideoSpec
from slotbench.pretrained.random_vit import RandomViT

FRAMES = torch.rand(2, 3, 3, 16, 24, generator=torch.Generator().manual_seed(1))


def test_features_depend_on_the_seed_alone():
    drawn = torch.get_rng_state()
    features, again, other = (RandomViT(VideoSpec(3, 16, 24), dim=32, seed=seed)(FRAMES) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), drawn)
    assert features.shape == (2, 3, 32, 4, 6)
    assert torch.equal(features, again)
    assert (features - other).abs().mean() > 0.1


def test_a_patch_is_told_by_its_look_and_with_a_deviation_by_its_place():
    def of_place(std):
        features = RandomViT(VideoSpec(3, 16, 24), dim=32, position_std=std)(FRAMES)
        return features.mean(dim=(0, 1)).std(dim=(1, 2)).mean() / features.std(dim=(0, 1)).mean()

    assert of_place(0) < 0.5 < 1 < of_place(2)


def test_frames_are_multiples_of_the_patch():
    with pytest.raises(ValueError, match="16 x 25 pixels are no multiples of 4"):
        RandomViT(VideoSpec(3, 16, 25))
