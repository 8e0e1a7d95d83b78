"""A grid file as it is written, read and checked but not expanded. `docs/grids.md` describes the format."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from slotbench.errors import UserError, did_you_mean, lines, listing
from slotbench.io import parse_yaml, read_text
from slotbench.metric_info import direction_by_words

__all__ = [
    "CONFIG",
    "SEED",
    "Alternative",
    "GridFile",
    "Protocol",
    "as_argument",
    "as_label",
    "canonical",
    "plain_key",
    "read_grid_file",
    "short_keys",
    "with_axes",
]

CONFIG = "config"
"""The key whose values are YAML files that are laid over the base."""
SEED = "seed_everything"

_PARTS = ("model", "data", "trainer")
_AXIS = "--axis KEY+=VALUE to add a value, --axis KEY=VALUE,VALUE in place of those of the file"


class Protocol(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    rename={"key": "choose", "candidates": "values", "choosing": "seed", "metric": "by"},
):
    """A setting that is chosen for each variant by runs of every value, on seeds that are not reported.

    `metric` chooses, by its mean over the seeds: the loss, which needs no labels.
    `at` has one value of some axes, which chooses for their others.
    """

    key: str = "model.optimizer.lr"
    candidates: list[Any] = msgspec.field(default_factory=lambda: [3e-4, 7e-4, 2e-3])
    choosing: int | list[int] = msgspec.field(default_factory=lambda: [1000, 1001])
    metric: str = "val/loss"
    higher_is_better: bool | None = None
    at: dict[str, Any] = {}

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the runs that choose."""
        return tuple(self.choosing) if isinstance(self.choosing, list) else (self.choosing,)


class _Written(
    msgspec.Struct, forbid_unknown_fields=True, rename={"zipped": "zip", "alternatives": "list", "start": "init_from"}
):
    base: str | list[str]
    settings: dict[str, Any] | None = None
    product: dict[str, list[Any]] | None = None
    zipped: dict[str, list[Any]] | None = None
    alternatives: list[dict[str, Any]] | None = None
    exclude: list[dict[str, Any]] | None = None
    seeds: int | list[int] = 1
    metrics: list[str] = []
    protocol: bool | Protocol | None = None
    start: str | None = None
    name: str | None = None


@dataclass(frozen=True)
class Alternative:
    """Settings that belong together, and their label: an entry of `list`, or a part's name on an axis of files."""

    settings: Mapping[str, Any]
    label: str | None


@dataclass(frozen=True)
class GridFile:
    """The content of a grid file. Keys are as on the command line, without `class_path` and `init_args`.

    `folder` is the name of the folder of its runs, `init_from` the grid from whose trained points these start.
    """

    path: Path
    text: str
    base: tuple[Path, ...]
    settings: Mapping[str, Any]
    product: Mapping[str, Sequence[Any]]
    zip: Mapping[str, Sequence[Any]]
    list: tuple[Alternative, ...]
    exclude: tuple[Mapping[str, Any], ...]
    seeds: tuple[int, ...]
    metrics: tuple[str, ...]
    protocol: Protocol | None
    init_from: Path | None
    folder: str

    @property
    def listed(self) -> tuple[str, ...]:
        """Keys of the alternatives."""
        return tuple(dict.fromkeys(key for entry in self.list for key in entry.settings))

    @property
    def varied(self) -> tuple[str, ...]:
        """All keys that differ between points, but for the seed."""
        return (*self.product, *self.zip, *self.listed, *((self.protocol.key,) if self.protocol else ()))


def read_grid_file(path: Path) -> GridFile:
    """Reads a grid file."""
    _check_there(path)
    text = read_text(path)
    content = parse_yaml(text, path)
    if isinstance(content, dict) and "base" not in content and any(part in content for part in _PARTS):
        raise UserError(f"{path} is an experiment, not a grid: slotbench fit --config {path}")
    try:
        written = msgspec.convert(content, _Written)
    except msgspec.ValidationError as error:
        unknown = re.search("unknown field `(.*?)`", str(error))
        fields = [field.encode_name for kind in (_Written, Protocol) for field in msgspec.structs.fields(kind)]
        raise UserError(f"{path}: {error}{did_you_mean(unknown[1], fields, 0.5) if unknown else ''}") from error
    return _Reader(path).grid(written, text)


