"""The points of a grid, expanded from its file. Reads the files that the grid names and nothing else."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from slotbench.errors import UserError, listing
from slotbench.grids.grid_file import (
    CONFIG,
    SEED,
    Alternative,
    GridFile,
    as_argument,
    as_label,
    canonical,
    read_grid_file,
    short_keys,
)
from slotbench.io import read_yaml

__all__ = ["Grid", "Point", "Stage", "expand", "flags"]

Stage = Literal["", "choose", "report"]
"""Of a grid with a protocol: whether a point is one of those that choose, or of those that are reported."""

_LONGEST_NAME = 110
_LIST = "variant"
"""What the axis of labelled alternatives is called."""


@dataclass(frozen=True)
class Point:
    """One run of a grid.

    `id` is the name of its folder: what distinguishes it, and a hash of all that decides the run, whose whole is the
    `fingerprint`. `arguments` are the command line of `fit`, without where the run is recorded; `alternatives` which
    value of which axis it has, seeds aside; `start` is "GRID/ID" of the point whose weights it starts from.
    """

    id: str
    settings: Mapping[str, Any]
    labels: Mapping[str, str]
    arguments: tuple[str, ...]
    fingerprint: str
    alternatives: tuple[tuple[str, int], ...]
    stage: Stage = ""
    start: str = ""

    @property
    def name(self) -> str:
        """The id without its hash."""
        return self.id.rpartition("-")[0]


@dataclass(frozen=True)
class Grid:
    """A grid file, expanded.

    `points` are in the order in which they are run; with a protocol those that choose, to which `protocol.staged` adds
    those that follow, of all `candidates`. `keys` are short keys of what varies, with the whole keys.
    """

    name: str
    file: GridFile
    points: tuple[Point, ...]
    keys: Mapping[str, str]
    extra: tuple[str, ...]
    candidates: tuple[Point, ...]


@dataclass(frozen=True)
class _Choice:
    """A value, or several that belong together, of one axis."""

    axis: str
    index: int
    settings: Mapping[str, Any]
    labels: Mapping[str, str]


def expand(file: GridFile, name: str | None = None, extra: Mapping[str, Any] | None = None) -> Grid:
    """The points of a grid: product x zip x list x seeds, without what is excluded; the seed varies slowest.

    `extra` are settings for all points over those of the file; `config` in it is a file, relative to where we are.
    """
    extra = dict(extra or {})
    if axes := [key for key in extra if key in file.varied and key != CONFIG]:
        raise UserError(f"--{axes[0]} is an axis of {file.path}, and cannot be the same for all points")
    short, protocol = short_keys(file.varied), file.protocol
    shown = {_LIST: "label"} if any(entry.label for entry in file.list) else {}
    keys = {short[key]: key for key in file.varied if not (shown and key in file.listed)} | shown | {"seed": SEED}
    used: set[int] = set()
    make = _PointMaker(file, extra, keys)
    points: list[Point] = []
    seeds = (*(protocol.seeds if protocol else ()), *file.seeds)
    for seed, choices in itertools.product(seeds, itertools.product(*_axes(file, short))):
        labels = {key: text for choice in choices for key, text in choice.labels.items()} | {"seed": str(seed)}
        chosen = {key: value for choice in choices for key, value in choice.settings.items()}
        all_settings = {**file.settings, **chosen, SEED: seed}
        excluded = {place for place, entry in enumerate(file.exclude) if _is_excluded(entry, all_settings, labels)}
        used |= excluded
        elsewhere = protocol is not None and seed in protocol.seeds and not _chooses(protocol.at, chosen)
        if not excluded and not elsewhere:
            points.append(make(choices, chosen, labels, seed))
    if idle := [entry for place, entry in enumerate(file.exclude) if place not in used]:
        raise UserError(f"{file.path}: an entry of exclude excludes nothing: {canonical(idle[0])}")
    if not points:
        raise UserError(f"{file.path}: exclude leaves no point")
    runs = Counter(point.fingerprint for point in points)
    if twice := [point.name for point in points if runs[point.fingerprint] > 1]:
        raise UserError(f"{file.path}: two points are the same run: {listing(twice, 6)}")
    now = tuple(point for point in points if point.stage != "report")
    return Grid(name or file.folder, file, now, keys, tuple(flags(extra)), tuple(points))


class _PointMaker:
    """Makes points; remembers what the files say that it has read."""

    def __init__(self, file: GridFile, extra: Mapping[str, Any], keys: Mapping[str, str]) -> None:
        self._file, self._extra, self._keys = file, extra, keys
        self._contents: dict[Path, Any] = {}
        self._starts: Grid | None = None
        if file.init_from is not None:
            self._starts = expand(read_grid_file(file.init_from), extra=extra)

    def __call__(
        self, choices: Sequence[_Choice], chosen: Mapping[str, Any], labels: Mapping[str, str], seed: int
    ) -> Point:
        file = self._file
        settings = {**file.settings, **chosen, **self._extra, SEED: seed}
        overlays = [file.path.parent / chosen[CONFIG]] if chosen.get(CONFIG) else []
        overlays += [Path(self._extra[CONFIG])] if self._extra.get(CONFIG) else []
        files = _in_use([(path, self._content(path)) for path in (*file.base, *overlays)])
        plain = {key: value for key, value in settings.items() if key != CONFIG}
        what: dict[str, Any] = {"configs": [self._content(path) for path in files], "settings": plain}
        start = None if self._starts is None else self._start(self._starts, labels)
        if start is not None:
            what["start"] = start.fingerprint
        fingerprint = hashlib.sha256(canonical(what).encode()).hexdigest()
        if overlays:
            settings[CONFIG] = _shown(overlays[-1])
        protocol = file.protocol
        # a component before its arguments, which would otherwise be those of the component before it
        ordered = sorted(plain.items(), key=lambda item: (item[0] == SEED, item[0].count(".")))
        return Point(
            id=f"{_name(labels)}-{fingerprint[:8]}",
            settings=settings,
            labels=labels,
            arguments=(*(word for path in files for word in ("--config", _shown(path))), *flags(dict(ordered))),
            fingerprint=fingerprint,
            alternatives=tuple((choice.axis, choice.index) for choice in choices),
            stage="" if protocol is None else "choose" if seed in protocol.seeds else "report",
            start="" if self._starts is None or start is None else f"{self._starts.name}/{start.id}",
        )

    def _content(self, path: Path) -> Any:
        if path not in self._contents:
            self._contents[path] = read_yaml(path)
        return self._contents[path]

    def _start(self, grid: Grid, labels: Mapping[str, str]) -> Point:
        """The point of another grid whose labels agree with these wherever both have one."""
        whole = {key: labels[short] for short, key in self._keys.items() if short in labels}
        fitting = [
            point
            for point in grid.points
            if all(whole.get(grid.keys[short], text) == text for short, text in point.labels.items())
        ]
        if len(fitting) != 1:
            given = ", ".join(f"{key} {text}" for key, text in labels.items())
            raise UserError(f"{self._file.path}: {len(fitting)} points of {grid.file.path} fit {given}; expected one")
        return fitting[0]


def _in_use(files: Sequence[tuple[Path, Any]]) -> list[Path]:
    """The files that have a part in the experiment: one that names both task and data set replaces those before it."""

    def is_whole(content: Any) -> bool:
        parts = [content.get(name) for name in ("model", "data")] if isinstance(content, dict) else [None]
        return all(isinstance(part, str) or (isinstance(part, dict) and "class_path" in part) for part in parts)

    whole = [index for index, (_, content) in enumerate(files) if is_whole(content)]
    return [path for path, _ in files[whole[-1] if whole else 0 :]]


def _chooses(at: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Whether a point of these settings is one of those at which the protocol chooses."""
    return all(canonical(settings.get(axis)) == canonical(value) for axis, value in at.items())


