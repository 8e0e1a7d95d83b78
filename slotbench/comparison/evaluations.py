"""The newest test of a run, and its newest test of long clips."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from slotbench.comparison.records import ScoredBy
from slotbench.errors import FileError
from slotbench.io import numbers, read_json_object

__all__ = ["Evaluations", "read_evaluations"]

_DATED = re.compile(r"(?:test|lengths)-(\d{8}-\d{6})(?:-(\d{1,3}))?")


@dataclass
class Evaluations:
    """Scores of a run's newest tests.

    Attributes:
        scores: by metric.
        problems: files that cannot be read, in sentences.
    """

    scores: dict[str, float] = field(default_factory=dict)
    scored_by: dict[str, ScoredBy] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def read_evaluations(folder: Path) -> Evaluations:
    """The scores of the newest test and of the newest test of long clips in a run folder."""
    found = Evaluations()
    for kind in ("test", "lengths"):
        dated = [(match, path) for path in folder.glob(f"{kind}-*.json") if (match := _DATED.fullmatch(path.stem))]
        if not dated:
            continue
        # a second one in the same second has a number
        _, path = max(dated, key=lambda one: (one[0][1], int(one[0][2] or 1)))
        try:
            logged = numbers(read_json_object(path).get("metrics"))
            found.scores |= {name: value for name, value in logged.items() if name.startswith(f"{kind}/")}
        except FileError as error:
            found.problems.append(f"has a {kind} file that cannot be read: {error}")
    return found
