"""The table of a comparison: runs that differ only by their seed are one row, with mean and spread of every score."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from slotbench.comparison.last_quarter import notes_on_last_quarter
from slotbench.comparison.metric_choice import choose_metrics, find_metric, scores
from slotbench.comparison.protocol import GridProtocol, protocol_notes, success
from slotbench.comparison.records import Comparison, ComparisonError, Metric, Row, RunRecord
from slotbench.comparison.rule_columns import apart_by_rules, rule_notes
from slotbench.comparison.settings import Keys, choose_keys, label, plain_value, resolve_key, telling_keys
from slotbench.comparison.statistics import is_best, summarise
from slotbench.comparison.table_notes import notes_on

__all__ = ["compare", "regrouped"]

Select = Literal["last", "best"]

_ENDED = ("finished", "diverged")


def compare(
    runs: Sequence[RunRecord],
    metrics: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    title: str = "",
    command: str = "",
    *,
    select: Select = "last",
    sort: str | None = None,
    everything: bool = False,
    apart: bool = False,
    notes: Sequence[str] = (),
    protocol: GridProtocol | None = None,
    of_grid: bool = False,
) -> Comparison:
    """The table of runs.

    A score is marked as the best of its column if it is apart from that of every other row: Welch's t-tests, two-sided,
    p < 0.05 divided by the number of other rows (Bonferroni), at least two runs in every row.

    Scores of masks that were made by different rules are columns of their own, and a note says which rules differ.

    Of a run that has diverged, scores that are no finite numbers are left out, with a note.

    Args:
        runs: at least one.
        metrics: columns, names or patterns; None for the headlines and the validation loss.
        keys: settings that make a row, in place of all that differ but the seed; runs are averaged over the others.
        title: what is compared.
        command: the command line that makes this comparison again.
        select: "last" takes each run's newest values; "best" those of the validation at which the run was best in the
            first column.
        sort: metric that sorts, and becomes the first column.
        everything: every setting that differs makes a row and is a column, those of the execution too.
        apart: every run is a row of its own, and its seed a column.
        notes: what is known already, such as runs that could not be read.
        protocol: of the grid whose runs these are; what was chosen for each row becomes a column.
        of_grid: the runs are those of a study, and a note says which rows still improved at the end.

    Raises:
        ComparisonError: there are no runs.
        UnknownNameError: no run has the metric, or the setting.
    """
    if not runs:
        raise ComparisonError("there are no runs to compare")
    runs = apart_by_rules(runs)
    columns, about = choose_metrics(runs, [*([find_metric(sort, runs)] if sort else []), *(metrics or [])] or None)
    if sort and not metrics:
        # --sort alone moves a column to the front
        every, about = choose_metrics(runs, None)
        columns = [*columns, *(metric for metric in every if metric.name != columns[0].name)]
    if not apart:
        runs, repeated = _without_repeated(runs)
        notes = [*notes, *repeated]
    chosen = choose_keys(runs, everything=everything)
    if keys:
        shown = [resolve_key(key, runs) for key in keys]
        chosen = Keys(shown, shown, [key for key in chosen.seeds if key not in shown], are_given=True)
    if protocol is not None and protocol.key not in chosen.shown:
        chosen = replace(chosen, shown=[*chosen.shown, protocol.key])
    if apart:
        seeds = [key for key in chosen.seeds if any(run.settings.get(key) is not None for run in runs)]
        chosen = replace(chosen, shown=[*chosen.shown, *seeds])
    taken = {run.id: scores(run, columns, select) for run in runs}
    groups = [[run] for run in runs] if apart else _group(runs, chosen.grouping)
    names = telling_keys([group[0].settings for group in groups], chosen.shown)
    rows = [_row(group, chosen.shown, names, columns, taken) for group in groups]
    rows = _mark_best(_sorted(_named(rows), columns), columns)
    if columns:
        rows = [
            row
            if columns[0].rules and columns[0].name not in row.cells
            # it cannot beat what it is not scored by
            else replace(row, success=success(row, columns[0], taken))
            for row in rows
        ]
    known = protocol_notes(protocol, columns[0] if columns else None) if protocol is not None else []
    if of_grid and columns:
        known += notes_on_last_quarter(rows, columns[0])
    return Comparison(
        title=title,
        keys=chosen.shown,
        metrics=columns,
        rows=rows,
        notes=[*known, *notes, *rule_notes(runs, columns), *notes_on(rows, chosen, columns), *about],
        command=command,
        has_protocol=protocol is not None,
    )


def regrouped(comparison: Comparison, key: str) -> list[Row]:
    """The rows of a comparison put together by one setting alone: runs are averaged over all others.

    Args:
        comparison: whose rows; those without a configuration stay as they are.
        key: one of its keys.
    """
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in comparison.rows:
        same = ("setting", plain_value(row.settings.get(key))) if row.settings else ("row", row.label)
        groups.setdefault(same, []).append(row)
    rows = [_together(group, key) if group[0].settings else group[0] for group in groups.values()]
    return _mark_best(_sorted(_named(rows), comparison.metrics), comparison.metrics)


def _together(rows: Sequence[Row], key: str) -> Row:
    """One row of the runs of several that agree in a setting."""
    runs = [run for row in rows for run in row.runs]
    settings = {key: rows[0].settings[key]} if key in rows[0].settings else {}
    values: dict[str, list[float]] = {}
    for row in rows:
        for name, cell in row.cells.items():
            values.setdefault(name, []).extend(cell.values)
    successes = [row.success for row in rows if row.success is not None]
    return Row(
        label=label(settings, [key]) or f"no {key.rpartition('.')[2]}",
        settings=settings,
        runs=runs,
        cells={name: summarise(scores) for name, scores in values.items()},
        parameters=_parameters(runs),
        seconds_per_step=_median([run.info.get("seconds_per_step") for run in runs]),
        unfinished=sum(row.unfinished for row in rows),
        diverged=sum(row.diverged for row in rows),
        steps=_steps(runs),
        seconds=_median([run.info.get("seconds") for run in runs if run.state == "finished"]),
        success=(sum(won for won, _ in successes), sum(of for _, of in successes)) if successes else None,
    )


def _without_repeated(runs: Sequence[RunRecord]) -> tuple[Sequence[RunRecord], list[str]]:
    """Leaves out runs that have not finished where the same run, seed included, has been made again and finished."""
    keys = choose_keys(runs)
    left_out = set()
    for same in _group(runs, [*keys.grouping, *keys.seeds]):
        # that a run has diverged is a result, which no second try takes back
        states = [run.state in _ENDED for run in same]
        if any(run.state == "finished" for run in same):
            left_out |= {run.id for run, ended in zip(same, states, strict=True) if not ended}
    note = "left out, because the same configuration and seed has finished in another run"
    told = [f"{run.name} {run.id} ({run.state})" for run in runs if run.id in left_out]
    return [run for run in runs if run.id not in left_out], [f"{note}: {', '.join(told)}"] if told else []


def _group(runs: Sequence[RunRecord], keys: Sequence[str]) -> list[list[RunRecord]]:
    groups: dict[tuple[str, ...], list[RunRecord]] = {}
    for run in runs:
        # a run without a configuration belongs to no group
        same = tuple(plain_value(run.settings.get(key)) for key in keys) if run.settings else ("run", run.id)
        groups.setdefault(same, []).append(run)
    return list(groups.values())


def _row(
    runs: list[RunRecord],
    keys: Sequence[str],
    names: Sequence[str],
    columns: Sequence[Metric],
    taken: Mapping[str, Mapping[str, float]],
) -> Row:
    runs = sorted(runs, key=_seed)
    given = {
        metric.name: [
            value
            for run in runs
            if (value := taken[run.id].get(metric.name)) is not None
            and (run.state != "diverged" or math.isfinite(value))
        ]
        for metric in columns
    }
    return Row(
        label=label(runs[0].settings, names),
        settings={key: runs[0].settings[key] for key in keys if runs[0].settings.get(key) is not None},
        runs=runs,
        cells={name: summarise(values) for name, values in given.items() if values},
        parameters=_parameters(runs),
        seconds_per_step=_median([run.info.get("seconds_per_step") for run in runs]),
        unfinished=sum(run.state != "finished" for run in runs),
        diverged=sum(run.state == "diverged" for run in runs),
        steps=_steps(runs),
        seconds=_median([run.info.get("seconds") for run in runs if run.state == "finished"]),
    )


def _seed(run: RunRecord) -> tuple[int, str]:
    seed = run.settings.get("seed_everything")
    return (seed, run.id) if isinstance(seed, int) else (0, run.id)


def _parameters(runs: Sequence[RunRecord]) -> int | None:
    """The number that all of them have that say it; None if they differ."""
    found = {run.info["parameters"].get("total") for run in runs if "parameters" in run.info}
    return found.pop() if len(found) == 1 else None


def _steps(runs: Sequence[RunRecord]) -> int | None:
    found = {run.info.get("step") for run in runs if run.state == "finished"}
    return found.pop() if len(found) == 1 else None


def _median(found: Sequence[float | None]) -> float | None:
    numbers = [float(value) for value in found if value is not None]
    return statistics.median(numbers) if numbers else None


def _named(rows: list[Row]) -> list[Row]:
    """Rows with a label each of their own."""
    named: list[Row] = []
    taken: dict[str, int] = {}
    for row in rows:
        text = row.label or _name(row)
        taken[text] = taken.get(text, 0) + 1
        named.append(replace(row, label=text if taken[text] == 1 else f"{text} ({taken[text]})"))
    return named


def _name(row: Row) -> str:
    names = {run.name for run in row.runs}
    core = row.runs[0].settings.get("model.core")
    return names.pop() if len(names) == 1 or core is None else str(core)


def _sorted(rows: list[Row], columns: Sequence[Metric]) -> list[Row]:
    if not columns or columns[0].higher_is_better is None:
        return rows
    sign = -1 if columns[0].higher_is_better else 1

    def place(row: Row) -> tuple[bool, float]:
        cell = row.cells.get(columns[0].name)
        # what has no score, or one that is no number, comes last
        return (True, 0.0) if cell is None or math.isnan(cell.mean) else (False, sign * cell.mean)

    return sorted(rows, key=place)


def _mark_best(rows: list[Row], columns: Sequence[Metric]) -> list[Row]:
    best: dict[int, set[str]] = {}
    for metric in columns:
        ranked = [(row.cells[metric.name].mean, index) for index, row in enumerate(rows) if metric.name in row.cells]
        ranked = [item for item in ranked if not math.isnan(item[0])]
        if metric.higher_is_better is None or len(ranked) < 2:
            continue
        ranked.sort(reverse=metric.higher_is_better)
        cells = [rows[index].cells[metric.name] for _, index in ranked]
        if is_best(cells[0], cells[1:]):
            best.setdefault(ranked[0][1], set()).add(metric.name)
    return [
        replace(row, cells={n: replace(cell, is_best=n in best.get(i, ())) for n, cell in row.cells.items()})
        for i, row in enumerate(rows)
    ]
