"""What a reader of a table has to know, in sentences below it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from slotbench.comparison.settings import SEED, Keys, choose_keys

if TYPE_CHECKING:
    from slotbench.comparison.metrics import Column
    from slotbench.comparison.runs import Protocol, Runs
    from slotbench.comparison.table import Row

__all__ = ["SETTLED", "notes_on"]

SETTLED = 0.02
"""A training whose last quarter gains less has settled."""
_MANY = 6


def notes_on(rows: Sequence[Row], runs: Runs, keys: Keys, columns: Sequence[Column]) -> list[str]:
    """The sentences of a table."""
    notes = []
    if runs.protocol is not None:
        notes += _protocol(runs.protocol, columns)
    for id, (name, state, error) in runs.facts[["name", "state", "error"]].iterrows():
        if state not in ("finished", "diverged"):
            notes.append(f"not finished: {name} {id} ({state}{f': {error}' if isinstance(error, str) else ''})")
    notes = _short(notes, "more runs are not finished")
    for row in rows:
        if count := row.states.count("diverged"):
            steps = runs.facts.loc[list(row.runs), "diverged_at"].dropna()
            at = f" (at step {', '.join(f'{step:.0f}' for step in steps)})" if len(steps) else ""
            notes.append(
                f"{row.label}: {count} of {len(row.runs)} seeds diverged{at}; their scores are of the last validation "
                "before, and those that are no finite numbers are left out of the means"
            )
        for column in columns:
            have = len(row.cells[column.name].values) if column.name in row.cells else 0
            if 0 < have < len(row.runs):
                notes.append(f"{row.label}: {have} of {len(row.runs)} runs have {column.name}")
    return [
        *notes,
        *_seeds(rows, runs, keys),
        *_settings(runs, keys),
        *_gains(rows, runs, columns),
    ]


def _short(items: list[str], rest: str) -> list[str]:
    return items if len(items) <= _MANY else [*items[:_MANY], f"{len(items) - _MANY} {rest}"]


def _protocol(protocol: Protocol, columns: Sequence[Column]) -> list[str]:
    values, seeds = (", ".join(map(str, given)) for given in (protocol.values, protocol.seeds))
    notes = [
        f"{protocol.key} was chosen for each row from {values} by {protocol.metric}, with seed {seeds}, not reported"
    ]
    if columns and (best := columns[0].best_baseline):
        notes.append(f"success: seeds that beat the best baseline of {columns[0].name}, {best[0]} ({best[1]:.4g})")
    numbers = [value for value in protocol.values if isinstance(value, int | float)]
    for text, found in (
        (f"diverged at every {protocol.key}, and so in no row", lambda one: one.get("diverged") is True),
        (f"{protocol.key} is not chosen yet", lambda one: one.get("chosen") is None and not one.get("diverged")),
        (
            f"chosen at an end of the range: go on with grid run --axis {protocol.key}+=VALUE",
            lambda one: len(numbers) > 2 and one.get("chosen") in (min(numbers), max(numbers)),
        ),
    ):
        if named := [_variant(one) for one in protocol.variants if found(one)]:
            notes.append(f"{text}: {', '.join(named)}")
    return notes


def _variant(variant: object) -> str:
    assert isinstance(variant, dict)
    chosen = variant.get("chosen")
    return str(variant.get("label")) + (f" ({chosen})" if chosen is not None else "")


def _seeds(rows: Sequence[Row], runs: Runs, keys: Keys) -> list[str]:
    if SEED in keys.shown or SEED not in runs.settings:
        return []
    notes = []
    seeds = {row.label: runs.settings.loc[list(row.runs), SEED].dropna() for row in rows}
    if not keys.are_given:  # chosen rows hold several runs of a seed by design
        notes += [
            f"{label}: the same configuration and seed more than once: seed {', '.join(own[own.duplicated()].unique())}"
            for label, own in seeds.items()
            if own.duplicated().any()
        ]
    sets: dict[tuple[str, ...], list[str]] = {}
    for label, own in seeds.items():
        sets.setdefault(tuple(sorted(own.unique(), key=lambda seed: (len(seed), seed))), []).append(label)
    if len(sets) > 1:
        told = [f"{', '.join(labels)}: {', '.join(own) or 'unknown'}" for own, labels in sets.items()]
        notes.append(f"rows have different seeds: {'; '.join(_short(told, 'more'))}")
    return notes


def _settings(runs: Runs, keys: Keys) -> list[str]:
    """Arguments that differ together with a class, execution that differs, and what chosen rows average over."""
    notes = []
    shared = [key for key in keys.folded if runs.settings[key].nunique() > 1]
    if shared:
        notes.append(f"besides the columns differ: {_values(shared, runs)}")
    if keys.execution:
        notes.append(f"not counted as differences: {_values(keys.execution, runs)}")
    if keys.are_given:
        hidden = [key for key in choose_keys(runs.settings).shown if key not in keys.shown]
        if hidden:
            notes.append(f"averaged over, besides the seed: {_values(hidden, runs)}")
    return notes


def _values(keys: Iterable[str], runs: Runs) -> str:
    told = [f"{key} ({', '.join(_short(sorted(runs.settings[key].dropna().unique()), 'more'))})" for key in keys]
    return ", ".join(_short(told, "more"))


def _gains(rows: Sequence[Row], runs: Runs, columns: Sequence[Column]) -> list[str]:
    """Which rows of a study still improved at the end, by the median over their runs."""
    if not runs.is_grid or not columns:
        return []
    medians = {row.label: runs.facts.loc[list(row.runs), "gain_in_last_quarter"].astype(float).median() for row in rows}
    gains = {label: gain for label, gain in medians.items() if gain == gain}
    rule = f"{100 * SETTLED:.0f} % or more of {columns[0].name} in the last quarter of training"
    improving = [f"{label} ({100 * gain:.0f} %)" for label, gain in gains.items() if gain >= SETTLED]
    if not gains:
        return []
    if not improving:
        return [f"no row gains {rule}"]
    return [
        f"still improving at the end: {len(improving)} of {len(gains)} rows gain {rule}: "
        + "; ".join(_short(improving, "more"))
    ]
