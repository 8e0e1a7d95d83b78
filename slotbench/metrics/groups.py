"""Numbers of every clip, gathered, and taken in groups of clips: a score's spread within one test set."""

from __future__ import annotations

import torch
from jaxtyping import Float, Integer
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

__all__ = ["ClipMetric", "GroupMeans", "group_slices"]


def group_slices(clips: int, group_size: int) -> list[slice]:
    """Which clips make up each group, in order; those that fill no group are left out, unless there is no full one.

    Example:
        >>> group_slices(5, 2), group_slices(2, 3)
        ([slice(0, 2, None), slice(2, 4, None)], [slice(0, 2, None)])
    """
    if 0 < clips < group_size:
        return [slice(0, clips)]
    return [slice(start, start + group_size) for start in range(0, clips - group_size + 1, group_size)]


class ClipMetric(Metric):
    """Base of metrics that need a row of numbers per clip, whatever the number of processes.

    The rows come back in the order of the data set where it is known which clips they are of; else in the order in
    which they came, which is the data set's where one process has read it all.

    Args:
        group_size: clips per group.

    Raises:
        ValueError: a group without clips.
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

    Args:
        group_size: clips per group.

    Example:
        >>> means = GroupMeans(group_size=2)
        >>> means.update(torch.tensor([[1.0], [3.0], [5.0], [5.0], [9.0]]))
        >>> means.compute().tolist()
        [[2.0], [5.0]]
    """

    clips: int = 0

    def update(self, scores: Float[Tensor, "clips scores"], index: Integer[Tensor, " clips"] | None = None) -> None:
        """Adds the scores of some clips; `index` says which."""
        self.keep(scores, index)

    def compute(self) -> Float[Tensor, "groups scores"]:
        """A row per group."""
        groups = self.kept()
        self.clips = len(groups[0])
        return torch.stack([group.mean(dim=0) for group in groups])
