"""Segmentations without learning: what they are on clips whose answer is known, and that they are always the same."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from torch.nn import functional as F

from slotbench.metrics.segmentation_baselines import (
    FEATURE_SEGMENTATIONS,
    cluster_features,
    feature_segmentations,
    grid_labels,
    kmeans_labels,
    nearest_grid,
    simple_segmentations,
    stripe_labels,
)


def noise(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def same_partition(labels, others):
    pairs = set(zip(labels.flatten().tolist(), others.flatten().tolist(), strict=True))
    return len(pairs) == len({left for left, _ in pairs}) == len({right for _, right in pairs})


def points_of(clip, position_weight=0.0):
    """Channels, column and row of every pixel of a clip "time channels height width"."""
    time, _, height, width = clip.shape
    row, col = torch.meshgrid(torch.linspace(0, 1, height), torch.linspace(0, 1, width), indexing="ij")
    places = torch.stack([col, row], -1).expand(time, height, width, 2) * position_weight
    return torch.cat([clip.movedim(1, -1), places], -1).flatten(0, 2).numpy()


def inertia(points, labels):
    clusters = [points[labels == label] for label in np.unique(labels)]
    return sum(np.square(cluster - cluster.mean(0)).sum() for cluster in clusters)


def test_a_grid_counts_its_rectangles_in_row_major_order():
    labels = grid_labels(noise(1, 2, 3, 6, 6), rows=2, cols=3)
    expected = torch.tensor([[0, 1, 2], [3, 4, 5]]).repeat_interleave(3, 0).repeat_interleave(2, 1)
    assert (labels == expected).all()


@settings(max_examples=30)
@given(rows=st.integers(1, 5), cols=st.integers(1, 5), height=st.integers(5, 20), width=st.integers(5, 20))
def test_rectangles_of_a_grid_differ_by_a_pixel_per_side_at_most(rows, cols, height, width):
    labels = grid_labels(torch.zeros(1, 1, 3, height, width), rows, cols)[0, 0]
    heights = torch.bincount(labels[:, 0] // cols, minlength=rows)
    widths = torch.bincount(labels[0], minlength=cols)
    assert labels.unique().tolist() == list(range(rows * cols))
    assert int(heights.max() - heights.min()) <= 1
    assert int(widths.max() - widths.min()) <= 1


@given(st.integers(1, 200))
def test_the_nearest_grid_uses_nearly_all_slots_and_is_no_stripe(num_slots):
    rows, cols = nearest_grid(num_slots)
    assert rows <= cols <= 2 * rows
    assert num_slots - (rows + 1) < rows * cols <= num_slots


@pytest.mark.parametrize("channels", [1, 3])
def test_kmeans_separates_flat_colours_exactly_in_all_frames_of_a_clip(channels):
    true = (torch.arange(3)[:, None, None] + torch.arange(6)[:, None] + torch.arange(8)) % 4
    colours = torch.tensor([0.1, 0.4, 0.6, 0.9])
    frames = colours[true][None, :, None].expand(1, 3, channels, 6, 8)
    assert same_partition(kmeans_labels(frames, 4, 0.0), true)


def test_kmeans_leaves_clusters_unused_where_there_are_fewer_colours():
    frames = torch.zeros(1, 2, 3, 8, 8)
    frames[..., 4:] = 0.5
    labels = kmeans_labels(frames, 7, 0.0)
    assert same_partition(labels, (frames[:, :, 0] > 0))
    assert kmeans_labels(torch.zeros(1, 1, 3, 2, 2), 7, 0.0).unique().tolist() == [0]


def test_position_tells_apart_what_colour_does_not():
    flat = torch.full((1, 2, 3, 8, 15), 0.5)
    assert kmeans_labels(flat, 2, 0.0).unique().tolist() == [0]
    by_place = kmeans_labels(flat, 2, 0.7)
    assert torch.bincount(by_place.flatten()).min() > 0.4 * by_place.numel()
    assert torch.equal(by_place[:, 0], by_place[:, 1])


@pytest.mark.parametrize("position_weight", [0.0, 1.5])
def test_kmeans_is_as_tight_as_that_of_scikit_learn_on_clusters_that_stand_apart(position_weight):
    frames = torch.zeros(1, 4, 3, 16, 16)
    frames[:, :, 0, :8, :8] = frames[:, :, 1, 8:, 8:] = frames[:, :, 2, 8:, :8] = 1
    frames += 0.1 * noise(*frames.shape)
    points = points_of(frames[0], position_weight)
    found = inertia(points, kmeans_labels(frames, 4, position_weight).flatten().numpy())
    reference = KMeans(4, n_init=10, random_state=0).fit(points)
    assert found == pytest.approx(reference.inertia_, rel=1e-3)


def test_labels_of_a_clip_do_not_depend_on_the_batch_or_on_the_random_state():
    frames = noise(3, 2, 3, 12, 12)
    together = kmeans_labels(frames, 5, 1.5)
    np.random.seed(7)  # noqa: NPY002 - the state that must not matter
    alone = torch.cat([kmeans_labels(clip[None], 5, 1.5) for clip in frames])
    assert torch.equal(together, alone)


def test_long_clips_are_clustered_by_some_of_their_pixels_and_labelled_in_all():
    frames = torch.zeros(1, 3, 3, 96, 96)  # 27,648 pixels
    frames[..., 32:] = 0.5
    frames[..., 64:] = 1
    frames += 0.05 * noise(*frames.shape)
    labels = kmeans_labels(frames, 3, 0.0)
    assert same_partition(labels, stripe_labels(frames, 3))


def test_all_baselines_of_seven_slots():
    frames = noise(2, 3, 3, 12, 14)
    baselines = simple_segmentations(frames, 7)
    assert {name: int(labels.max()) + 1 for name, labels in baselines.items()} == {
        "one slot": 1,
        "stripes": 7,
        "grid 2x3": 6,
        "k-means colour": 7,
        "k-means colour + position": 7,
    }
    assert all(labels.shape == (2, 3, 12, 14) and labels.dtype == torch.int64 for labels in baselines.values())
    assert torch.equal(baselines["k-means colour"], kmeans_labels(frames, 7, 0.0))
    assert torch.equal(baselines["k-means colour + position"], kmeans_labels(frames, 7, 1.5))
    assert not same_partition(baselines["k-means colour"], baselines["k-means colour + position"])


@pytest.mark.parametrize("position_weight", [0.0, 1.5])
def test_kmeans_on_noise_comes_near_to_that_of_scikit_learn(position_weight):
    frames = noise(1, 4, 3, 12, 20)
    points = points_of(frames[0], position_weight)
    found = inertia(points, kmeans_labels(frames, 7, position_weight).flatten().numpy())
    assert found <= 1.03 * KMeans(7, n_init=2, random_state=0).fit(points).inertia_


def moving_features(clips=2, time=6, dim=12, noise_of=0.05):
    """Features of a square that moves over two halves of a ground, and the three ids, in cells of 8 x 12."""
    ids = torch.zeros(clips, time, 8, 12, dtype=torch.int64)
    ids[..., 6:] = 1
    for t in range(time):
        ids[:, t, 2:5, t : t + 3] = 2
    directions = torch.linalg.qr(noise(dim, dim, seed=4) - 0.5)[0][:3]
    return directions[ids].movedim(-1, 2) + noise_of * noise(clips, time, dim, 8, 12), ids


def test_clusters_of_features_are_the_parts_whose_features_differ_and_keep_their_names_where_they_are_linked():
    features, ids = moving_features()
    found = feature_segmentations(features.half(), 3, (8, 12))
    assert tuple(found) == FEATURE_SEGMENTATIONS
    single, whole, linked = found.values()
    for labels in (whole, linked):
        assert all(same_partition(*clip) for clip in zip(labels, ids, strict=True))
    assert all(same_partition(*frame) for frame in zip(single.flatten(0, 1), ids.flatten(0, 1), strict=True))
    assert not same_partition(single[0], ids[0]), "nothing carries a frame's names over to the next one"


def test_cells_become_pixels_as_masks_do_and_linked_names_stay_with_their_clusters():
    features, _ = moving_features(noise_of=0.6)
    cells, pixels = (feature_segmentations(features, 4, size) for size in ((8, 12), (40, 60)))
    for name in FEATURE_SEGMENTATIONS[:2]:
        shares = torch.stack([cells[name] == cluster for cluster in range(4)], 2).float().flatten(0, 1)
        wanted = F.interpolate(shares, (40, 60), mode="bilinear", align_corners=False).argmax(1)
        assert torch.equal(pixels[name].flatten(0, 1).long(), wanted)
    single, linked = pixels["k-means features"], pixels["k-means features, linked"]
    assert all(same_partition(*frame) for frame in zip(single.flatten(0, 1), linked.flatten(0, 1), strict=True))
    middle = linked[..., 2::5, 2::5]  # where a pixel is the middle of a cell
    assert torch.equal(middle, cells["k-means features, linked"])


@pytest.mark.parametrize("clusters", [3, 7])
def test_clusters_of_features_are_nearly_as_tight_as_those_of_scikit_learn(clusters):
    features, _ = moving_features(1, noise_of=0.6)
    points = features[0].movedim(1, -1).flatten(0, 2).numpy()
    found = inertia(points, cluster_features(features, clusters).flatten().numpy())
    assert found <= 1.05 * KMeans(clusters, n_init=2, random_state=0).fit(points).inertia_


def test_clusters_begin_from_cells_that_lie_apart():
    """By k-means++: cells drawn alike would all be of the ground, and small parts would share clusters."""
    ids = torch.zeros(1, 1, 20, 20, dtype=torch.int64)
    for part in range(1, 7):
        ids[..., 3 * part, 2 * part] = part
    features = (100 * torch.eye(7)[ids] + 0.01 * noise(1, 1, 20, 20, 7)).movedim(-1, 2)
    assert same_partition(cluster_features(features, 7), ids)


def test_clusters_of_features_do_not_depend_on_the_batch_the_random_state_or_the_precision_around():
    features, _ = moving_features(3, noise_of=0.6)
    together = feature_segmentations(features, 5, (16, 24))
    torch.manual_seed(7)
    with torch.autocast("cpu", torch.bfloat16):
        alone = [feature_segmentations(clip[None], 5, (16, 24)) for clip in features]
    assert all(torch.equal(together[name], torch.cat([one[name] for one in alone])) for name in FEATURE_SEGMENTATIONS)


def test_features_of_long_clips_are_clustered_by_some_frames_and_labelled_in_all_and_equal_ones_are_one_cluster():
    features, ids = moving_features(1)
    long = features.repeat_interleave(30, 1)  # 180 frames
    assert same_partition(cluster_features(long, 3), ids.repeat_interleave(30, 1))
    assert len(cluster_features(torch.ones(1, 2, 4, 3, 3), 5).unique()) == 1
