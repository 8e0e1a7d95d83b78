"""The table of a comparison: runs that differ only by their seed are one row, with mean and spread of every score."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from slotbench.comparison.metrics import Column, choose_columns, find_metric, scores_of
from slotbench.comparison.notes import notes_on
from slotbench.comparison.runs import ComparisonError, Runs, gain_of_last_quarter
from slotbench.comparison.settings import SEED, Keys, choose_keys, label, resolve_key
from slotbench.comparison.statistics import best_of, interval

__all__ = ["Cell", "Comparison", "Row", "compare"]


@dataclass(frozen=True)
class Cell:
    """A metric over the seeds of one row.

    Attributes:
        values: one per run that has it, by the run's id.
        is_best: the best of its column, and better than every other row of it, corrected for their number.
    """

    values: Mapping[str, float]
    is_best: bool = False

    @property
    def mean(self) -> float:
        """Over the runs."""
        return float(np.mean([*self.values.values()]))

    @property
    def std(self) -> float | None:
        """Standard deviation with n - 1; None for a single run."""
        values = [*self.values.values()]
        if len(values) < 2:
            return None
        return 0.0 if len({*values}) == 1 else float(np.std(values, ddof=1))

    @property
    def interval(self) -> tuple[float, float]:
        """Student's 95 % interval of the mean."""
        return interval([*self.values.values()])


@dataclass(frozen=True)
class Row:
    """Runs that differ in nothing but their seed.

    Attributes:
        label: the row's settings in a few words, unique.
        settings: values of the comparison's keys.
        runs: their ids.
        states: of each run.
        cells: scores by the metric's name.
        parameters: trainable ones; None if unknown, or not the same.
        seconds_per_step: median over the runs.
        success: how many seeds beat the best baseline of the first column, and of how many; of grids with a protocol.
    """

    label: str
    settings: Mapping[str, str]
    runs: Sequence[str]
    states: Sequence[str]
    cells: Mapping[str, Cell]
    parameters: int | None = None
    seconds_per_step: float | None = None
    success: tuple[int, int] | None = None

    @property
    def unfinished(self) -> int:
        """Runs that have not finished, those that have diverged among them."""
        return sum(state != "finished" for state in self.states)


@dataclass(frozen=True)
class Comparison:
    """A table of runs, and what is needed to look further.

    Attributes:
        title: what is compared.
        command: the command line that makes this comparison again.
        runs: in it.
        keys: settings that differ between rows, most telling first.
        columns: the first one the most telling.
        rows: sorted by the first column, best first, where its direction is known.
        notes: what a reader has to know.
        apart: every run is a row of its own.
    """

    title: str
    command: str
    runs: Runs
    keys: Sequence[str]
    columns: Sequence[Column]
    rows: Sequence[Row]
    notes: Sequence[str] = ()
    apart: bool = False


def compare(
    runs: Runs,
    metrics: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    title: str = "",
    command: str = "",
    *,
    select: str = "last",
    sort: str | None = None,
    everything: bool = False,
    apart: bool = False,
) -> Comparison:
    """The table of runs.

    Of a run that has diverged, scores that are no finite numbers are left out.

    Args:
        runs: at least one.
        metrics: columns, names or patterns; None for those of the grid, or the headlines of the runs and their loss.
        keys: settings that make a row, in place of all that differ but the seed; runs are averaged over the others.
        title: what is compared.
        command: the command line.
        select: "last" takes each run's newest scores; "best" those of its best validation by the first column.
        sort: metric that sorts, and becomes the first column.
        everything: every setting that differs makes a row and is a column.
        apart: every run is a row of its own, and its seed a column.

    Raises:
        UnknownNameError: no run has the metric, or the setting.
    """
    if not len(runs):
        raise ComparisonError("there are no runs to compare")
    wanted = list(metrics or runs.metrics)
    if not metrics:
        # a grid's columns need not be those of every part of it
        wanted = [name for name in wanted if name in runs.scores or f"val/{name}" in runs.scores] or wanted
    columns, about = choose_columns(runs, wanted or None)
    if sort:
        first = find_metric(sort, runs)
        sorting, _ = choose_columns(runs, [first])
        columns = [column for column in columns if column.name == first] or sorting
        columns += [column for column in choose_columns(runs, wanted or None)[0] if column.name != first]
    notes = list(runs.notes)
    if not apart:
        runs, repeated = _without_repeated(runs)
        notes += repeated
    chosen = choose_keys(runs.settings, everything=everything)
    if keys:
        shown = [resolve_key(key, runs.settings) for key in keys]
        chosen = Keys(shown, shown, [key for key in chosen.seeds if key not in shown], are_given=True)
    if runs.protocol is not None and runs.protocol.key in runs.settings and runs.protocol.key not in chosen.shown:
        chosen = replace(chosen, shown=[*chosen.shown, runs.protocol.key])
    if apart:
        chosen = replace(chosen, shown=[*chosen.shown, *(key for key in chosen.seeds if key in runs.settings)])
    scores = scores_of(runs, columns, select)
    diverged = runs.facts["state"] == "diverged"
    scores = scores.mask(np.isinf(scores).mul(diverged, axis=0))
    groups = [[id] for id in runs.runs] if apart else _groups(runs.settings, chosen.grouping)
    rows = _with_best(_named([_row(runs, ids, chosen, scores, columns) for ids in groups], runs), columns)
    if runs.is_grid and columns:
        _add_gains(runs, columns[0])
    return Comparison(
        title or runs.title,
        command,
        runs,
        chosen.shown,
        columns,
        rows,
        [*notes, *about, *notes_on(rows, runs, chosen, columns)],
        apart,
    )


