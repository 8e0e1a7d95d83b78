"""The evaluation record: scores of masks as a file, with all that decides whether two of them may be compared.

It is written by `slotbench score` of anybody's masks, and by the validations and tests of a run for each kind of its
masks, and knows no model. Everything is plain JSON; `rules` has each rule by name, and two scores belong in one column
only where all rules are the same.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Required, TypedDict

from slotbench.files import dump_json, write_atomically

if TYPE_CHECKING:
    from slotbench.interfaces import MaskScores

__all__ = [
    "EvaluationRecord",
    "clip_list_hash",
    "differing_rules",
    "make_record",
    "mask_record",
    "record_file",
    "rules_of",
    "write_record",
]

# rules that records of earlier versions do not name, and what was in force there
_SINCE: dict[str, Any] = {"fit": "refuse", "uncovered": "background"}


class EvaluationRecord(TypedDict, total=False):
    """What a reader of a record may rely on; the rest is for people."""

    record: Required[Literal["slotbench evaluation"]]
    format: Required[Literal[1]]
    data: Required[dict[str, Any]]
    rules: Required[dict[str, Any]]
    clips: Required[dict[str, Any]]
    scores: Required[dict[str, Any]]
    step: Any


def record_file(folder: Path, evaluation: str, source: str) -> Path:
    """Where the record of one kind of masks is in a run folder.

    Args:
        folder: of the run.
        evaluation: its name, such as "test-20260131-120000", or "val" for the last validation of the training.
        source: whose masks, such as "decoder".
    """
    return folder / f"{evaluation}-{source}.json"


def clip_list_hash(names: Iterable[str]) -> str:
    """SHA-256 of the clips' names, sorted, each with a line break after it: the same clips give the same 64 digits."""
    text = "".join(f"{name}\n" for name in sorted(names))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def make_record(
    *,
    data: Mapping[str, Any],
    masks: Mapping[str, Any],
    rules: Mapping[str, Any],
    clips: Mapping[str, Any],
    frames: Mapping[str, Any],
    scores: Mapping[str, Any],
    baselines: Mapping[str, Any],
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A record of now, by this version.

    Args:
        data: "name", "version" and "split" of the data set, "unknown" where they are not given.
        masks: "source" of the masks, and what they are.
        rules: every rule in force, by name.
        clips: "scored" of "there", "hash" and "names".
        frames: "scored" frames, their "sizes", the "views" of several cameras, and how many are special.
        scores: by name, "mean", "low" and "high" of its interval, and "values" and "weights" of the clips.
        baselines: scores by the baseline's name.
        more: further entries.
    """
    return {
        "record": "slotbench evaluation",
        "format": 1,
        "slotbench": importlib.metadata.version("slotbench"),
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "data": dict(data),
        "masks": dict(masks),
        "rules": dict(rules),
        "clips": dict(clips),
        "frames": dict(frames),
        "scores": dict(scores),
        "baselines": dict(baselines),
        **(more or {}),
    }


def mask_record(
    found: MaskScores,
    names: Sequence[str],
    data: Mapping[str, Any],
    *,
    masks: Mapping[str, Any] | None = None,
    clips: Mapping[str, Any] | None = None,
    frames: Mapping[str, Any] | None = None,
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The record of one kind of masks.

    Args:
        found: the scores.
        names: of the clips, in the order of the scores.
        data: "name", "version" and "split" of the data set.
        masks: what they are, where they are not the soft masks of a model.
        clips: further entries about the clips, such as how many are "there".
        frames: further entries about the frames.
        more: further entries.
    """
    own = {"source": found.source, "kinds": {"soft masks": len(names)}, "segments": [found.slots, found.slots]}
    scored = {"scored": len(names), "there": len(names), "hash": clip_list_hash(names), "names": list(names)}
    return make_record(
        data=data,
        masks={**own, **(masks or {})},
        rules=found.rules,
        clips={**scored, **({"truth": found.truth} if found.truth else {}), **(clips or {})},
        frames={**found.frames, **(frames or {})},
        scores=found.scores,
        baselines=found.baselines,
        more=more,
    )


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Writes a record, whole or not at all."""
    write_atomically(path, dump_json(dict(record), indent=1))


def differing_rules(records: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The rules that are not the same in all records, and their values in the order of the records.

    Example:
        >>> differing_rules([{"rules": {"window": 6, "skip": 0}}, {"rules": {"window": None, "skip": 0}}])
        {'window': [6, None]}
    """
    rules = [_SINCE | record["rules"] for record in records]
    names = list(dict.fromkeys(name for one in rules for name in one))
    values = {name: [one.get(name) for one in rules] for name in names}
    return {name: given for name, given in values.items() if any(value != given[0] for value in given)}


def rules_of(record: Mapping[str, Any], score: str) -> dict[str, Any]:
    """The rules of one score of a record.

    Of a score of whole videos the "frames" of a video are one, by its lengths, and of clips that several cameras see
    the "views".

    Example:
        >>> record = {"rules": {"window": None}, "frames": {"lengths": {"24": 100}}}
        >>> rules_of(record, "miou/video")
        {'fit': 'refuse', 'uncovered': 'background', 'window': None, 'frames': ['24']}
        >>> "frames" in rules_of(record, "miou/frame")
        False
    """
    rules = _SINCE | record["rules"]
    frames = record.get("frames")
    lengths = frames.get("lengths") if isinstance(frames, Mapping) else None
    if isinstance(lengths, Mapping) and not score.endswith(("/frame", "/step")):
        rules["frames"] = sorted(map(str, lengths))
    views = frames.get("views") if isinstance(frames, Mapping) else None
    if isinstance(views, Mapping):
        rules["views"] = sorted(map(str, views))
    return rules
