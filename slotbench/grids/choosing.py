"""Subsets of a grid's points: by pattern, by setting, by number, or a few that cover every value."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

from slotbench.errors import UserError, did_you_mean, lines, listing
from slotbench.grids.expansion import Grid, Point

__all__ = ["choose", "covering", "find_point"]


def choose(grid: Grid, wanted: Sequence[str]) -> list[Point]:
    """The candidates that `--only` asks for: patterns, or values of a key, are alternatives; all keys must hold."""
    points = grid.candidates
    globs: list[str] = []
    values: dict[str, list[str]] = {}
    short = {whole: key for key, whole in grid.keys.items()} | {key: key for key in grid.keys}
    ids = {point.id for point in points}
    for word in wanted:
        key, equals, value = word.partition("=")
        name = ".".join(part for part in key.split(".") if part not in ("class_path", "init_args"))
        if word in ids:
            globs.append(word)
        elif equals and name in short:
            values.setdefault(short[name], []).append(value)
        elif equals and not set(key) & set("*?[,"):
            near = did_you_mean(key, short)
            raise UserError(lines(f"--only {word}: {key} does not vary{near}", expected=listing(grid.keys)))
        else:
            globs.append(word)

    def is_wanted(point: Point) -> bool:
        fits = all(
            any(fnmatch.fnmatchcase(point.labels.get(key, ""), value) for value in alternatives)
            for key, alternatives in values.items()
        )
        return fits and (not globs or any(fnmatch.fnmatchcase(point.id, glob) for glob in globs))

    chosen = [point for point in points if is_wanted(point)]
    if not chosen and wanted:
        there = {key: listing(dict.fromkeys(point.labels.get(key, "") for point in points)) for key in values}
        some = there or {"points": listing((point.id for point in points), 4)}
        raise UserError(lines(f"--only {' '.join(wanted)}: no point matches", **some))
    return chosen


def find_point(grid: Grid, given: str) -> Point:
    """The point with a number, from 1, or with the beginning of an id or hash."""
    if given.isdecimal() and 1 <= int(given) <= len(grid.points):
        return grid.points[int(given) - 1]
    found = [point for point in grid.points if point.name == given or point.id.startswith(given)]
    if len(found) != 1:
        what = f"{len(found)} points begin like {given}" if found else f"no point {given}"
        expected = f"a number from 1 to {len(grid.points)}, or the beginning of an id"
        raise UserError(lines(what, expected=expected, points=listing((point.id for point in found or grid.points), 5)))
    return found[0]


def covering(chosen: Sequence[Point]) -> list[Point]:
    """Some of the points, among which every value of every axis occurs."""
    left = {alternative for point in chosen for alternative in point.alternatives}
    found: list[Point] = list(chosen[:1])
    left -= set(found[0].alternatives) if found else set()
    while left:
        best = max(chosen, key=lambda point: len(left & set(point.alternatives)))
        found.append(best)
        left -= set(best.alternatives)
    return found
