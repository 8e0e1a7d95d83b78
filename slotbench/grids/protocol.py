"""The protocol of a grid: choices of its first stage so far, and the points that follow from them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from slotbench.errors import UserError, lines, listing
from slotbench.grids.expansion import Grid, Point
from slotbench.grids.grid_file import GridFile, Protocol, as_label
from slotbench.grids.grid_folder import GridFolder
from slotbench.io import numbers

__all__ = ["Choice", "choice_lines", "choices", "protocol_record", "staged", "variant_of"]

Score = float | Literal["diverged"] | None
Key = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Choice:
    """The choice of the first stage for one variant, of which `following` points will be reported.

    Of each candidate the point of the first seed, and its score: the mean over its seeds, "diverged" where one has,
    None as long as one is not done. `chosen` is None as long as one is missing, and where all have diverged.
    """

    label: str
    points: tuple[Point, ...]
    scores: tuple[Score, ...]
    chosen: int | None
    following: int

    @property
    def has_diverged(self) -> bool:
        """Whether no value is left to report."""
        return all(score == "diverged" for score in self.scores)

    def values(self, protocol: Protocol) -> list[Any]:
        """The candidates' values; an excluded one is not among them."""
        return [point.settings[protocol.key] for point in self.points]


def choices(grid: Grid, folder: GridFolder) -> list[Choice]:
    """The choice of the first stage for every variant; none for a grid without a protocol."""
    protocol = grid.file.protocol
    if protocol is None:
        return []
    variants: dict[Key, dict[Key, list[Point]]] = {}
    following = Counter(_candidate_of(grid.file, point) for point in grid.candidates if point.stage == "report")
    for point in grid.candidates:
        if point.stage == "choose":
            values = variants.setdefault(variant_of(grid.file, point), {})
            values.setdefault(_candidate_of(grid.file, point), []).append(point)
    if following.keys() - {candidate for values in variants.values() for candidate in values}:
        raise UserError(f"{grid.file.path}: exclude leaves out points by which the protocol chooses")
    shared = {key for axis in _shared_axes(grid.file) for key in (grid.file.zip if axis == "zip" else [axis])}
    hidden = {short for short, key in grid.keys.items() if key in {protocol.key, *shared}} | {"seed"}
    found = []
    for values in variants.values():
        points = tuple(seeds[0] for seeds in values.values())
        scores = tuple(_mean([_score(folder, point, protocol) for point in seeds]) for seeds in values.values())
        words = ", ".join(text for key, text in points[0].labels.items() if key not in hidden) or grid.name
        left = following[_candidate_of(grid.file, points[0])]
        found.append(Choice(words, points, scores, _best(scores, protocol.higher_is_better is True), left))
    return found


def staged(grid: Grid, folder: GridFolder) -> Grid:
    """The grid with the points of its second stage, as far as the first has chosen; any other grid as it is."""
    wanted = {
        _candidate_of(grid.file, choice.points[choice.chosen])
        for choice in choices(grid, folder)
        if choice.chosen is not None
    }
    points = [
        point for point in grid.candidates if point.stage != "report" or _candidate_of(grid.file, point) in wanted
    ]
    return replace(grid, points=tuple(points))


def variant_of(file: GridFile, point: Point) -> Key:
    """The variant of a point: its values, without those of axes that share a choice, and the chosen one."""
    key = file.protocol.key if file.protocol else ""
    return tuple(pair for pair in _candidate_of(file, point) if pair[0] != key)


def _candidate_of(file: GridFile, point: Point) -> Key:
    """The variant of a point, and its value of the setting that is chosen."""
    shared = _shared_axes(file)
    return tuple(pair for pair in point.alternatives if pair[0] not in shared)


def _shared_axes(file: GridFile) -> set[str]:
    """The axes whose values share one choice."""
    return {"zip" if key in file.zip else key for key in (file.protocol.at if file.protocol else ())}


def choice_lines(grid: Grid, found: Sequence[Choice]) -> Iterator[str]:
    """The choice for each variant, a line each."""
    protocol = grid.file.protocol
    if protocol is None:
        return
    key = next(short for short, whole in grid.keys.items() if whole == protocol.key)
    for choice in found:
        texts = [
            "not done" if score is None else f"{score:.4g}" if score != "diverged" else score for score in choice.scores
        ]
        values = list(map(as_label, choice.values(protocol)))
        if choice.chosen is not None:
            what = f"{key} {values[choice.chosen]} is chosen"
        elif choice.has_diverged:
            what = f"it diverges at every {key}, so there is nothing to report"
        else:
            what = f"{key} is not chosen yet"
        mean = "mean " if len(protocol.seeds) > 1 else ""
        given = ", ".join(f"{value}: {text}" for value, text in zip(values, texts, strict=True))
        numbers = sorted(value for value in choice.values(protocol) if isinstance(value, int | float))
        chosen = None if choice.chosen is None else choice.values(protocol)[choice.chosen]
        is_at_end = len(numbers) > 2 and chosen in (numbers[0], numbers[-1])
        beyond = f"; an end of the range: go on with --axis {key}+=VALUE" if is_at_end else ""
        yield f"{choice.label}: {what} ({mean}{protocol.metric} at {given}){beyond}"


def protocol_record(grid: Grid, found: Sequence[Choice]) -> dict[str, Any] | None:
    """The same for programs, as `grid.json` holds it; None for a grid without a protocol."""
    protocol = grid.file.protocol
    if protocol is None:
        return None
    return {
        **msgspec.to_builtins(protocol),
        "variants": [
            {
                "label": choice.label,
                "values": choice.values(protocol),
                "scores": list(choice.scores),
                "chosen": None if choice.chosen is None else choice.values(protocol)[choice.chosen],
                "diverged": choice.has_diverged,
            }
            for choice in found
        ],
    }


def _score(folder: GridFolder, point: Point, protocol: Protocol) -> Score:
    result = folder.point(point.id).result()
    if result is None or result.get("state") == "diverged":
        return None if result is None else "diverged"
    logged = numbers(result.get("metrics"))
    score = logged.get(protocol.metric)
    if score is None:
        raise UserError(
            lines(
                f"{point.id} has no score {protocol.metric}, by which {protocol.key} is to be chosen",
                expected="protocol: {by: NAME} with one of its scores, or the point run again",
                scores=listing(sorted(logged), 12),
            )
        )
    # what is no finite number is as bad as a score can be
    return score if math.isfinite(score) else "diverged"


def _mean(scores: Sequence[Score]) -> Score:
    """The score of a value over its seeds: one that has diverged, or has not ended, is the score of all."""
    if None in scores or "diverged" in scores:
        return None if None in scores else "diverged"
    return math.fsum(score for score in scores if isinstance(score, float)) / len(scores)


def _best(scores: Sequence[Score], higher_is_better: bool) -> int | None:
    """The index of the best score, the first of equals; None if one is missing or none is a number."""
    if None in scores:
        return None
    finite = [
        (-score if higher_is_better else score, place) for place, score in enumerate(scores) if isinstance(score, float)
    ]
    return min(finite)[1] if finite else None