def _axes(file: GridFile, short: Mapping[str, str]) -> Iterator[list[_Choice]]:
    yield from (_axis(key, values, short) for key, values in file.product.items())
    if file.zip:
        columns = {key: _axis(key, values, short) for key, values in file.zip.items()}
        yield [_joined("zip", place, row) for place, row in enumerate(zip(*columns.values(), strict=True))]
    if file.list:
        entries = [[_axis(key, [value], short)[0] for key, value in entry.settings.items()] for entry in file.list]
        choices = [_joined("list", place, entry) for place, entry in enumerate(entries)]
        if any(entry.label for entry in file.list):
            given = [entry.label or _words(choice) for entry, choice in zip(file.list, choices, strict=True)]
            choices = [replace(choice, labels={_LIST: label}) for choice, label in zip(choices, given, strict=True)]
        yield choices
    if file.protocol is not None:
        yield _axis(file.protocol.key, file.protocol.candidates, short)


def _joined(axis: str, place: int, choices: Sequence[_Choice]) -> _Choice:
    """Values that vary together, as one."""
    settings = {key: value for choice in choices for key, value in choice.settings.items()}
    return _Choice(axis, place, settings, {key: text for choice in choices for key, text in choice.labels.items()})


def _words(choice: _Choice) -> str:
    return ", ".join(f"{key} {text}" for key, text in choice.labels.items()) or "as it is"


