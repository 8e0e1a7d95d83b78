"""The protocol of a grid in its comparison: what was chosen for each variant, and how often it beat the baselines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slotbench.comparison.records import Metric, Row
from slotbench.comparison.settings import plain_value
from slotbench.records import real
from slotbench.runs.grid_record import GridRecord

__all__ = ["GridProtocol", "best_baseline", "protocol_notes", "read_protocol", "success"]


@dataclass(frozen=True)
class GridProtocol:
    """A setting that was chosen for every variant on seeds that are not reported.

    Attributes:
        key: the setting.
        values: the candidates.
        seeds: on which it was chosen.
        metric: by which; where seeds are several, by its mean.
        variants: "label", "chosen", "values", "scores" and "diverged" of each variant.
        at: one value of some axes, at which it was chosen for all of their values.
        choosing: folders of the points that were run to choose, which are no rows.
    """

    key: str
    values: tuple[Any, ...]
    seeds: tuple[Any, ...]
    metric: str
    variants: tuple[Mapping[str, Any], ...]
    at: Mapping[str, Any] = field(default_factory=dict)
    choosing: frozenset[str] = frozenset()


def read_protocol(record: GridRecord) -> GridProtocol | None:
    """The protocol of a grid's record, `grid.json`; None if it has none, or none that can be read."""
    given = record.get("protocol")
    if given is None:
        return None
    seed = given.get("seed")
    return GridProtocol(
        key=given["choose"],
        values=tuple(given.get("values", ())),
        seeds=tuple(seed) if isinstance(seed, list) else (seed,),
        metric=given.get("by", ""),
        variants=tuple(given.get("variants", ())),
        at=given.get("at", {}),
        choosing=frozenset(point["id"] for point in record.get("points", ()) if point.get("stage") == "choose"),
    )


def best_baseline(metric: Metric) -> tuple[str, float] | None:
    """The best baseline; None without one, or where the direction of the metric is unknown."""
    finite = {name: value for name, value in metric.baselines.items() if math.isfinite(value)}
    if metric.higher_is_better is None or not finite:
        return None
    name = (max if metric.higher_is_better else min)(finite, key=finite.__getitem__)
    return name, finite[name]


def success(row: Row, metric: Metric, values: Mapping[str, Mapping[str, float]]) -> tuple[int, int] | None:
    """How many of a row's seeds are better than the best baseline, and of how many; None if there is no baseline.

    A seed that has diverged is none of the better ones; one that has not ended yet does not count.

    Args:
        row: runs that differ in their seed.
        metric: the score, and its baselines.
        values: the scores of each run, by its id.
    """
    best = best_baseline(metric)
    if best is None:
        return None
    ended = [run for run in row.runs if run.state in ("finished", "diverged")]
    scores = [values[run.id].get(metric.name) for run in ended if run.state == "finished"]
    numbers = [score for score in scores if score is not None and math.isfinite(score)]
    sign = 1 if metric.higher_is_better else -1
    return sum(sign * score > sign * best[1] for score in numbers), len(ended)


def protocol_notes(protocol: GridProtocol, metric: Metric | None) -> list[str]:
    """What a reader of the table has to know of the protocol, in sentences."""
    values = ", ".join(map(plain_value, protocol.values))
    at = " and ".join(f"{axis} {plain_value(value)}" for axis, value in protocol.at.items())
    rows = f"at {at}, for rows of other values too," if at else "for each row"
    seeds = ", ".join(map(plain_value, protocol.seeds))
    if len(protocol.seeds) > 1:
        how = f"by the mean of {protocol.metric}, of a run each with seeds {seeds}, which are not reported"
    else:
        how = f"by {protocol.metric}, of one run each with seed {seeds}, which is not reported"
    notes = [f"{protocol.key} was chosen {rows} from {values} {how}"]
    baseline = None if metric is None else best_baseline(metric)
    if metric is not None and baseline is not None:
        notes.append(f"success: seeds that beat the best baseline of {metric.name}, {baseline[0]} ({baseline[1]:.4g})")
    diverged = [str(variant.get("label")) for variant in protocol.variants if variant.get("diverged") is True]
    if diverged:
        notes.append(f"diverged at every {protocol.key}, and so in no row: {', '.join(diverged)}")
    waiting = [
        str(variant.get("label"))
        for variant in protocol.variants
        if variant.get("chosen") is None and variant.get("diverged") is not True
    ]
    if waiting:
        notes.append(f"{protocol.key} is not chosen yet: {', '.join(waiting)}")
    edges = [
        f"{variant.get('label')} ({plain_value(variant.get('chosen'))})"
        for variant in protocol.variants
        if _at_an_edge(variant, protocol.values)
    ]
    if edges:
        notes.append(f"chosen at an end of the range, so that the best may lie beyond it: {', '.join(edges)}")
    return notes


def _at_an_edge(variant: Mapping[str, Any], values: Sequence[Any]) -> bool:
    """Whether the smallest or largest number was chosen of three or more."""
    numbers = [number for value in values if (number := real(value)) is not None]
    return len(numbers) == len(values) > 2 and real(variant.get("chosen")) in (min(numbers), max(numbers))