def _check_there(path: Path) -> None:
    if not path.is_file():
        there = [str(file) for file in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
        raise UserError(f"no file {path}{did_you_mean(str(path), there)}")


class _Reader:
    """Checks what one file says."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fail(self, what: str, expected: str = "") -> UserError:
        return UserError(lines(f"{self.path}: {what}", expected=expected))

    def grid(self, written: _Written, text: str) -> GridFile:
        product, zipped = self.axes(written.product), self.axes(written.zipped)
        if len({len(values) for values in zipped.values()}) > 1:
            lengths = ", ".join(f"{key} has {len(values)}" for key, values in zipped.items())
            raise self.fail(f"the axes of zip have not the same number of values: {lengths}")
        seeds = self.seeds(list(range(written.seeds)) if isinstance(written.seeds, int) else written.seeds)
        names = [written.base] if isinstance(written.base, str) else written.base
        labels = [str(entry["label"]) for entry in written.alternatives or () if "label" in entry]
        if len(set(labels)) < len(labels):
            raise self.fail("two entries of list have the same label")
        file = GridFile(
            path=self.path,
            text=text,
            base=tuple(self.overlay(name) for name in names),
            settings=self.settings(written.settings or {}),
            product=product,
            zip=zipped,
            list=tuple(self.alternative(entry) for entry in written.alternatives or ()),
            exclude=tuple(written.exclude or ()),
            seeds=seeds,
            metrics=tuple(written.metrics),
            protocol=self.protocol(written, seeds, {**product, **zipped}),
            init_from=self.overlay(written.start) if written.start else None,
            folder=written.name or self.path.stem,
        )
        chosen = [file.protocol.key] if file.protocol else []
        # an entry of the list may differ from the settings of all points
        once = [*file.product, *file.zip, *dict.fromkeys((*file.settings, *file.listed)), *chosen]
        if twice := [key for key in once if once.count(key) > 1]:
            raise self.fail(f"{twice[0]} is given twice")
        return file

    def overlay(self, name: str) -> Path:
        path = self.path.parent / name
        _check_there(path)
        return path

    def value(self, key: str, value: Any) -> Any:
        if key == CONFIG and value is not None:
            self.overlay(str(value))
        return value

    def settings(self, given: Mapping[str, Any]) -> dict[str, Any]:
        found = {plain_key(key, str(self.path)): value for key, value in given.items()}
        return {key: self.value(key, value) for key, value in found.items()}

    def axes(self, given: Mapping[str, list[Any]] | None) -> dict[str, list[Any]]:
        found = {plain_key(key, str(self.path)): values for key, values in (given or {}).items()}
        if empty := [key for key, values in found.items() if not values]:
            raise self.fail(f"{empty[0]} has no values", "at least one")
        return {key: [self.value(key, value) for value in values] for key, values in found.items()}

    def alternative(self, entry: Mapping[str, Any]) -> Alternative:
        label = as_argument(entry["label"]) if "label" in entry else None
        return Alternative(self.settings({key: entry[key] for key in entry if key != "label"}), label)

    def seeds(self, given: Sequence[int]) -> tuple[int, ...]:
        if not given or min(given) < 0 or max(given) >= 2**32 or len(set(given)) < len(given):
            raise self.fail("these seeds cannot be", "how many, or a list of different whole numbers")
        return tuple(given)

    def protocol(self, written: _Written, reported: Sequence[int], axes: Mapping[str, Any]) -> Protocol | None:
        given = Protocol() if written.protocol is True else written.protocol
        if not isinstance(given, Protocol):
            return None
        if len({canonical(value) for value in given.candidates}) < max(2, len(given.candidates)):
            raise self.fail("protocol: values is a list of two or more different values")
        if both := set(self.seeds(given.seeds)) & set(reported):
            raise self.fail(f"protocol: the seed {both.pop()} is a reported one", "another one")
        metric, higher = given.metric, given.higher_is_better
        higher = direction_by_words(metric) if higher is None else higher
        if higher is None:
            raise self.fail(f"protocol: nothing says whether more of {metric} is better", "higher_is_better: true")
        at = self.settings(given.at)
        for key, value in at.items():
            if canonical(value) not in map(canonical, axes.get(key, ())):
                raise self.fail(
                    f"protocol: at names {key} {as_argument(value)}", "a value of an axis of product or zip"
                )
        key = plain_key(given.key, str(self.path))
        return msgspec.structs.replace(given, key=key, higher_is_better=higher, at=at)


def plain_key(key: str, where: str) -> str:
    """The key of a setting as it is typed on the command line."""
    parts = [part for part in str(key).split(".") if part not in ("class_path", "init_args")]
    if parts == [SEED]:
        raise UserError(lines(f"{where}: {SEED} is not a setting of a grid", expected="seeds: 3, or seeds: [0, 1, 2]"))
    if parts == [CONFIG]:
        return CONFIG
    if len(parts) < 2 or parts[0] not in _PARTS or not all(parts):
        near = did_you_mean(parts[0], _PARTS) if parts else ""
        raise UserError(lines(f"{where}: no setting {key}{near}", expected="model..., data... or trainer..."))
    return ".".join(parts)


def short_keys(keys: Sequence[str]) -> dict[str, str]:
    """Whole key -> the shortest ending that no other key has, by which labels and `--only` name it.

    >>> short_keys(["model.core.dim", "model.encoder.dim", "data.size"])
    {'model.core.dim': 'core.dim', 'model.encoder.dim': 'encoder.dim', 'data.size': 'size'}
    """
    short = {}
    for key in keys:
        parts = key.split(".")
        ends = [".".join(parts[start:]) for start in range(len(parts) - 1, -1, -1)]
        others = [f".{other}" for other in keys if other != key]
        free = (end for end in ends if not any(other.endswith(f".{end}") for other in others))
        short[key] = next((end for end in free if end not in ("seed", "label", "variant")), key)
    return short


def with_axes(file: GridFile, words: Sequence[str]) -> GridFile:
    """The grid file with its axes changed on the command line.

    A part's name on a grid whose axis is `config` is a value of that axis: `core+=MyCore` lays `model.core: MyCore`
    over the base, in the place of a file. So is one of the setting that a protocol chooses.
    """
    for word in words:
        matched = re.fullmatch(r"([A-Za-z_][\w.]*)(\+?)=(.+)", word, re.DOTALL)
        values = parse_yaml(f"[{matched[3]}]", f"--axis {word}") if matched else []
        if matched is None or not values:
            raise UserError(lines(f"--axis {word} is no change of an axis", expected=_AXIS))
        protocol = file.protocol
        axes = [*file.product, *file.listed, *([protocol.key] if protocol else [])]
        whole = {short: key for key, short in short_keys(axes).items()} | {key: key for key in axes}
        name = matched[1]
        key = whole.get(name) or whole.get(f"model.{name}") or f"model.{name}"
        if key == CONFIG:  # relative to where we are, as everything that is typed
            values = [value and os.path.relpath(Path(value).resolve(), file.path.parent.resolve()) for value in values]
        elif key not in axes and CONFIG in file.product and name in ("encoder", "core", "decoder"):
            key, values = CONFIG, [Alternative({key: value}, as_label(value)) for value in values]
        elif key not in axes:
            raise UserError(f"--axis {name}: {file.path} has no such axis; it has {listing(axes)}")
        if protocol and key == protocol.key:
            kept = [*protocol.candidates] if matched[2] else []
            candidates = [*kept, *(value for value in values if value not in kept)]
            file = replace(file, protocol=msgspec.structs.replace(protocol, candidates=candidates))
        elif key in file.product:
            kept = [*file.product[key]] if matched[2] else []
            new = [value for value in values if value not in kept]
            file = replace(file, product={**file.product, key: [*kept, *new]})
        else:
            entries = tuple(Alternative({key: value}, as_label(value)) for value in values)
            file = replace(file, list=(*(file.list if matched[2] else ()), *entries))
        for value in values:
            if key == CONFIG and isinstance(value, str):
                _check_there(file.path.parent / value)
    return file


def canonical(value: Any) -> str:
    """The one JSON text of a value, whatever the order of its keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)


def as_argument(value: Any) -> str:
    """The value as one types it on a command line."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def as_label(value: Any) -> str:
    """A short label of the value; two values may have the same."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return " ".join(map(as_label, value)) or "[]"
    if isinstance(value, Mapping):
        arguments = {key: item for key, item in value.items() if key not in ("class_path", "init_args")}
        arguments |= value.get("init_args") or {}
        words = [str(value["class_path"]).rpartition(".")[2]] if value.get("class_path") else []
        return " ".join([*words, *(f"{key} {as_label(item)}" for key, item in arguments.items())]) or "{}"
    return as_argument(value)
