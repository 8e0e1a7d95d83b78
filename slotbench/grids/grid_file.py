"""A grid file as it is written: read and checked, not yet expanded. `docs/grids.md` describes the format."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slotbench.errors import UserError, did_you_mean, lines
from slotbench.grids.chain_file import Chain, read_chain
from slotbench.grids.protocol_file import Protocol, read_protocol
from slotbench.grids.values import as_argument, is_possible, parse_file

__all__ = ["CONFIG", "MOST_POINTS", "SEED", "Alternative", "GridFile", "check_key", "read_grid_file"]

CONFIG = "config"
"""The key whose values are YAML files that are laid over the base."""
SEED = "seed_everything"
MOST_POINTS = 100_000
"""Points that a grid may have, and seeds."""

_KEYS = ("base", "settings", "product", "zip", "list", "exclude", "seeds", "metrics", "protocol", "chain", "name")
_PARTS = ("model", "data", "trainer")
_WHOLE = (*_PARTS, CONFIG, "ckpt_path", "weights_only")
_OPTIONS = (
    "name",
    "runs_dir",
    "run_dir",
    "group",
    "wandb",
    "wandb_project",
    "wandb_entity",
    "wandb_tags",
    "wandb_notes",
    "wandb_artifacts",
    "plugin",
    "allow-import",
    "threads",
    "resume",
)
_KEY = re.compile(r"[A-Za-z_]\w*(\.\w+)*\+?")


@dataclass(frozen=True)
class Alternative:
    """An entry of `list`: settings, and its label if it has one."""

    settings: Mapping[str, Any]
    label: str | None


@dataclass(frozen=True)
class GridFile:
    """The content of a grid file. Keys are as on the command line, without `class_path` and `init_args`.

    Attributes:
        path: the file.
        text: its text.
        base: the files that describe the experiment, in the order in which they are laid over one another.
        settings: over the base, for all points.
        product: axes of which every combination is a point.
        zip: axes that vary together; all of one length.
        list: alternatives written out.
        exclude: combinations that are left out.
        seeds: of every point.
        metrics: names of the metrics that the comparison shows; the first one sorts.
        protocol: what is chosen for every variant first; None if nothing is.
        name: of the folder of its runs; None for that of the file.
        chain: along which axis points start from the weights of another; None if each starts on its own.
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
    protocol: Protocol | None = None
    name: str | None = None
    chain: Chain | None = None

    @property
    def folder(self) -> str:
        """Default name of the folder of its runs."""
        return self.name or self.path.stem


def read_grid_file(path: Path) -> GridFile:
    """Reads a grid file.

    Raises:
        UserError: it is not there, not a grid, or says something that cannot be.
    """
    text, content = parse_file(path)
    if not isinstance(content, dict):
        raise UserError(lines(f"{path} is not a grid", expected=f"a mapping with the keys {', '.join(_KEYS)}"))
    if "base" not in content and any(part in content for part in _PARTS):
        raise UserError(
            lines(
                f"{path} is an experiment, not a grid",
                expected=f"a file that says `base: {path.name}` and what varies",
                **{"to train it": f"slotbench fit --config {path}"},
                see="slotbench grid --help",
            )
        )
    for key in content:
        if key not in _KEYS:
            raise UserError(
                lines(f"{path}: no key {key} in a grid{did_you_mean(key, _KEYS, 0.5)}", expected=", ".join(_KEYS))
            )
    reader = _Reader(path)
    seeds, metrics = reader.seeds(content.get("seeds", 1)), reader.metrics(content.get("metrics"))
    file = GridFile(
        path=path,
        text=text,
        base=reader.base(content.get("base")),
        settings=reader.settings(content.get("settings"), "settings"),
        product=reader.axes(content.get("product"), "product"),
        zip=reader.axes(content.get("zip"), "zip"),
        list=reader.alternatives(content.get("list")),
        exclude=reader.exclude(content.get("exclude")),
        seeds=seeds,
        metrics=metrics,
        protocol=reader.protocol(content.get("protocol"), seeds, metrics),
        name=reader.name(content.get("name")),
    )
    file = replace(file, chain=reader.chain(content.get("chain"), file))
    reader.check_lengths(file.zip)
    reader.check_once(file)
    return file


