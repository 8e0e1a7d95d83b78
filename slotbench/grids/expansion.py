"""The points of a grid, expanded from its file. Reads the files that the grid names and nothing else."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from slotbench.configurations import first_in_use, shortest_keys
from slotbench.errors import UserError, did_you_mean, lines, listing
from slotbench.grids.grid_file import CONFIG, MOST_POINTS, SEED, Alternative, GridFile
from slotbench.grids.shared_choice import check_shared, chooses, told_apart
from slotbench.grids.values import as_argument, as_label, as_word, canonical, parse_file, sha256

__all__ = ["Grid", "Point", "Stage", "expand", "short_keys"]

Stage = Literal["", "choose", "report"]
"""Of a grid with a protocol: whether a point is one of those that choose, or of those that are reported."""

_LONGEST_NAME = 110
_LIST = "variant"
"""What the axis of labelled alternatives is called."""


@dataclass(frozen=True)
class Point:
    """One run of a grid.

    Attributes:
        id: name of its folder: what distinguishes it, and a hash of all that decides the run.
        settings: everything that is laid over the base, by key as on the command line; `config` is a file.
        labels: what distinguishes it, by the shortest keys that say which, in the order of the grid file.
        arguments: the command line of `fit`, without where the run is recorded.
        fingerprint: the whole hash.
        alternatives: which value of which axis it has, seeds aside.
        stage: what it is for, in a grid with a protocol.
        after: the id of the point that it starts from, in a grid with a chain; "" for none.
        into: the setting that gets the folder of that point.
    """

    id: str
    settings: Mapping[str, Any]
    labels: Mapping[str, str]
    arguments: tuple[str, ...]
    fingerprint: str
    alternatives: tuple[tuple[str, int], ...]
    stage: Stage = ""
    after: str = ""
    into: str = ""

    @property
    def name(self) -> str:
        """The id without its hash."""
        return self.id.rpartition("-")[0]


@dataclass(frozen=True)
class Grid:
    """A grid file, expanded.

    Attributes:
        name: of the folder that holds its runs.
        file: the grid file.
        text: of the file.
        points: in the order in which they are run: all of one seed before any of the next. With a protocol those that
            choose; `slotbench.grids.protocol.staged` adds those that follow from what they have come to.
        keys: short keys of what varies, in the order of the file, with the whole keys.
        metrics: of the comparison.
        extra: arguments given over the file's settings, for all points.
        candidates: every point that there may be: `points`, and with a protocol those of every value and seed.
        axes: changes of the file's axes, as typed.
    """

    name: str
    file: GridFile
    points: tuple[Point, ...]
    keys: Mapping[str, str]
    extra: tuple[str, ...] = ()
    candidates: tuple[Point, ...] = ()
    axes: tuple[str, ...] = ()

    @property
    def starts(self) -> tuple[str, ...]:
        """Ids of points that others start from."""
        if self.file.chain is None or self.file.chain.start != "first":
            return ()
        return tuple(point.id for point in self.points if not point.after)


@dataclass(frozen=True)
class _Choice:
    """A value, or several that belong together, of one axis."""

    axis: str
    index: int
    settings: Mapping[str, Any]
    labels: Mapping[str, str]


def expand(file: GridFile, name: str | None = None, extra: Mapping[str, Any] | None = None) -> Grid:
    """The points of a grid: product x zip x list x seeds, without what is excluded; the seed varies slowest.

    Args:
        file: what the grid file says.
        name: of the grid; that of the file if None.
        extra: settings for all points over those of the file; `config` is a file, relative to where we are.

    Raises:
        UserError: no points, the same point twice, an exclusion that excludes nothing, or a setting that is an axis.
    """
    extra = dict(extra or {})
    _check_extra(file, extra)
    short = short_keys(_varied(file))
    protocol = file.protocol
    chosen_axis = {protocol.key: protocol.values} if protocol else {}
    axes = [*_product(file.product, short), *_zip(file, short), *_list(file, short), *_product(chosen_axis, short)]
    seeds = (*(protocol.seeds if protocol else ()), *file.seeds)
    count = math.prod(map(len, axes)) * len(seeds)
    if count > MOST_POINTS:
        raise UserError(f"{file.path} has {count:,} points; {MOST_POINTS:,} is the most that a grid may have")
    contents = {path: _content(path) for path in file.base}
    shown = {_LIST: "label"} if any(entry.label for entry in file.list) else {}
    varied = (*file.product, *file.zip, *(() if shown else _listed(file)), *chosen_axis)
    keys = {short[key]: key for key in varied} | shown
    keys["seed"] = SEED
    exclusions = [_Exclusion(file, entry, keys) for entry in file.exclude]
    check_shared(file)
    points: list[Point] = []
    placed: dict[tuple[int, tuple[tuple[str, int], ...]], Point] = {}
    for seed, choices in itertools.product(seeds, itertools.product(*axes)):
        labels = {key: text for choice in choices for key, text in choice.labels.items()} | {"seed": str(seed)}
        chosen = {key: value for choice in choices for key, value in choice.settings.items()}
        # each is asked, so that each knows whether it has excluded anything
        excluded = [exclusion.matches({**chosen, SEED: seed}, labels) for exclusion in exclusions]
        if any(excluded) or (protocol and seed in protocol.seeds and not chooses(protocol, chosen)):
            continue
        before = _before(file, choices, seed, placed)
        points.append(_point(file, extra, contents, choices, seed, labels, before))
        placed[seed, points[-1].alternatives] = points[-1]
    for exclusion in exclusions:
        exclusion.check_used()
    _check_points(file, points)
    first = tuple(point for point in points if point.stage != "report")
    return Grid(name or file.folder, file, first, keys, tuple(_flags(extra)), tuple(points))


def _point(
    file: GridFile,
    extra: Mapping[str, Any],
    contents: dict[Path, Any],
    choices: Sequence[_Choice],
    seed: int,
    labels: Mapping[str, str],
    before: Point | None,
) -> Point:
    """The point of these values and this seed, which starts from the one before, if there is one.

    `contents` holds what the files say that have been read by now.
    """
    chosen = {key: value for choice in choices for key, value in choice.settings.items()}
    settings = {**file.settings, **chosen, **extra, SEED: seed}
    overlays = [file.path.parent / chosen[CONFIG]] if chosen.get(CONFIG) else []
    overlays += [Path(extra[CONFIG])] if extra.get(CONFIG) else []
    for path in overlays:
        if path not in contents:
            contents[path] = _content(path)
    plain = {key: value for key, value in settings.items() if key != CONFIG}
    files = (*file.base, *overlays)
    what = {"configs": [contents[path] for path in files], "settings": plain}
    used = files[first_in_use([_classes(contents[path]) for path in files]) :]
    fingerprint = sha256(what | ({"after": before.fingerprint} if before else {}))
    if overlays:
        settings[CONFIG] = _shown(overlays[-1])
    return Point(
        id=f"{_name(labels)}-{fingerprint[:8]}",
        settings=settings,
        labels=labels,
        arguments=_arguments(used, plain),
        fingerprint=fingerprint,
        alternatives=tuple((choice.axis, choice.index) for choice in choices),
        stage="" if file.protocol is None else "choose" if seed in file.protocol.seeds else "report",
        after=before.id if before else "",
        into=file.chain.into if file.chain and before else "",
    )


def _before(
    file: GridFile,
    choices: Sequence[_Choice],
    seed: int,
    placed: Mapping[tuple[int, tuple[tuple[str, int], ...]], Point],
) -> Point | None:
    """The point that this one starts from in a chain; None for the first, and without a chain."""
    chain = file.chain
    if chain is None or all(choice.axis != chain.axis or choice.index == 0 for choice in choices):
        return None
    wanted = tuple(
        (choice.axis, chain.before(choice.index) if choice.axis == chain.axis else choice.index) for choice in choices
    )
    if (seed, wanted) not in placed:
        raise UserError(
            lines(
                f"{file.path}: exclude leaves out a point that another one starts from",
                expected=f"whole chains along {chain.key}, or their last points left out",
            )
        )
    return placed[seed, wanted]


def short_keys(keys: Sequence[str]) -> dict[str, str]:
    """Whole key -> the short one by which labels and `--only` name it."""
    return shortest_keys(keys, {"seed", "label", _LIST})


def _varied(file: GridFile) -> list[str]:
    return [*file.product, *file.zip, *_listed(file), *((file.protocol.key,) if file.protocol else ())]


def _listed(file: GridFile) -> list[str]:
    return list(dict.fromkeys(key for entry in file.list for key in entry.settings))


def _product(axes: Mapping[str, Sequence[Any]], short: Mapping[str, str]) -> Iterator[list[_Choice]]:
    for key, values in axes.items():
        labels = _labels(key, values)
        # a value that is no value of the key stands beside those that are, with settings of its own
        settings = [value.settings if isinstance(value, Alternative) else {key: value} for value in values]
        yield [_Choice(key, index, settings[index], {short[key]: labels[index]}) for index in range(len(values))]


def _zip(file: GridFile, short: Mapping[str, str]) -> Iterator[list[_Choice]]:
    if not file.zip:
        return
    labels = {key: _labels(key, values) for key, values in file.zip.items()}
    rows = [dict(zip(file.zip, row, strict=True)) for row in zip(*file.zip.values(), strict=True)]
    yield [
        _Choice("zip", index, row, {short[key]: labels[key][index] for key in row}) for index, row in enumerate(rows)
    ]


def _list(file: GridFile, short: Mapping[str, str]) -> Iterator[list[_Choice]]:
    if not file.list:
        return
    named = any(entry.label for entry in file.list)
    choices = []
    for index, entry in enumerate(file.list):
        own = {short[key]: _labels(key, [value])[0] for key, value in entry.settings.items()}
        label = entry.label or ", ".join(f"{key} {text}" for key, text in own.items()) or "as it is"
        choices.append(_Choice("list", index, entry.settings, {_LIST: label} if named else own))
    yield choices


def _labels(key: str, values: Sequence[Any]) -> list[str]:
    """Labels of values; a file's is its stem, with its folder where two stems are equal."""
    named = [value.label or "" if isinstance(value, Alternative) else None for value in values]
    if key != CONFIG:
        return [as_label(value) if name is None else name for value, name in zip(values, named, strict=True)]
    paths = [Path(value) if isinstance(value, str) else None for value in values]
    stems = [path.stem if path else name or "none" for path, name in zip(paths, named, strict=True)]
    return [
        f"{path.parent.name}-{stem}" if path and stems.count(stem) > 1 else stem
        for path, stem in zip(paths, stems, strict=True)
    ]


