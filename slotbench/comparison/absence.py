"""Scores by the frames since something was last seen, as curves over that absence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from slotbench.metric_info import MetricInfo, is_reference, references_of

__all__ = ["ABSENCE", "baselines_over_absence", "over_absence"]

ABSENCE = "absence/"
"""How the names of these curves begin."""

_BINNED = re.compile(r"val/(?P<name>.+)/(?:seen|unseen_(?P<first>\d{1,6})(?:-\d{1,6}|\+))")

Points = Mapping[int, float]


def over_absence(summary: Mapping[str, float]) -> dict[str, Points]:
    """Last scores "val/NAME/unseen_25-48" as "absence/NAME": frames -> score.

    A point stands at the first number of frames of its bin, that of "val/NAME/seen" at 0.
    """
    found: dict[str, dict[int, float]] = {}
    for name, (curve, first) in _places(summary).items():
        found.setdefault(curve, {})[first] = summary[name]
    return {name: points for name, points in found.items() if len(points) > 1}


def baselines_over_absence(
    runs: Iterable[tuple[Mapping[str, float], Mapping[str, MetricInfo]]],
) -> dict[str, dict[str, Points]]:
    """What baselines and oracles score over the absence: curve -> name -> frames -> score.

    Only those that score the same in every run that has them: others were scored on other clips.

    Args:
        runs: last scores of each, and what its metrics are.
    """
    found: dict[str, dict[str, list[Points]]] = {}
    for summary, infos in runs:
        own: dict[tuple[str, str], dict[int, float]] = {}
        for name, (curve, first) in _places(summary).items():
            baselines, oracles = references_of(name, summary, infos)
            for by, value in (baselines | {f"oracle: {by}": value for by, value in oracles.items()}).items():
                own.setdefault((curve, by), {})[first] = value
        for (curve, baseline), points in own.items():
            found.setdefault(curve, {}).setdefault(baseline, []).append(points)
    return {
        curve: {name: all_of[0] for name, all_of in of_curve.items() if len(all_of[0]) > 1 and _agree(all_of)}
        for curve, of_curve in found.items()
    }


def _places(summary: Mapping[str, float]) -> dict[str, tuple[str, int]]:
    """The curve and the frames of every score by absence."""
    matches = {name: _BINNED.fullmatch(name) for name in summary if not is_reference(name)}
    return {name: (ABSENCE + match["name"], int(match["first"] or 0)) for name, match in matches.items() if match}


def _agree(all_of: Sequence[Points]) -> bool:
    return all(points == all_of[0] for points in all_of)