def check_key(key: str, where: str) -> str:
    """The key of a setting as it is typed on the command line.

    Raises:
        UserError: it can be none.
    """
    if not _KEY.fullmatch(key):
        raise UserError(lines(f"{where}: {key!r} is no key", expected="one such as model.core.num_slots"))
    parts = [part for part in key.split(".") if part not in ("class_path", "init_args")]
    short = ".".join(parts)
    if parts[:1] == [SEED]:
        raise UserError(lines(f"{where}: {SEED} is not a setting of a grid", expected="seeds: 3, or seeds: [0, 1, 2]"))
    if key in _OPTIONS:
        raise UserError(
            lines(
                f"{where}: {key} says where or how to run, not what",
                expected=f"slotbench grid run FILE --{key} VALUE" if key != "resume" else "slotbench grid run FILE",
            )
        )
    known = _WHOLE if len(parts) == 1 else _PARTS
    if not parts or parts[0] not in known:
        near = did_you_mean(parts[0], known) if parts else ""
        raise UserError(lines(f"{where}: no setting {key}{near}", expected="model..., data... or trainer..."))
    return short


class _Reader:
    """Checks the keys of one file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fail(self, what: str, expected: str | None = None, **more: str | None) -> UserError:
        return UserError(lines(f"{self.path}: {what}", expected=expected, **more))

    def base(self, given: Any) -> tuple[Path, ...]:
        names = given if isinstance(given, list) else [given]
        if not names or not all(isinstance(name, str) and name for name in names):
            raise self.fail("it needs a base", "base: ../blinking_balls.yaml, or a list of such files")
        return tuple(self.overlay(name, "base") for name in names)

    def overlay(self, name: str, where: str) -> Path:
        path = self.path.parent / name
        content = parse_file(path, f"{where}: {name}  ({self.path})")[1]
        if not isinstance(content, dict):
            raise self.fail(f"{where}: {path} holds no settings", "a mapping with the keys model, data, trainer")
        return path

    def value(self, key: str, value: Any, where: str) -> Any:
        if not is_possible(value):
            raise self.fail(
                f"{where}: {key} cannot be {value!r} ({type(value).__name__})",
                "a number, a word, true, false, null, a list or a mapping; a date needs quotes",
            )
        if key == CONFIG and value is not None:
            if not isinstance(value, str):
                raise self.fail(
                    f"{where}: {key} cannot be {value!r}", "a YAML file, relative to the grid file, or null"
                )
            self.overlay(value, f"{where}.{CONFIG}")
        return value

    def settings(self, given: Any, where: str) -> dict[str, Any]:
        if given is None:
            return {}
        if not isinstance(given, dict):
            raise self.fail(f"{where} holds {as_argument(given)}", "a mapping, such as {trainer.max_steps: 1500}")
        out: dict[str, Any] = {}
        for name, value in given.items():
            key = check_key(name, f"{self.path}, {where}")
            if key in out:
                raise self.fail(f"{where}: {key} is given twice")
            if key == CONFIG and where == "settings":
                raise self.fail(f"{where}: {CONFIG} is not for all points", "base: [FILE, FILE]")
            out[key] = self.value(key, value, where)
        return out

    def axes(self, given: Any, where: str) -> dict[str, list[Any]]:
        if given is None:
            return {}
        if not isinstance(given, dict):
            raise self.fail(f"{where} holds {as_argument(given)}", "a mapping from keys to lists of values")
        out: dict[str, list[Any]] = {}
        for name, values in given.items():
            key = check_key(name, f"{self.path}, {where}")
            if not isinstance(values, list):
                raise self.fail(
                    f"{where}: {name} is {as_argument(values)}", f"a list of values: [{as_argument(values)}]"
                )
            if not values:
                raise self.fail(f"{where}: {name} has no values", "at least one")
            if key in out:
                raise self.fail(f"{where}: {key} is given twice")
            out[key] = [self.value(key, value, where) for value in values]
        return out

    def alternatives(self, given: Any) -> tuple[Alternative, ...]:
        if given is None:
            return ()
        if not isinstance(given, list) or not all(isinstance(entry, dict) for entry in given):
            raise self.fail("list holds something else", "a list of mappings, such as - {label: no mixer, KEY: VALUE}")
        if not given:
            raise self.fail("list has no entries", "at least one")
        out: list[Alternative] = []
        for number, entry in enumerate(given, 1):
            label = entry.get("label")
            if label is not None and not isinstance(label, str):
                raise self.fail(f"list, entry {number}: its label is {label!r}", f'a word: "{as_argument(label)}"')
            settings = self.settings({key: entry[key] for key in entry if key != "label"}, f"list, entry {number}")
            if label is not None and any(label == other.label for other in out):
                raise self.fail(f"list, entry {number}: its label {label} is another entry's")
            out.append(Alternative(settings, label))
        return tuple(out)

    def exclude(self, given: Any) -> tuple[dict[str, Any], ...]:
        if given is None:
            return ()
        if not isinstance(given, list) or not all(isinstance(entry, dict) and entry for entry in given):
            raise self.fail("exclude holds something else", "a list of mappings, such as - {model.core.num_slots: 8}")
        return tuple(given)

    def seeds(self, given: Any) -> tuple[int, ...]:
        count = given if isinstance(given, int) and not isinstance(given, bool) else None
        if (count or 0) > MOST_POINTS or (isinstance(given, list) and len(given) > MOST_POINTS):
            raise self.fail("there are too many seeds", f"{MOST_POINTS:,} or fewer, as many as a grid may have points")
        seeds = given if count is None else list(range(count))
        whole = isinstance(seeds, list) and all(isinstance(seed, int) and not isinstance(seed, bool) for seed in seeds)
        if not whole or not seeds or min(seeds) < 0 or max(seeds) >= 2**32:
            raise self.fail(
                f"seeds is {as_argument(given)}",
                "how many (1 or more), or a list of whole numbers from 0 to 4294967295",
            )
        if len(set(seeds)) < len(seeds):
            raise self.fail(f"seeds is {as_argument(given)}", "each seed once")
        return tuple(seeds)

    def metrics(self, given: Any) -> tuple[str, ...]:
        names = [] if given is None else given
        if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
            raise self.fail(f"metrics is {as_argument(given)}", "a list of names, such as [val/loss]")
        return tuple(names)

    def name(self, given: Any) -> str | None:
        if given is not None and not (isinstance(given, str) and re.fullmatch(r"\w[\w+-]*", given)):
            raise self.fail(f"name is {as_argument(given)}", "a word for the folder of its runs, such as my_study")
        return given

    def protocol(self, given: Any, seeds: Sequence[int], metrics: Sequence[str]) -> Protocol | None:
        protocol = read_protocol(given, seeds, metrics, lambda key: check_key(key, f"{self.path}, protocol"), self.fail)
        for value in protocol.values if protocol else ():
            self.value(protocol.key if protocol else "", value, "protocol")
        if protocol is not None and protocol.key == CONFIG:
            raise self.fail(f"protocol: {CONFIG} is no setting to choose", "one such as model.optimizer.lr")
        return protocol

    def chain(self, given: Any, file: GridFile) -> Chain | None:
        listed = dict.fromkeys(key for entry in file.list for key in (*entry.settings, "label"))
        return read_chain(
            given,
            file.product,
            file.zip,
            listed,
            file.protocol is not None,
            lambda key: check_key(key, f"{self.path}, chain"),
            self.fail,
        )

    def check_lengths(self, axes: Mapping[str, Sequence[Any]]) -> None:
        if len({len(values) for values in axes.values()}) > 1:
            lengths = ", ".join(f"{key} has {len(values)}" for key, values in axes.items())
            raise self.fail("the axes of zip have not the same number of values", given=lengths)

    def check_once(self, file: GridFile) -> None:
        """Refuses an axis that is given in two places, one of which would be lost."""
        listed = dict.fromkeys(key for entry in file.list for key in entry.settings)
        places = {"settings": file.settings, "product": file.product, "zip": file.zip, "list": listed}
        if file.protocol is not None:
            places["protocol"] = {file.protocol.key: None}
        if file.chain is not None:
            places["chain"] = {file.chain.into: None}
        given: dict[str, str] = {}
        for place, keys in places.items():
            for key in keys:
                # an entry of the list may differ from the settings of all points
                if key in given and (given[key], place) != ("settings", "list"):
                    raise self.fail(
                        f"{key} is given twice",
                        f"under {given[key]} or under {place}",
                    )
                given.setdefault(key, place)
