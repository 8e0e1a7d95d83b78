"""Scores by the frames since something was last seen, as curves over that absence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

__all__ = ["ABSENCE", "baselines_over_absence", "over_absence"]

ABSENCE = "absence/"
"""How the names of these curves begin."""

_BIN = r"(?:seen|unseen_(?P<first>\d{1,6})(?:-\d{1,6}|\+))"
_BINNED = re.compile(rf"val/(?P<name>.+)/{_BIN}")
_BASELINE = re.compile(rf"val/baseline/(?P<name>.+)/{_BIN}/(?P<baseline>[^/]+)")

Points = Mapping[int, float]


def over_absence(summary: Mapping[str, float]) -> dict[str, Points]:
    """Last scores "val/NAME/unseen_25-48" as "absence/NAME": frames -> score.

    A point stands at the first number of frames of its bin, that of "val/NAME/seen" at 0.
    """
    found: dict[str, dict[int, float]] = {}
    for name, value in summary.items():
        if match := _BINNED.fullmatch(name):
            found.setdefault(ABSENCE + match["name"], {})[int(match["first"] or 0)] = value
    return {name: points for name, points in found.items() if len(points) > 1}


def baselines_over_absence(summaries: Iterable[Mapping[str, float]]) -> dict[str, dict[str, Points]]:
    """What baselines score over the absence: curve -> baseline -> frames -> score.

    Only those that score the same in every run that has them: others were scored on other clips.
    """
    found: dict[str, dict[str, list[Points]]] = {}
    for summary in summaries:
        own: dict[tuple[str, str], dict[int, float]] = {}
        for name, value in summary.items():
            if match := _BASELINE.fullmatch(name):
                curve = own.setdefault((ABSENCE + match["name"], match["baseline"]), {})
                curve[int(match["first"] or 0)] = value
        for (curve_name, baseline), points in own.items():
            found.setdefault(curve_name, {}).setdefault(baseline, []).append(points)
    return {
        curve: {name: all_of[0] for name, all_of in of_curve.items() if len(all_of[0]) > 1 and _agree(all_of)}
        for curve, of_curve in found.items()
    }


def _agree(all_of: Sequence[Points]) -> bool:
    return all(points == all_of[0] for points in all_of)
