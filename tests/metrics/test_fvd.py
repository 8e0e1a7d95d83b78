"""The Frechet distance is that of Gaussians, videos are resized as FVD says, groups are those of the set."""

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given
from hypothesis import strategies as st

from slotbench.metrics.fvd import FVD, GroupMeans, embed_videos, frechet_distance, group_slices


def by_root(x, y):
    """The definition with scipy's root of a matrix."""
    s, t = (np.atleast_2d(np.cov(samples.T)) for samples in (x, y))  # of one dimension: a number
    return np.sum((x.mean(0) - y.mean(0)) ** 2) + np.trace(s + t - 2 * scipy.linalg.sqrtm(s @ t).real)


@given(st.integers(0, 1000), st.integers(1, 6), st.integers(20, 60), st.integers(20, 60))
def test_it_is_the_distance_by_the_matrix_root(seed, dim, n, m):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(n, dim)) @ rng.normal(size=(dim, dim)), rng.normal(size=(m, dim)) + 0.5
    found = frechet_distance(torch.from_numpy(x), torch.from_numpy(y)).item()
    assert found == pytest.approx(by_root(x, y), rel=1e-6, abs=1e-6)


def test_fewer_samples_than_dimensions_do_no_harm():
    torch.manual_seed(0)
    x, y = torch.randn(256, 400), torch.randn(256, 400)
    assert frechet_distance(x, x).item() == pytest.approx(0, abs=1e-9)
    # disjoint supports: the covariances' product is zero, so both traces remain
    left, right = torch.cat([x, torch.zeros(256, 8)], 1), torch.cat([torch.zeros(256, 8), torch.zeros(256, 400)], 1)
    right[:, :8] = y[:, :8]
    left[:, :8] = 0
    expected = left.var(0).sum() + right.var(0).sum() + (left.mean(0) - right.mean(0)).square().sum()
    assert frechet_distance(left, right).item() == pytest.approx(expected.item(), rel=1e-5)
    # a shift of equal sets is its squared length, and order does not matter
    assert frechet_distance(x, x + 0.5).item() == pytest.approx(400 * 0.25, rel=1e-5)
    assert frechet_distance(x, y).item() == pytest.approx(frechet_distance(y, x).item(), rel=1e-9)


def test_videos_are_resized_without_antialias_and_scaled():
    seen = []
    video = torch.tensor([[0.0, 1.0, 0.0, 1.0]]).expand(4, 4).reshape(1, 1, 1, 4, 4).repeat(1, 3, 1, 1, 1)
    out = embed_videos(video, lambda v: seen.append(v) or v.mean(dim=(1, 3, 4)), side=2)
    assert out.shape == (1, 3)
    # halfway between two pixels, as without antialias: the mean of both
    assert seen[0].shape == (1, 3, 3, 2, 2)
    assert seen[0].abs().max() == 0
    embed_videos(video, lambda v: seen.append(v) or v.mean(dim=(1, 3, 4)), side=1)
    assert seen[1].flatten().tolist() == pytest.approx([0.0] * 9)
    wide = torch.zeros(1, 1, 1, 6, 6)
    wide[..., 1:5:3, :] = 1  # of the rows 0 to 5 the rows 1 and 4 are what two sampled rows look at
    embed_videos(wide, lambda v: seen.append(v) or v.mean(dim=(1, 3, 4)), side=2)
    assert seen[2].flatten().tolist() == pytest.approx([1.0] * 12)
    embed_videos(torch.rand(2, 4, 1, 4, 4), lambda v: seen.append(v) or v.mean(dim=(1, 3, 4)))
    assert seen[3].shape == (1, 3, 4, 224, 224)
    assert torch.equal(seen[3][:, 0], seen[3][:, 2])


def test_clips_that_fill_no_group_are_left_out():
    assert group_slices(0, 4) == []
    assert group_slices(3, 4) == [slice(0, 3)]
    assert group_slices(4, 4) == [slice(0, 4)]
    assert group_slices(11, 4) == [slice(0, 4), slice(4, 8)]


def test_fvd_is_a_distance_per_group_whatever_the_batches():
    torch.manual_seed(0)
    predicted, true = torch.randn(10, 4), torch.randn(10, 4) + 1
    expected = [frechet_distance(predicted[i : i + 4], true[i : i + 4]).item() for i in (0, 4)]
    for cuts in ([10], [3, 3, 4], [1] * 10):
        metric = FVD(group_size=4)
        for p, t in zip(predicted.split(cuts), true.split(cuts), strict=True):
            metric.update(p, t)
        assert metric.compute().tolist() == pytest.approx(expected, rel=1e-6)
        assert metric.group_size == 4
    assert abs(expected[0] - expected[1]) > 1e-3
    single = FVD(group_size=4)
    single.update(predicted[:1], true[:1])
    assert single.compute().tolist() == []


def test_groups_are_in_the_order_of_the_data_set_in_whatever_order_clips_come():
    rows = torch.arange(12.0)[:, None]
    alone = GroupMeans(group_size=3)
    alone.update(rows)
    together = GroupMeans(group_size=3)
    # two processes with batches of four and two clips, the first one's clips before the second one's
    for part in ([0, 1, 2, 3], [8, 9], [4, 5, 6, 7], [10, 11]):
        together.update(rows[part], torch.tensor(part))
    assert together.compute().tolist() == alone.compute().tolist() == [[1.0], [4.0], [7.0], [10.0]]
    assert together.clips == 3
