"""Scores of the model's roll-outs in groups of clips: their spread, and FVD, which needs a group for a value."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from slotbench.metrics.fvd import FVD, GroupMeans, embed_videos
from slotbench.pretrained.i3d import MIN_FRAMES

__all__ = ["GroupValues", "RolloutGroups", "summarise_groups"]

GroupValues = dict[str, list[float]]
"""A score per group of clips, by the score's name, "psnr/first_400" over the first 400 predicted frames."""

Frames = Float[Tensor, "batch time channels height width"]


class RolloutGroups(nn.Module):
    """Means of frame scores over each group of clips and, with a network, FVD between each group and its true clips.

    Args:
        horizon: predicted frames per clip.
        group_size: clips per group; fewer clips are one group, and those that fill none are left out.
        means_until: so many first frames of the horizon have values of their own, where it has as many.
    """

    def __init__(self, horizon: int, group_size: int, means_until: Sequence[int] = ()) -> None:
        super().__init__()
        self.lengths = {"": horizon} | {f"/first_{count}": count for count in means_until if count <= horizon}
        self.means = GroupMeans(group_size)
        self.distances = nn.ModuleDict({f"fvd{suffix}": FVD(group_size) for suffix in self.lengths})
        self.clips = group_size
        self._columns: list[str] = []
        self._network: tuple[nn.Module, ...] = ()

    def embed_with(self, network: nn.Module | None) -> None:
        """Takes the network of FVD, or none; it becomes no part of this module, so that no checkpoint holds it."""
        self._network = () if network is None else (network,)

    @property
    def needs_videos(self) -> bool:
        """Whether FVD is to be computed."""
        return bool(self._network)

    def update_scores(
        self, values: Mapping[str, Float[Tensor, "clips horizon"]], index: Integer[Tensor, " clips"] | None = None
    ) -> None:
        """Adds the scores of every frame of some clips, by the score's name; `index` says which clips."""
        means = {
            f"{name}{suffix}": value[:, :length].mean(dim=1)
            for name, value in values.items()
            for suffix, length in self.lengths.items()
        }
        self._columns = [*means]
        self.means.update(torch.stack([*means.values()], dim=1), index)

    def update_videos(
        self, predicted: Frames, true: Frames, context: int, index: Integer[Tensor, " batch"] | None = None
    ) -> None:
        """Adds some clips, each with its `context` frames first, which may make enough for I3D."""
        for network in self._network:
            network.to(predicted.device)
            for suffix, length in self.lengths.items():
                if context + length < MIN_FRAMES:
                    continue
                embedded = [embed_videos(videos[:, : context + length], network) for videos in (predicted, true)]
                self.distances[f"fvd{suffix}"].update(*embedded, index)  # type: ignore[operator]

    def compute(self) -> GroupValues:
        """The scores of every group. Gathers over processes, so every process must take part."""
        found: GroupValues = {}
        if self.means.update_called:
            columns = self.means.compute().T.tolist()
            found |= dict(zip(self._columns, columns, strict=True))
            self.clips = self.means.clips
        for name, metric in self.distances.items():
            assert isinstance(metric, FVD)
            if metric.update_called and (distances := metric.compute().tolist()):
                found[name] = distances
        return found


def summarise_groups(found: GroupValues, prefix: str) -> Iterator[tuple[str, float]]:
    """What is logged of groups by name: the mean over them and, of two or more, the sample standard deviation (n - 1).

    FVD has no other value than its mean over groups, which has no suffix therefore.
    """
    for name, values in found.items():
        key = f"{prefix}{name}"
        yield key if name.startswith("fvd") else f"{key}/group_mean", statistics.fmean(values)
        if len(values) > 1:
            yield f"{key}/group_std", statistics.stdev(values)
