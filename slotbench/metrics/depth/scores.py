"""Scores of slots that predict depth: object discovery, and errors of depth with baselines."""

from __future__ import annotations

from collections.abc import Mapping

from jaxtyping import Float
from torch import Tensor, nn

from slotbench.metric_info import MetricInfo, Reference
from slotbench.metrics.depth.errors import DepthErrors
from slotbench.metrics.depth.means import Counted, Depth
from slotbench.metrics.discovery_scores import DiscoveryScores

__all__ = ["DepthScores"]


class DepthScores(DiscoveryScores):
    """The scores of `DiscoveryScores` and errors of depth.

    Names: `<error>/<pixels>`, where error is `depth_abs_rel`, `depth_rmse` or `depth_log_rmse` (see `DepthErrors`) and
    pixels is `all` that have depth, or those of `objects`, where the data has masks; for baselines
    `baseline/<error>/<pixels>/<name>`, scored on all clips.
    """

    def __init__(self, baseline_clips: int = 0) -> None:
        super().__init__(baseline_clips)
        self.depths = nn.ModuleDict()

    @property
    def declared(self) -> list[MetricInfo]:
        """Scores of object discovery, and errors of depth."""
        return [
            *super().declared,
            MetricInfo("depth_abs_rel", "depth: mean |p - d| / d", False),
            MetricInfo("depth_rmse", "depth: RMSE in the data's unit", False),
            MetricInfo("depth_log_rmse", "depth: RMSE of ln d", False),
        ]

    def update_depth(self, predicted: Depth, true: Depth, counted: Counted) -> None:
        """Adds predicted depth, and the pixels of each group that count."""
        self._add("", dict.fromkeys(counted, predicted), true, counted)

    def update_depth_baselines(
        self,
        baselines: Mapping[str, Mapping[str, Float[Tensor, "*#batch height width"]]],
        true: Depth,
        counted: Counted,
    ) -> None:
        """Adds what baselines predict of the same clips, unless they have been scored."""
        if self.wants_references and self.baseline_clips:
            for name, predicted in baselines.items():
                self._add(f"/{name}", predicted, true, counted)

    def compute(self) -> dict[str, float]:
        """Every score that there is, by name; what has no pixel is left out."""
        values = super().compute()
        for key, errors in self.depths.items():
            group, _, baseline = key.partition("/")
            assert isinstance(errors, DepthErrors)
            for error, value in errors.compute().items():
                name = f"{error}/{group}"
                values[Reference("baseline", name, baseline) if baseline else name] = float(value)
        return {name: value for name, value in values.items() if value == value}  # nan: no pixel

    def reset(self) -> None:
        """Forgets every clip."""
        super().reset()
        self.depths.clear()

    def _add(self, ending: str, predicted: Mapping[str, Tensor], true: Depth, counted: Counted) -> None:
        for group, depth in predicted.items():
            if group in counted:
                key = f"{group}{ending}"
                if key not in self.depths:
                    self.depths[key] = DepthErrors().to(true.device)
                self.depths[key].update(depth.expand_as(true), true, counted[group])  # type: ignore[operator]
