"""Frechet video distance: how far the distribution of predicted videos is from that of true ones, by groups of clips.

Source: Unterthiner, van Steenkiste, Kurach, Marinier, Michalski, Gelly, "Towards Accurate Generative Models of Video",
2018; the Frechet distance between Gaussians is Dowson and Landau's, 1982.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Integer, UInt8
from torch import Tensor
from torch.nn import functional as F
from torchmetrics.utilities import dim_zero_cat

from slotbench.interfaces import unit_frames
from slotbench.metrics.distinct import DistinctMetric

__all__ = ["FVD", "FVD_SIDE", "ClipMetric", "GroupMeans", "embed_videos", "frechet_distance", "group_slices"]

FVD_SIDE = 224
"""Height and width in pixels to which FVD resizes videos."""


def frechet_distance(
    first: Float[Tensor, "samples dim"], second: Float[Tensor, "other_samples dim"]
) -> Float[Tensor, ""]:
    """Squared distance of means, plus tr(S1 + S2 - 2 (S1 S2)^(1/2)) of the sample covariances, in float64.

    With centred samples as rows of X and Y, S1 = X'X/(n-1) and S2 = Y'Y/(m-1), the eigenvalues of S1 S2 other than
    zero are the squared singular values of XY'/sqrt((n-1)(m-1)), and these are found without a matrix's root. So fewer
    samples than dimensions do no harm to the arithmetic; the value itself is biased upwards by few samples.

    Example:
        >>> square = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
        >>> round(frechet_distance(square, square + torch.tensor([3.0, 4.0])).item(), 6)
        25.0
    """
    if min(len(first), len(second)) < 2:
        raise ValueError(f"a covariance takes two samples, and these are sets of {len(first)} and {len(second)}")
    first, second = first.double(), second.double()
    shift = first.mean(dim=0) - second.mean(dim=0)
    x, y = ((samples - samples.mean(dim=0)) / (len(samples) - 1) ** 0.5 for samples in (first, second))
    spread = x.square().sum() + y.square().sum() - 2 * torch.linalg.svdvals(x @ y.T).sum()
    return (shift.square().sum() + spread).clamp(min=0)


def embed_videos(
    videos: Float[Tensor, "clips time channels height width"] | UInt8[Tensor, "clips time channels height width"],
    network: Callable[[Float[Tensor, "1 3 time side side"]], Float[Tensor, "1 dim"]],
    side: int = FVD_SIDE,
) -> Float[Tensor, "clips dim"]:
    """What `network` makes of each video: resized bilinearly without antialiasing, grey repeated, in [-1, 1].

    Computed without autocast, one video at a time: at 224 x 224 a frame takes 600 kB before the first layer.
    """
    channels = videos.shape[2]
    if channels not in (1, 3):
        raise ValueError(f"FVD compares grey videos or RGB videos, and these have {channels} channels")
    found = []
    with torch.autocast(videos.device.type, enabled=False):
        for video in videos:
            resized = F.interpolate(unit_frames(video).float(), (side, side), mode="bilinear", align_corners=False)
            found.append(network((2 * resized - 1).expand(-1, 3, -1, -1).transpose(0, 1)[None]))
    return torch.cat(found)


def group_slices(clips: int, group_size: int) -> list[slice]:
    """Which clips make up each group, in order; those that fill no group are left out, unless there is no full one.

    Example:
        >>> group_slices(5, 2), group_slices(2, 3)
        ([slice(0, 2, None), slice(2, 4, None)], [slice(0, 2, None)])
    """
    if 0 < clips < group_size:
        return [slice(0, clips)]
    return [slice(start, start + group_size) for start in range(0, clips - group_size + 1, group_size)]


class ClipMetric(DistinctMetric):
    """Base of metrics that need a row of numbers per clip, whatever the number of processes.

    The rows come back in the order of the data set where it is known which clips they are of; else in the order in
    which they came, which is the data set's where one process has read it all.
    """

    higher_is_better = None
    is_differentiable = False
    full_state_update = False
    rows: list[Tensor]
    places: list[Tensor]

    def __init__(self, group_size: int = 256) -> None:
        super().__init__()
        if group_size < 1:
            raise ValueError(f"group_size is {group_size}; expected a number of clips, at least 1")
        self.group_size = group_size
        self.add_state("rows", [], dist_reduce_fx="cat")
        self.add_state("places", [], dist_reduce_fx="cat")

    def keep(self, rows: Float[Tensor, "clips columns"], index: Integer[Tensor, " clips"] | None = None) -> None:
        """Adds the rows of some clips, and which clips of the data set they are."""
        if index is None:
            index = sum(len(part) for part in self.places) + torch.arange(len(rows))
        self.rows.append(rows)
        self.places.append(index.to(rows.device))

    def kept(self) -> list[Float[Tensor, "clips columns"]]:
        """The rows of all clips in order, group by group."""
        rows = dim_zero_cat(self.rows)[dim_zero_cat(self.places).argsort()]
        return [rows[group] for group in group_slices(len(rows), self.group_size)]


class GroupMeans(ClipMetric):
    """The mean of some scores over each group of clips; after `compute`, `clips` is how many a group has.

    Example:
        >>> means = GroupMeans(group_size=2)
        >>> means.update(torch.tensor([[1.0], [3.0], [5.0], [5.0], [9.0]]))
        >>> means.compute().tolist()
        [[2.0], [5.0]]
    """

    clips: int = 0

    def update(self, scores: Float[Tensor, "clips scores"], index: Integer[Tensor, " clips"] | None = None) -> None:
        """Adds the scores of the clips with numbers `index`."""
        self.keep(scores, index)

    def compute(self) -> Float[Tensor, "groups scores"]:
        """A row per group."""
        groups = self.kept()
        self.clips = len(groups[0])
        return torch.stack([group.mean(dim=0) for group in groups])


class FVD(ClipMetric):
    """Frechet distance between the embeddings of predicted and of true videos, group by group.

    It is FVD if they are I3D's logits on Kinetics-400; of any other embedding it is a Frechet distance of another name.
    Only values from groups of one size compare.
    """

    def update(
        self,
        predicted: Float[Tensor, "clips dim"],
        true: Float[Tensor, "clips dim"],
        index: Integer[Tensor, " clips"] | None = None,
    ) -> None:
        """Adds the embeddings of the clips with numbers `index`."""
        self.keep(torch.cat([predicted, true], dim=1), index)

    def compute(self) -> Float[Tensor, " groups"]:
        """A distance per group; none where all clips together are fewer than two."""
        groups = [group.chunk(2, dim=1) for group in self.kept() if len(group) > 1]
        distances = [frechet_distance(predicted, true) for predicted, true in groups]
        return torch.stack(distances) if distances else torch.zeros(0)
