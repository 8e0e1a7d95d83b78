"""PatchKMeans and its codebook: patches there and back, nearest entries, and k-means beside scikit-learn."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.cluster import KMeans
from slotbench_plugins.tokenizers.patch_k_means import PatchKMeans

from slotbench.interfaces import VideoSpec
from slotbench.nn.patch_codebook import cut_patches, fit_codebook, join_patches, nearest_entries

FRAME = VideoSpec(channels=3, height=8, width=12)


def test_patches_are_cut_row_by_row_and_joined_again():
    frames = torch.rand(2, 3, 8, 12)
    patches = cut_patches(frames, 4)
    assert patches.shape == (2, 2, 3, 48)
    assert torch.equal(patches[1, 0, 2], frames[1, :, :4, 8:].flatten())
    assert torch.equal(join_patches(patches, 4), frames)


def test_the_nearest_entry_is_that_of_the_least_distance():
    torch.manual_seed(0)
    values, codebook = torch.rand(5, 7, 6, dtype=torch.float64), torch.rand(9, 6, dtype=torch.float64)
    expected = torch.cdist(values.flatten(0, 1), codebook).argmin(1).view(5, 7)
    assert torch.equal(nearest_entries(values, codebook), expected)


def test_k_means_is_as_good_as_that_of_scikit_learn():
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(6, 4)) * 4
    points = torch.tensor(centres[generator.integers(6, size=400)] + generator.normal(size=(400, 4)) * 0.3)

    def error(codebook):
        return (points - codebook[nearest_entries(points, codebook)]).square().sum(1).mean()

    trusted = torch.tensor(KMeans(6, n_init=5, random_state=0).fit(points.numpy()).cluster_centers_)
    ours = min(error(fit_codebook(points, 6, seed=seed)) for seed in range(3))
    assert ours <= error(trusted) * 1.001


def test_fewer_different_patches_than_codes_are_all_kept():
    points = torch.eye(3).repeat(4, 1)
    codebook = fit_codebook(points, 5)
    assert codebook.isfinite().all()
    assert torch.equal(codebook[nearest_entries(points, codebook)], points)


def test_it_asks_for_frames_until_it_is_fitted_and_then_brings_them_back():
    tokenizer = PatchKMeans(FRAME, num_codes=4, fit_frames=5)
    assert tokenizer.fit_frames == 5
    shades = torch.tensor([0.1, 0.35, 0.6, 0.85])[torch.randint(4, (6, 1, 2, 3))]
    frames = shades.repeat_interleave(4, -1).repeat_interleave(4, -2).expand(-1, 3, -1, -1)
    tokenizer.fit(frames)
    assert tokenizer.fit_frames == 0
    torch.testing.assert_close(tokenizer.decode(tokenizer(frames[None]).codes)[0], frames)
