"""Segments that are linked from frame to frame: cases by hand, and what linking keeps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slotbench.metrics import kmeans_stream_labels, linked_labels


def row(*frames: str) -> torch.Tensor:
    """One clip of images of a single row, a digit for each pixel."""
    return torch.tensor([[[[int(pixel) for pixel in frame]] for frame in frames]])


@pytest.mark.parametrize(
    ("frames", "linked"),
    [
        pytest.param(("001122", "330044", "555444"), ("001122", "001122", "000222"), id="names by overlap"),
        pytest.param(("00000", "11222"), ("00000", "11000"), id="a name for the larger half alone"),
        pytest.param(("0110", "0000", "0110"), ("0110", "0000", "0220"), id="hidden comes back as another"),
        pytest.param(("10000000", "00000001"), ("10000000", "00000002"), id="no free name elsewhere"),
    ],
)
def test_names_of_linked_segments(frames, linked):
    assert linked_labels(row(*frames)).tolist() == row(*linked).tolist()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_linking_keeps_the_segments_of_each_frame_whatever_they_are_called(seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (2, 5, 4, 4), generator=generator)
    linked = linked_labels(labels)
    for before, after in zip(labels.flatten(0, 1), linked.flatten(0, 1), strict=True):
        pairs = set(zip(before.flatten().tolist(), after.flatten().tolist(), strict=True))
        assert len(pairs) == len(before.unique()) == len(after.unique())
    names = torch.randperm(9, generator=generator)
    # of equally good pairs another may be taken, which distinct overlaps rule out
    still = labels[:, :1].repeat(1, 5, 1, 1)
    renamed = torch.stack([still[:, time] + 10 * time for time in range(5)], 1)
    assert torch.equal(linked_labels(renamed), linked_labels(still))
    assert torch.equal(linked_labels(names[still]).diff(dim=1).abs().sum(), torch.tensor(0))


def test_clusters_start_from_those_of_the_frame_before_and_no_frame_sees_a_later_one():
    cluster = pytest.importorskip("sklearn.cluster")
    frames = torch.rand(1, 4, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    labels = kmeans_stream_labels(frames, 3, 0.5)
    assert torch.equal(kmeans_stream_labels(torch.cat([frames, frames.flip(1)]), 3, 0.5)[:1], labels)
    assert torch.equal(kmeans_stream_labels(frames[:, :2], 3, 0.5), labels[:, :2])
    steps = torch.linspace(0, 1, 12) * 0.5
    places = torch.stack([*torch.meshgrid(steps, steps, indexing="xy")], -1).flatten(0, 1)
    points = torch.cat([frames[0].flatten(2).transpose(1, 2), places.expand(4, -1, -1)], -1).numpy()
    # the centres of the first frame are known by its labels only up to their rounds
    first = kmeans_stream_labels(frames[:, :1].expand(-1, 4, -1, -1, -1), 3, 0.5)[0, -1].flatten().numpy()
    centres = np.stack([points[0][first == one].mean(0) for one in range(3)])
    for found, frame in zip(labels[0].flatten(1).numpy(), points, strict=True):
        refined = cluster.KMeans(3, init=centres, n_init=1, max_iter=200, tol=0).fit(frame)
        assert (refined.labels_ == found).mean() > 0.95
        centres = refined.cluster_centers_


def test_a_cluster_follows_what_moves():
    frames = torch.zeros(1, 12, 3, 16, 16)
    for time in range(12):
        frames[0, time, 0, 2:6, time : time + 4] = 1.0  # to the right
        frames[0, time, 0, 10:14, 12 - time : 16 - time] = 0.5  # to the left
    labels = kmeans_stream_labels(frames, 3, 0.1)[0]
    objects = [
        labels[time][frames[0, time, 0] == shade].unique().tolist() for shade in (1.0, 0.5) for time in range(12)
    ]
    assert objects == [objects[0]] * 12 + [objects[12]] * 12
    assert objects[0] != objects[12]
