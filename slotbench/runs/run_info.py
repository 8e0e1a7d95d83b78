"""Records of runs and grids, as JSON holds them; a folder is the user's own, and its records are taken as they are."""

from __future__ import annotations

from typing import Any

__all__ = ["BestScore", "GridRecord", "Headline", "PluginEntry", "PointRecord", "RunInfo"]

RunInfo = dict[str, Any]
"""`run.json` and `result.json`: "id", "name", "group", "state", "step", "metrics", "best", "headlines", ..."""

Headline = dict[str, Any]
"""A score that a run is told by: "metric", "label", "higher_is_better", "baselines", "oracles"."""

BestScore = dict[str, Any]
"""The best "value" of a metric, and the "step" of its validation."""

PluginEntry = dict[str, Any]
"""A plugin file that a run was made with: "path", "sha256", "components"."""

PointRecord = dict[str, Any]
"""`point.json`: "id", "settings", "labels", "command", "fingerprint", and with `init_from` "start", "into"."""

GridRecord = dict[str, Any]
"""`grid.json`: "name", "file", "metrics", "extra", "axes", "points" with "id", "labels", "stage", and "protocol"."""
