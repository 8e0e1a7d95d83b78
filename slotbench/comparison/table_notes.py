"""Notes on a table, in sentences: settings that differ within rows, runs that are not finished, seeds that differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from slotbench.comparison.records import Metric, Row, RunRecord
from slotbench.comparison.settings import Keys, choose_keys, plain_value, values_of

__all__ = ["notes_on"]

_MANY = 6


def notes_on(rows: Sequence[Row], keys: Keys, columns: Sequence[Metric]) -> list[str]:
    """Sentences about a table, the weightiest first."""
    runs = [run for row in rows for run in row.runs]
    return [
        *_diverged(rows),
        *_unfinished(rows, columns),
        *(f"{run.name} ({run.source}) {run.info['problem']}" for run in runs if run.info.get("problem")),
        *_within_rows(rows, keys),
        *_seeds(rows, keys),
        *_missing_scores(rows, columns),
        *_folded(runs, keys),
        *_execution(runs, keys),
    ]


def _unfinished(rows: Sequence[Row], columns: Sequence[Metric]) -> list[str]:
    notes = []
    for row in rows:
        for run in row.runs:
            if run.state in ("finished", "diverged"):
                continue
            step, total = run.info.get("step"), run.info.get("total_steps")
            where = f" at step {step}" if step is not None else ""
            where += f" of {total}" if where and total else ""
            has_scores = any(metric.name in run.summary for metric in columns)
            scores = "its scores are of its last validation" if has_scores else "it has no validation yet"
            error = f" ({run.info['error']})" if run.state == "failed" and run.info.get("error") else ""
            notes.append(f"{row.label}: {run.name} {run.id} is {run.state}{where}{error}; {scores}")
    return _short(notes, "more runs are not finished")


def _diverged(rows: Sequence[Row]) -> list[str]:
    notes = []
    for row in rows:
        if not row.diverged:
            continue
        steps = [run.info.get("diverged_at") for run in row.runs if run.state == "diverged"]
        at = f" (at step {', '.join(map(str, steps))})" if None not in steps else ""
        notes.append(
            f"{row.label}: {row.diverged} of {len(row.runs)} seeds diverged{at}; their scores are of the last "
            "validation before, and those that are no finite numbers are left out of the means"
        )
    return _short(notes, "more rows have seeds that diverged")


def _within_rows(rows: Sequence[Row], keys: Keys) -> list[str]:
    """Settings, other than the seed, that are not the same within a row: only where the user has chosen the rows."""
    if not keys.are_given:
        return []
    varying: dict[str, list[RunRecord]] = {}
    for row in rows:
        within = choose_keys(row.runs)
        for key in within.grouping:
            if key not in keys.seeds and key not in keys.shown:
                varying.setdefault(key, []).extend(row.runs)
    told = [f"{key} ({_values(key, runs)})" for key, runs in varying.items()]
    return [f"averaged over, besides the seed: {', '.join(_short(told, 'more'))}"] if told else []


def _seeds(rows: Sequence[Row], keys: Keys) -> list[str]:
    notes = []
    sets: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        seeds = [plain_value(run.settings.get("seed_everything")) for run in row.runs if run.settings]
        if "seed_everything" not in keys.shown:
            sets.setdefault(tuple(sorted(set(seeds))), []).append(row.label)
        twice = [f"{seed} ({count} runs)" for seed, count in Counter(seeds).items() if count > 1]
        # chosen rows hold several runs of a seed by design
        if twice and not keys.are_given:
            notes.append(f"{row.label}: the same configuration and seed more than once: seed {', '.join(twice)}")
    if len(sets) > 1:
        told = [f"{', '.join(labels)}: {', '.join(seeds) or 'unknown'}" for seeds, labels in sets.items()]
        notes.append(f"rows have different seeds: {'; '.join(_short(told, 'more'))}")
    return notes


def _missing_scores(rows: Sequence[Row], columns: Sequence[Metric]) -> list[str]:
    """One sentence for all scores that as many runs lack, and for all rows that lack the same ones."""
    lacking: dict[tuple[int, int, tuple[str, ...]], list[str]] = {}
    for row in rows:
        scores: dict[int, list[str]] = {}
        for metric in columns:
            have = len(row.cells[metric.name].values) if metric.name in row.cells else 0
            if 0 < have < len(row.runs):
                scores.setdefault(have, []).append(metric.name)
        for have, names in scores.items():
            lacking.setdefault((have, len(row.runs), tuple(names)), []).append(row.label)
    notes = [
        f"{', '.join(_short(labels, 'more'))}: {have} of {total} runs have {', '.join(_short(list(names), 'more'))}"
        for (have, total, names), labels in lacking.items()
    ]
    return _short(notes, "more such notes")


def _folded(runs: Sequence[RunRecord], keys: Keys) -> list[str]:
    """Arguments that several classes have, with different values: they differ together with the class."""
    notes = []
    for component, arguments in keys.folded.items():
        shared = []
        for key in arguments:
            present = [run.settings for run in runs if run.settings.get(key) is not None]
            classes = values_of(component, present)
            if len(classes) > 1 and len(values_of(key, present)) > 1:
                shared.append(f"{key.removeprefix(component + '.')} ({_values(key, runs, absent=False)})")
        if shared:
            notes.append(f"with {component} differ: {', '.join(_short(shared, 'more'))}")
    return notes


def _execution(runs: Sequence[RunRecord], keys: Keys) -> list[str]:
    told = [f"{key} ({_values(key, runs)})" for key in keys.execution]
    return [f"not counted as differences: {', '.join(_short(told, 'more'))}"] if told else []


def _values(key: str, runs: Sequence[RunRecord], *, absent: bool = True) -> str:
    settings = [run.settings for run in runs if run.settings and (absent or run.settings.get(key) is not None)]
    values = values_of(key, settings)
    if all(isinstance(value, int | float) for value in values.values()):
        values = dict(sorted(values.items(), key=lambda item: item[1]))
    return ", ".join(_short(list(values), "more"))


def _short(items: list[str], rest: str) -> list[str]:
    return items if len(items) <= _MANY else [*items[:_MANY], f"{len(items) - _MANY} {rest}"]
