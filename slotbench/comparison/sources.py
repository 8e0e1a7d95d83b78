"""The sources of a comparison: run folders, grids, CSV files and W&B projects, from what is typed to the runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from slotbench.comparison.run_folders import find_run_folders, read_run_folder
from slotbench.comparison.runs import FACTS, ComparisonError, Protocol, Run, Runs
from slotbench.comparison.settings import SEED
from slotbench.errors import FileError
from slotbench.io import read_json_object_or_none, read_yaml

__all__ = ["read_sources"]


@dataclass
class _Found:
    """What has been read so far."""

    runs: list[Run] = field(default_factory=list)
    metrics: list[str] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    protocols: list[Protocol] = field(default_factory=list)
    grids: int = 0


def read_sources(arguments: Sequence[str], runs_dir: Path = Path("runs")) -> Runs:
    """Reads every argument: a run folder, a folder of runs, a grid file, a CSV of runs, or `wandb:ENTITY/PROJECT`.

    Args:
        arguments: at least one.
        runs_dir: where the runs of a grid file are.

    Raises:
        ComparisonError: an argument is none of these, or there is nothing to compare.
    """
    found = _Found()
    for argument in arguments:
        if argument.startswith("wandb:"):
            from slotbench.comparison.wandb_runs import read_wandb

            found.titles.append(argument.removeprefix("wandb:"))
            found.runs += read_wandb(found.titles[-1])
        elif argument.endswith(".csv"):
            _add_csv(Path(argument), found)
        elif os.path.isfile(argument):
            _add_folder(_grid_folder(Path(argument), runs_dir, found), found)
        else:
            found.titles.append(_title(Path(argument)))
            _add_folder(Path(argument), found)
    if not found.runs:
        raise ComparisonError("; ".join(found.notes) or f"no runs in {', '.join(arguments)}")
    unique: dict[str, Run] = {}
    places = set()
    for run in found.runs:
        if (place := os.path.realpath(run.facts["source"])) not in places or "://" in place:
            places.add(place)
            name = next(name for count in range(len(found.runs)) if (name := _numbered(run.id, count)) not in unique)
            unique[name] = replace(run, id=name)
    single = len(arguments) == 1 and found.protocols
    return Runs(
        unique,
        metrics=list(dict.fromkeys(found.metrics)),
        title=found.titles[0] if len(set(found.titles)) == 1 else _common_title(found),
        notes=found.notes,
        protocol=found.protocols[0] if single else None,
        is_grid=found.grids == len(arguments),
    )


def _numbered(name: str, count: int) -> str:
    return f"{name}~{count + 1}" if count else name


def _title(path: Path) -> str:
    place = path.resolve()
    return place.parent.name if (path / "run.json").is_file() else place.name


def _common_title(found: _Found) -> str:
    groups = {run.facts.get("group") for run in found.runs}
    return (groups.pop() if len(groups) == 1 else None) or f"{len(found.runs)} runs"


def _add_csv(path: Path, found: _Found) -> None:
    """A line a run: a study's records, or what `slotbench compare --runs --out FILE.csv` has written."""
    try:
        names = pd.read_csv(path, nrows=0).columns
        texts = dict.fromkeys((name for name in names if "/" not in name), str)
        table = pd.read_csv(path, dtype=texts)
    except FileNotFoundError as error:
        raise ComparisonError(f"there is no file {path}") from error
    except (OSError, ValueError) as error:
        raise ComparisonError(f"{path} is no CSV of runs: {error}") from error
    table = table.rename(columns={"point": "run", "grid": "group", "steps": "step", "seed": SEED})
    if "reported" in table:
        # what was run to choose flatters the seed that it was made on
        table = table[table.pop("reported") == "True"]
    numeric = {"step", "seconds", "seconds_per_step", "parameters", "diverged_at", "gain_in_last_quarter"}
    if "hours" in table:
        table["seconds"] = 3600 * table.pop("hours").astype(float)
    for position, (_, row) in enumerate(table.iterrows()):
        known = row.dropna().to_dict()
        run_id = str(known.pop("run", position))
        scores = {name: known.pop(name) for name in list(known) if "/" in name}
        facts = {name: known.pop(name) for name in FACTS if name in known}
        facts |= {name: float(facts[name]) for name in numeric if name in facts}
        defaults = {"name": run_id, "source": f"{path}#{run_id}", "state": "finished"}
        found.runs.append(Run(run_id, defaults | facts, {key: str(value) for key, value in known.items()}, scores))
    found.titles.append(path.stem)


def _grid_folder(path: Path, runs_dir: Path, found: _Found) -> Path:
    """The folder that a grid file's points run in."""
    grid = _yaml(path)
    if not isinstance(grid, dict) or "base" not in grid:
        runs = runs_dir / path.stem
        near = f"; did you mean {runs}?" if runs.is_dir() else ""
        raise ComparisonError(
            f"{path} is a file without `base`, so no grid; expected a run folder, a folder of runs, or "
            f"a grid file{near}"
        )
    name = str(grid.get("name") or path.stem)
    folder = runs_dir / name
    if not folder.is_dir():
        raise ComparisonError(
            f"no point of {path} has run yet: there is no {folder}; `slotbench grid run {path}` makes the runs, "
            "--runs_dir DIR says where they are"
        )
    found.titles.append(name)
    found.metrics += map(str, grid.get("metrics") or ())
    return folder


def _add_folder(path: Path, found: _Found) -> None:
    if not path.is_dir():
        raise ComparisonError(f"there is no run {path}")
    if not found.metrics and (path / "grid.yaml").is_file():
        found.metrics += map(str, (_yaml(path / "grid.yaml") or {}).get("metrics") or ())
    folders = list(find_run_folders(path))
    record = read_json_object_or_none(path / "grid.json")
    points = {point["id"] for point in record.get("points", ())} if record else set()
    if not folders and not points:
        raise ComparisonError(f"no runs in {path}: neither it nor a folder in it, three deep, holds run.json")
    if record:
        found.grids += 1
        protocol = record.get("protocol")
        if protocol:
            given = {name: protocol.get(name) or () for name in ("values", "variants")}
            seeds = protocol.get("seed")
            seeds = seeds if isinstance(seeds, list) else [seeds]
            found.protocols.append(Protocol(protocol["choose"], seeds=seeds, metric=protocol.get("by", ""), **given))
        # what was run to choose is not reported: a choice flatters the seed that it was made on
        no_rows = {point["id"] for point in record.get("points", ()) if point.get("stage") == "choose"}
        if starts := points & set(record.get("starts", ())):
            found.notes.append(f"{len(starts)} points of {path.name} that the others start from are no rows")
        points -= no_rows | starts
        others = [folder for folder in folders if folder.name not in points | no_rows | starts]
        folders = [folder for folder in folders if folder.name in points and (folder / "run.json").is_file()]
        if len(folders) < len(points):
            found.notes.append(f"{len(points) - len(folders)} of the {len(points)} points of {path} have not run yet")
        if others:
            found.notes.append(f"{len(others)} runs in {path} are no points of the grid as it is now, and left out")
    for folder in folders:
        try:
            found.runs.append(read_run_folder(folder))
        except (ComparisonError, FileError, OSError) as error:
            found.notes.append(f"{error}: left out" if len(folders) > 1 else str(error))


def _yaml(path: Path) -> Any:
    try:
        return read_yaml(path)
    except FileError as error:
        raise ComparisonError(str(error)) from error
