"""The evaluation records in a run folder: by which rules, and of which clips, the scores of masks are."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from slotbench.comparison.records import ScoredBy
from slotbench.errors import FileError
from slotbench.files import own_file, read_json_object
from slotbench.records import numbers, read_record, real
from slotbench.runs.evaluation_record import EvaluationRecord, rules_of
from slotbench.text import one_line

__all__ = ["Evaluations", "read_evaluations"]

_RECORD = re.compile(r"(val|(?:test|lengths)-\d{8}-\d{6}(?:-\d{1,3})?)(?:-(\d{1,4}T))?-([A-Za-z]\w{0,39})\.json")
_DATED = re.compile(r"(test|lengths)-(\d{8}-\d{6})(?:-(\d{1,3}))?\.json")
_MOST_FILES, _MOST_RECORDS, _MOST_SCORES, _MOST_RULES, _LONGEST = 10_000, 64, 500, 60, 40


@dataclass
class Evaluations:
    """What the records of a run say.

    Attributes:
        scores: of the newest test, of the newest test of long clips, and those of the last validation that are in the
            records alone, by metric.
        scored_by: rules and clips by metric.
        problems: records that cannot be read, in sentences.
    """

    scores: dict[str, float] = field(default_factory=dict)
    scored_by: dict[str, ScoredBy] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def read_evaluations(folder: Path, step: Any = None) -> Evaluations:
    """The records of the last validation and of the newest tests.

    Args:
        folder: of the run.
        step: of the last validation; scores of a record of another step are left out.
    """
    found = Evaluations()
    names = _names(folder)
    wanted = {"val"}
    for kind in ("test", "lengths"):
        newest = max(
            (name for name in names if name.startswith(kind) and _DATED.fullmatch(name)), key=_time, default=""
        )
        if newest:
            wanted.add(newest.removesuffix(".json"))
            try:
                logged = read_json_object(own_file(folder, newest)).get("metrics")
                found.scores |= {name: value for name, value in numbers(logged).items() if name.startswith(f"{kind}/")}
            except FileError as error:
                found.problems.append(f"has a {kind} file that cannot be read: {error}")
    records = [(name, match) for name in names if (match := _RECORD.fullmatch(name)) and match[1] in wanted]
    for name, match in records[:_MOST_RECORDS]:
        try:
            kind = match[1].partition("-")[0]
            stage = f"{kind}/{match[2]}" if match[2] else kind
            _add(found, read_record(own_file(folder, name), EvaluationRecord), stage, match[3], step)
        except FileError as error:
            found.problems.append(f"has an evaluation record that cannot be read: {error}")
    return found


def _add(found: Evaluations, record: Mapping[str, Any], stage: str, source: str, step: Any) -> None:
    own = stage != "val" or record.get("step") == step
    clips = record["clips"].get("truth")
    for name, score in islice(record["scores"].items(), _MOST_SCORES):
        metric = one_line(f"{stage}/{name}/{source}", 3 * _LONGEST)
        given = islice(rules_of(record, name).items(), _MOST_RULES)
        rules = {one_line(rule, _LONGEST): _value(value) for rule, value in given}
        found.scored_by[metric] = ScoredBy(rules, _said_of(record), clips if isinstance(clips, str) else None)
        mean = real(score.get("mean")) if isinstance(score, Mapping) else None
        if own and mean is not None:
            found.scores.setdefault(metric, mean)


def _said_of(record: Mapping[str, Any]) -> str:
    """The clips in a few words."""
    data = record["data"]
    words = [one_line(str(data.get(name, "unknown")), _LONGEST) for name in ("name", "split")]
    return f"{_value(record['clips'].get('scored'))} clips of {words[0]}, {words[1]}"


def _value(value: Any) -> str:
    """A rule's value as one types it; of a list its parts."""
    if isinstance(value, list | tuple):
        return one_line(", ".join(str(item)[:_LONGEST] for item in value[:8]), _LONGEST) or "none"
    return "none" if value is None else one_line(str(value)[: 2 * _LONGEST], _LONGEST)


def _time(name: str) -> tuple[str, int]:
    """Order of files of one kind: a second one in the same second has a number."""
    match = _DATED.fullmatch(name)
    assert match is not None
    return match[2], int(match[3] or 1)


def _names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in islice(entries, _MOST_FILES) if entry.name.endswith(".json"))
    except OSError:
        return []