def _axis(key: str, values: Sequence[Any], short: Mapping[str, str]) -> list[_Choice]:
    labels = _labels(key, values)
    # a value that is no value of the key stands beside those that are, with settings of its own
    settings = [value.settings if isinstance(value, Alternative) else {key: value} for value in values]
    return [_Choice(key, place, settings[place], {short[key]: labels[place]}) for place in range(len(values))]


def _labels(key: str, values: Sequence[Any]) -> list[str]:
    """Labels of values; a file's is its stem, with its folder where two stems are equal."""
    labels = [value.label or "" if isinstance(value, Alternative) else as_label(value) for value in values]
    if key != CONFIG:
        return labels
    paths = [Path(value) if isinstance(value, str) else None for value in values]
    stems = [
        path.stem if path else "none" if label == "null" else label for path, label in zip(paths, labels, strict=True)
    ]
    return [
        f"{path.parent.name}-{stem}" if path and stems.count(stem) > 1 else stem
        for path, stem in zip(paths, stems, strict=True)
    ]


def _is_excluded(entry: Mapping[str, Any], settings: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a point has all that an entry of `exclude` names, by value or label, by the whole key or its ending."""
    for given, value in entry.items():
        name = ".".join(part for part in given.split(".") if part not in ("class_path", "init_args"))
        values = [canonical(one) for key, one in settings.items() if f".{key}".endswith(f".{name}")]
        if canonical(value) not in values and labels.get(name) != as_label(value):
            return False
    return True


def _name(labels: Mapping[str, str]) -> str:
    """The readable part of an id; the same whatever the order in the file."""
    order = sorted(labels, key=lambda key: (key == "seed", key))
    for longest in (32, 16, 8):
        words = {key: re.sub(r"[^A-Za-z0-9_.+@-]+", "-", labels[key])[:longest] or "-" for key in order}
        name = ",".join(f"{key}={word}" for key, word in words.items())
        if len(name) <= _LONGEST_NAME:
            return name
    seed = f"seed={labels['seed']}"
    return f"{name[: _LONGEST_NAME - len(seed) - 1].rstrip(',')},{seed}"


def flags(settings: Mapping[str, Any]) -> Iterator[str]:
    """Settings as one types them."""
    for key, value in settings.items():
        text = as_argument(value)
        yield from (f"--{key}={text}",) if text.startswith("-") or not text else (f"--{key}", text)


def _shown(path: Path) -> str:
    """A path relative to the current folder if it is below it."""
    relative = os.path.relpath(path)
    return str(path.resolve()) if relative.startswith(os.pardir) else relative
