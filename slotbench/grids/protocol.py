"""The protocol of a grid: choices of its first stage so far, and the points that follow from them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from slotbench.errors import UserError, lines, listing
from slotbench.grids.expansion import Grid, Point
from slotbench.grids.grid_folder import GridFolder
from slotbench.grids.protocol_file import Protocol
from slotbench.grids.shared_choice import shared_axes, told_apart
from slotbench.grids.values import as_label
from slotbench.records import numbers

__all__ = ["Choice", "choice_lines", "choices", "protocol_record", "staged", "variant_of"]

Score = float | Literal["diverged"] | None


@dataclass(frozen=True)
class Choice:
    """The choice of the first stage for one variant.

    Attributes:
        label: the variant, in words.
        points: of each candidate the point of the first seed, in the order of the values.
        scores: of each candidate: the mean over its seeds, "diverged" where one has, None as long as one is not done.
        chosen: which of them is best; None as long as one is missing, and where all of them have diverged.
        following: how many points are reported with what is chosen.
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

    @property
    def is_settled(self) -> bool:
        """Whether all candidates have ended."""
        return None not in self.scores


def choices(grid: Grid, folder: GridFolder) -> list[Choice]:
    """The choice of the first stage for every variant; none for a grid without a protocol.

    Raises:
        UserError: a candidate has ended without the score that chooses.
    """
    protocol = grid.file.protocol
    if protocol is None:
        return []
    variants: dict[tuple[tuple[str, int], ...], dict[tuple[tuple[str, int], ...], list[Point]]] = {}
    # of a chain the last point chooses, for all of them
    earlier = {point.after for point in grid.candidates}
    by_id = {point.id: point for point in grid.candidates}
    reported = (point for point in grid.candidates if point.stage == "report")
    following = Counter(told_apart(grid.file, point.alternatives) for point in reported)
    for point in grid.candidates:
        if point.stage == "choose" and point.id not in earlier:
            values = variants.setdefault(variant_of(grid, point), {})
            values.setdefault(told_apart(grid.file, point.alternatives), []).append(point)
    found = []
    hidden = {"seed", _short(grid, protocol)}.union(*(_keys_of(grid, axis) for axis in shared_axes(grid.file)))
    for values in variants.values():
        points = [seeds[0] for seeds in values.values()]
        scores = tuple(_mean([_score(folder, point, protocol, by_id) for point in seeds]) for seeds in values.values())
        words = [text for key, text in points[0].labels.items() if key not in hidden]
        left = following[told_apart(grid.file, points[0].alternatives)]
        found.append(Choice(", ".join(words) or grid.name, tuple(points), scores, _best(scores, protocol), left))
    return found


def staged(grid: Grid, folder: GridFolder) -> Grid:
    """The grid with the points of its second stage, as far as the first has chosen; any other grid as it is.

    Raises:
        UserError: a candidate has ended without the score that chooses.
    """
    protocol = grid.file.protocol
    if protocol is None:
        return grid
    wanted = {
        told_apart(grid.file, choice.points[choice.chosen].alternatives)
        for choice in choices(grid, folder)
        if choice.chosen is not None
    }
    reported = (
        point
        for point in grid.candidates
        if point.stage == "report" and told_apart(grid.file, point.alternatives) in wanted
    )
    first = (point for point in grid.candidates if point.stage == "choose")
    return replace(grid, points=(*first, *reported))


def choice_lines(grid: Grid, found: Sequence[Choice]) -> Iterator[str]:
    """The choice for each variant, a line each."""
    protocol = grid.file.protocol
    if protocol is None:
        return
    key = _short(grid, protocol)
    for choice in found:
        given = ", ".join(
            f"{as_label(value)}: {_text(score)}"
            for value, score in zip(_values(choice, protocol), choice.scores, strict=True)
        )
        if choice.chosen is not None:
            what = f"{key} {as_label(_values(choice, protocol)[choice.chosen])} is chosen"
        elif choice.has_diverged:
            what = f"it diverges at every {key}, so there is nothing to report"
        else:
            what = f"{key} is not chosen yet"
        mean = "mean " if len(protocol.seeds) > 1 else ""
        yield f"{choice.label}: {what} ({mean}{protocol.metric} at {given})"


def protocol_record(grid: Grid, found: Sequence[Choice]) -> dict[str, Any] | None:
    """The same for programs, as `grid.json` holds it; None for a grid without a protocol."""
    protocol = grid.file.protocol
    if protocol is None:
        return None
    return {
        "choose": protocol.key,
        "values": list(protocol.values),
        "seed": list(protocol.seeds) if len(protocol.seeds) > 1 else protocol.seeds[0],
        "by": protocol.metric,
        "higher_is_better": protocol.higher_is_better,
        **({"at": dict(protocol.at)} if protocol.at else {}),
        "variants": [
            {
                "label": choice.label,
                "values": list(_values(choice, protocol)),
                "scores": list(choice.scores),
                "chosen": None if choice.chosen is None else _values(choice, protocol)[choice.chosen],
                "diverged": choice.has_diverged,
            }
            for choice in found
        ],
    }


def variant_of(grid: Grid, point: Point) -> tuple[tuple[str, int], ...]:
    """A key of the variant that a point belongs to, the same for all its points."""
    protocol = grid.file.protocol
    pairs = told_apart(grid.file, point.alternatives)
    return tuple(pair for pair in pairs if protocol is None or pair[0] != protocol.key)


def _keys_of(grid: Grid, axis: str) -> set[str]:
    """Short keys of an axis."""
    keys = set(grid.file.zip) if axis == "zip" else {axis}
    if axis == "list":
        keys = {"label", *(key for entry in grid.file.list for key in entry.settings)}
    return {short for short, key in grid.keys.items() if key in keys}


def _short(grid: Grid, protocol: Protocol) -> str:
    return next(short for short, key in grid.keys.items() if key == protocol.key)


def _values(choice: Choice, protocol: Protocol) -> tuple[Any, ...]:
    """The candidates' values; an excluded one is not among them."""
    return tuple(point.settings[protocol.key] for point in choice.points)


def _score(folder: GridFolder, point: Point, protocol: Protocol, by_id: Mapping[str, Point]) -> Score:
    result = folder.point(point.id).result()
    if result is None:
        # where an earlier point of its chain has diverged, it is never run
        return "diverged" if _has_diverged(folder, point, by_id) else None
    if result.get("state") == "diverged":
        return "diverged"
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
    if None in scores:
        return None
    numbers = [score for score in scores if isinstance(score, float)]
    return sum(numbers) / len(numbers) if len(numbers) == len(scores) else "diverged"


def _has_diverged(folder: GridFolder, point: Point, by_id: Mapping[str, Point]) -> bool:
    """Whether a point before this one in a chain has diverged."""
    while point.after in by_id:
        point = by_id[point.after]
        if folder.point(point.id).ended() == "diverged":
            return True
    return False


def _best(scores: Sequence[Score], protocol: Protocol) -> int | None:
    """The index of the best score, the first of equals; None if one is missing or none is a number."""
    if None in scores:
        return None
    numbers = [(score, index) for index, score in enumerate(scores) if isinstance(score, float)]
    sign = -1 if protocol.higher_is_better else 1
    return min(numbers, key=lambda pair: (sign * pair[0], pair[1]))[1] if numbers else None


def _text(score: Score) -> str:
    return "not done" if score is None else score if isinstance(score, str) else f"{score:.4g}"