class _Exclusion:
    """One entry of `exclude`, and whether it has excluded anything."""

    def __init__(self, file: GridFile, entry: Mapping[str, Any], keys: Mapping[str, str]) -> None:
        self._file, self._entry, self._used = file, entry, False
        whole = {key: short for short, key in keys.items()} | {key: key for key in _listed(file)}
        known = {**whole, **{short: short for short in keys}}
        self._wanted: list[tuple[str, str, Any]] = []
        full = {**dict.fromkeys(_listed(file)), **dict.fromkeys(keys.values())}
        for given, value in entry.items():
            name = ".".join(part for part in given.split(".") if part not in ("class_path", "init_args"))
            if name not in known:
                raise UserError(
                    lines(
                        f"{file.path}, exclude: {given} does not vary{did_you_mean(name, known)}",
                        expected=listing([*full]),
                    )
                )
            short = known[name]
            self._wanted.append((keys.get(short, name), short, value))

    def matches(self, settings: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
        for key, short, value in self._wanted:
            by_value = key in settings and canonical(settings[key]) == canonical(value)
            by_label = short in labels and labels[short] == (value if isinstance(value, str) else as_label(value))
            if not (by_value or by_label):
                return False
        self._used = True
        return True

    def check_used(self) -> None:
        if not self._used:
            raise UserError(
                lines(
                    f"{self._file.path}: an entry of exclude excludes nothing",
                    given=canonical(self._entry),
                    expected="values as they stand under product, zip or list, or the labels of points",
                )
            )


def _content(path: Path) -> Any:
    """The content of a file, with the files that its values name in their places."""

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: filled(item) for key, item in value.items()}
        if isinstance(value, list):
            return [filled(item) for item in value]
        if isinstance(value, str) and value.endswith((".yaml", ".yml")) and (path.parent / value).is_file():
            return _content(path.parent / value)
        return value

    return filled(parse_file(path)[1])


