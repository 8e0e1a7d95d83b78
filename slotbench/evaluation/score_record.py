"""The evaluation record of masks of files, and scores of earlier records that may stand beside new ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from slotbench.errors import UserError, lines
from slotbench.evaluation.file_scores import FileScores
from slotbench.files import number
from slotbench.metrics.clip_summary import Summary, scores_as_record
from slotbench.metrics.mask_rules import Rules
from slotbench.records import read_record
from slotbench.runs.evaluation_record import EvaluationRecord, clip_list_hash, differing_rules, mask_record
from slotbench.text import one_line

__all__ = ["read_earlier", "record_of"]

_MISSING_NAMES = 1000


def record_of(found: FileScores, data: Mapping[str, Any], source: str, masks: str) -> dict[str, Any]:
    """The record of an evaluation.

    Args:
        found: the scores.
        data: "name", "version" and "split", as the user has given them.
        source: what the masks are, as the user has given it: "decoder", "attention", ...
        masks: where they were.
    """
    matching = found.matching
    baselines = {name: scores_as_record(clips) for name, clips in found.baselines.items()}
    return mask_record(
        replace(found.masks.result(source), truth="", baselines=baselines),
        found.names,
        data,
        masks={"path": masks, "kinds": dict(found.clips_by("kind")), "segments": list(found.segments)},
        clips={
            "there": matching.there,
            "without_masks": matching.without_masks[:_MISSING_NAMES],
            "without_truth": matching.without_truth[:_MISSING_NAMES],
        },
        frames={
            "without_truth": found.left_out,
            "mask_sizes": {_by(size): count for size, count in found.clips_by("mask_size").items()},
            "cut": {f"{_by(part)} of {_by(whole)}": count for (whole, part), count in found.cut().items()},
            "tied_pixels": found.total("ties"),
            "uncovered_pixels": found.total("uncovered"),
            "pixels_whose_shares_do_not_sum_to_1": found.total("unequal"),
            "pixels": found.total("pixels"),
        },
    )


def read_earlier(paths: Sequence[Path], rules: Rules, names: Sequence[str]) -> dict[str, dict[str, Summary]]:
    """The scores of evaluation records, by the name of the file.

    Args:
        paths: the records.
        rules: of the new scores.
        names: of the clips of the new scores.

    Raises:
        UserError: a record was made by other rules, which are named, or of other clips.
        FileError: a file is damaged, or no record.
    """
    found = {}
    for path in paths:
        record = read_record(path, EvaluationRecord, advice="expected what slotbench score --out wrote")
        differing = differing_rules([{"rules": rules.as_record()}, record])
        if differing:
            rules_of_both = {
                one_line(name, 40): f"{_value(there)} in {path.name}, {_value(here)} here"
                for name, (here, there) in differing.items()
            }
            raise UserError(lines(f"{path} was scored by other rules: they cannot stand in one table", **rules_of_both))
        if record["clips"].get("hash") != clip_list_hash(names):
            raise UserError(
                f"{path} was scored on other clips ({_value(record['clips'].get('scored'))} there, {len(names)} here): "
                "they cannot stand in one table"
            )
        found[path.name] = {str(name): one for name, given in record["scores"].items() if (one := _summary(given))}
    return found


def _summary(given: Any) -> Summary | None:
    """A score of a record; None for any other value."""
    if not isinstance(given, Mapping):
        return None
    mean, beyond = number(given.get("mean")), given.get("longer_than")
    if isinstance(beyond, int):
        return Summary(float("inf"), None, None, beyond=beyond)
    return Summary(float(mean), None, None) if isinstance(mean, int | float) else None


def _value(value: Any) -> str:
    return "none" if value is None else one_line(value, 60)


def _by(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"