def _without_repeated(runs: Runs) -> tuple[Runs, list[str]]:
    """Leaves out runs that have not finished where the same run, seed included, has been made again and finished."""
    keys = choose_keys(runs.settings)
    # that a run has diverged is a result, which no second try takes back
    ended = runs.facts["state"].isin(["finished", "diverged"])
    left_out: list[str] = []
    for ids in _groups(runs.settings, [*keys.grouping, *(key for key in keys.seeds if key in runs.settings)]):
        if (runs.facts["state"][ids] == "finished").any():
            left_out += [id for id in ids if not ended[id]]
    if not left_out:
        return runs, []
    told = ", ".join(f"{runs.facts['name'][id]} {id} ({runs.facts['state'][id]})" for id in left_out)
    note = f"left out, because the same configuration and seed has finished in another run: {told}"
    return runs.chosen(~runs.facts.index.isin(left_out)), [note]


def _groups(settings: pd.DataFrame, keys: Sequence[str]) -> list[list[str]]:
    """Ids of runs that agree in these settings; a run without a configuration belongs to no group."""
    bare = settings.index[settings.isna().all(axis=1)]
    known = settings.drop(index=bare).fillna("–")
    grouped = (group for _, group in known.groupby(list(keys), sort=False)) if keys else [known]
    return [*(list(group.index) for group in grouped if len(group)), *([id] for id in bare)]


def _row(runs: Runs, ids: Sequence[str], keys: Keys, scores: pd.DataFrame, columns: Sequence[Column]) -> Row:
    settings = runs.settings.loc[ids[0]]
    seeds = runs.settings.loc[ids, SEED] if SEED in runs.settings else pd.Series("", index=list(ids))
    ids = list(pd.to_numeric(seeds, errors="coerce").sort_values(kind="stable").index)
    facts = runs.facts.loc[ids]
    cells = {name: Cell(scores.loc[ids, name].dropna().to_dict()) for name in scores}
    parameters = facts["parameters"].dropna().unique()
    seconds = facts["seconds_per_step"].dropna()
    return Row(
        label=label(settings, keys.shown),
        settings={key: settings[key] for key in keys.shown if isinstance(settings.get(key), str)},
        runs=ids,
        states=list(facts["state"]),
        cells={name: cell for name, cell in cells.items() if cell.values},
        parameters=int(parameters[0]) if len(parameters) == 1 else None,
        seconds_per_step=float(seconds.median()) if len(seconds) else None,
        success=_success(facts["state"], scores, columns[0]) if runs.protocol is not None and columns else None,
    )


def _success(states: pd.Series, scores: pd.DataFrame, column: Column) -> tuple[int, int] | None:
    best = column.best_baseline
    if best is None:
        return None
    values = scores.loc[states.index, column.name][states == "finished"]
    better = values > best[1] if column.higher_is_better else values < best[1]
    return int(better.sum()), int(states.isin(["finished", "diverged"]).sum())


def _named(rows: Sequence[Row], runs: Runs) -> list[Row]:
    """Rows with a label each of their own."""
    named: list[Row] = []
    taken: dict[str, int] = {}
    for row in rows:
        names = {runs.facts["name"][id] for id in row.runs}
        core = runs.runs[row.runs[0]].settings.get("model.core")
        text = row.label or (str(names.pop()) if len(names) == 1 or core is None else core)
        taken[text] = taken.get(text, 0) + 1
        named.append(replace(row, label=text if taken[text] == 1 else f"{text} ({taken[text]})"))
    return named


def _with_best(rows: Sequence[Row], columns: Sequence[Column]) -> list[Row]:
    """Rows sorted by the first column, with the best of each column marked."""
    rows = list(rows)
    if columns and columns[0].higher_is_better is not None:
        sign = -1 if columns[0].higher_is_better else 1

        def place(row: Row) -> tuple[bool, float]:
            cell = row.cells.get(columns[0].name)
            return (True, 0.0) if cell is None or math.isnan(cell.mean) else (False, sign * cell.mean)

        rows.sort(key=place)
    for column in columns:
        if column.higher_is_better is not None:
            values = [[*row.cells[column.name].values.values()] if column.name in row.cells else [] for row in rows]
            best = best_of(values, column.higher_is_better)
            if best is not None:
                cells = rows[best].cells
                marked = replace(cells[column.name], is_best=True)
                rows[best] = replace(rows[best], cells={**cells, column.name: marked})
    return rows


def _add_gains(runs: Runs, column: Column) -> None:
    """The gain of each finished run in the last quarter of its training, where it is not known."""
    if column.higher_is_better is None or runs.facts["gain_in_last_quarter"].notna().any():
        return
    for id, run in runs.runs.items():
        curves = run.curves() if run.facts["state"] == "finished" else pd.DataFrame()
        if column.name in curves:
            curve = curves.set_index("step")[column.name]
            curve.index += 1  # a step is counted from 0
            runs.facts.loc[id, "gain_in_last_quarter"] = gain_of_last_quarter(curve, column.higher_is_better)
