"""Columns of one rule: scores of one name that were made by different rules are different scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from slotbench.comparison.records import RULES, Curve, Metric, RunRecord
from slotbench.runs.run_info import Headline

__all__ = ["apart_by_rules", "rule_notes"]

_UNKNOWN = "rules unknown"


def apart_by_rules(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """The runs with every metric under a name of its own for each set of rules: "val/fg_ari/video (6 frames)".

    Where all runs that say it have the same rules, the metric keeps its name. Runs without a record are then among
    them; where there are several sets of rules, they have a name of their own, because theirs may be any.

    Args:
        runs: of a comparison.
    """
    names: list[dict[str, str]] = [{} for _ in runs]
    known = dict.fromkeys(metric for run in runs for metric in run.scored_by)
    for metric in known:
        having = [(place, run) for place, run in enumerate(runs) if metric in run.summary]
        rules = [run.scored_by[metric].rules if metric in run.scored_by else None for _, run in having]
        sets = list({tuple(sorted(one.items())): one for one in rules if one is not None}.values())
        if len(sets) < 2:
            continue
        for (place, _), one in zip(having, rules, strict=True):
            names[place][metric] = f"{metric}{RULES}{_in_words(one, sets)})"
    return [_renamed(run, own) if own else run for run, own in zip(runs, names, strict=True)]


def rule_notes(runs: Sequence[RunRecord], columns: Sequence[Metric]) -> list[str]:
    """Which columns are of different rules, in which rows' rules are unknown, and which are of different clips."""
    apart: dict[str, list[Metric]] = {}
    for metric in columns:
        if metric.rules:
            apart.setdefault(metric.logged, []).append(metric)
    told: dict[str, list[str]] = {}
    for logged, metrics in apart.items():
        told.setdefault(" and ".join(f"of {metric.rules}" for metric in metrics), []).append(logged)
    notes = [f"{_listed(names)} {words} are different scores, in columns of their own" for words, names in told.items()]
    without: list[str] = []
    clips: dict[str, list[str]] = {}
    for metric in columns:
        having = [run for run in runs if metric.name in run.summary]
        recorded = [run for run in having if metric.name in run.scored_by]
        scored_by = [run.scored_by[metric.name] for run in recorded]
        if 0 < len(scored_by) < len(having):
            without.append(f"{metric.name} ({len(having) - len(scored_by)} of {len(having)} runs)")
        if len({one.clips for one in scored_by if one.clips is not None}) > 1:
            clips.setdefault(_clips_in_words(recorded, metric.name), []).append(metric.name)
    if without:
        notes.append(f"no evaluation record says by which rules these scores are: {_listed(without)}")
    notes += [f"{_listed(names)}: not all runs are scored on the same clips: {words}" for words, names in clips.items()]
    return notes


def _clips_in_words(runs: Sequence[RunRecord], metric: str) -> str:
    """How many runs are scored on which clips; of clips that read alike, a run of each, by which to look them up."""
    groups: dict[tuple[str | None, str], list[str]] = {}
    for run in runs:
        by = run.scored_by[metric]
        groups.setdefault((by.clips, by.said_of_clips), []).append(run.id)
    alike = Counter(said for _, said in groups)
    words = []
    for (_, said), ids in groups.items():
        count, example = ("1 run", ids[0]) if len(ids) == 1 else (f"{len(ids)} runs", f"such as {ids[0]}")
        words.append(f"{said} ({count}, {example})" if alike[said] > 1 else f"{said} ({count})")
    return "; ".join(words)


def _in_words(rules: Mapping[str, str] | None, sets: Sequence[Mapping[str, str]]) -> str:
    """The rules that are not the same in all sets; "frames" are those of a video."""
    if rules is None:
        return _UNKNOWN
    names = list(dict.fromkeys(name for one in sets for name in one))
    differing = {name: rules.get(name, "unknown") for name in names if len({one.get(name) for one in sets}) > 1}
    return ", ".join(f"{value} frames" if name == "frames" else f"{name} {value}" for name, value in differing.items())


def _renamed(run: RunRecord, names: Mapping[str, str]) -> RunRecord:
    def own(name: str) -> str:
        return names.get(name, name)

    headlines: list[Headline] = [
        {**item, "metric": own(item["metric"]), "label": _labelled(item, names)} if item["metric"] in names else item
        for item in run.info.get("headlines", ())
    ]
    return replace(
        run,
        summary={own(name): value for name, value in run.summary.items()},
        best={own(name): value for name, value in run.best.items()},
        scored_by={own(name): value for name, value in run.scored_by.items()},
        info={**run.info, "headlines": headlines},
        curves=partial(_renamed_curves, run.curves, dict(names)),
    )


def _labelled(headline: Headline, names: Mapping[str, str]) -> str:
    metric = headline["metric"]
    return f"{headline.get('label') or metric}{names[metric].removeprefix(metric)}"


def _renamed_curves(curves: Any, names: Mapping[str, str], limit: int) -> dict[str, Curve]:
    return {names.get(name, name): curve for name, curve in curves(limit).items()}


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