def _name(labels: Mapping[str, str]) -> str:
    """The readable part of an id; the same whatever the order in the file."""
    order = sorted(labels, key=lambda key: (key == "seed", key))
    for longest in (32, 16, 8):
        name = ",".join(f"{key}={as_word(labels[key], longest)}" for key in order)
        if len(name) <= _LONGEST_NAME:
            return name
    seed = f"seed={labels['seed']}"
    return f"{name[: _LONGEST_NAME - len(seed) - 1].rstrip(',')},{seed}"


def _classes(content: Any) -> set[str]:
    """The parts of which a file names the class."""
    parts = content.items() if isinstance(content, dict) else ()
    return {name for name, part in parts if isinstance(part, str) or (isinstance(part, dict) and "class_path" in part)}


def _arguments(configs: Sequence[Path], settings: Mapping[str, Any]) -> tuple[str, ...]:
    out = [word for path in configs for word in ("--config", _shown(path))]
    # a component before its arguments, which would otherwise be those of the component before it
    ordered = dict(sorted(settings.items(), key=lambda item: (item[0] == SEED, item[0].count("."))))
    return (*out, *_flags(ordered))


def _flags(settings: Mapping[str, Any]) -> Iterator[str]:
    for key, value in settings.items():
        text = as_argument(value)
        yield from (f"--{key}={text}",) if text.startswith("-") or not text else (f"--{key}", text)


def _shown(path: Path) -> str:
    """A path relative to the current folder if it is below it."""
    relative = os.path.relpath(path)
    return str(path.resolve()) if relative.startswith(os.pardir) else relative


def _check_extra(file: GridFile, extra: Mapping[str, Any]) -> None:
    for key in extra:
        if key in _varied(file) and key != CONFIG:
            raise UserError(
                lines(
                    f"--{key} is an axis of {file.path}, and cannot be the same for all points",
                    expected=f"--only {short_keys(_varied(file))[key]}=VALUE, to run some of them",
                )
            )


def _check_points(file: GridFile, points: Sequence[Point]) -> None:
    if not points:
        raise UserError(f"{file.path}: exclude leaves no point")
    seen: dict[str, Point] = {}
    for point in points:
        if (other := seen.setdefault(point.fingerprint, point)) is not point:
            raise UserError(lines(f"{file.path}: two points are the same run", first=other.name, second=point.name))
    chosen = {told_apart(file, point.alternatives) for point in points if point.stage == "choose"}
    reported = [point for point in points if point.stage == "report"]
    if lost := [point.name for point in reported if told_apart(file, point.alternatives) not in chosen]:
        raise UserError(f"{file.path}: exclude leaves out the points by which the protocol chooses for {lost[0]}")
