"""The sources of a comparison: folders, grids and W&B projects, from what is typed to the runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from slotbench.comparison.protocol import GridProtocol, read_protocol
from slotbench.comparison.records import ComparisonError, RunRecord
from slotbench.comparison.run_folders import find_run_folders, read_run_folder
from slotbench.errors import FileError
from slotbench.files import read_json
from slotbench.records import valid_part
from slotbench.runs.folder import RECORD, RunFolder, RunFolderError
from slotbench.runs.grid_record import GridRecord
from slotbench.yaml_files import read_yaml

__all__ = ["Sources", "open_sources", "read_sources"]

_GRID = "grid.yaml"
_ONLINE, _OFFLINE = "wandb:", "wandb-offline:"


@dataclass
class Sources:
    """What the arguments stand for.

    Attributes:
        runs: every run once.
        metrics: what a grid file wants to be compared by.
        titles: a name for each argument.
        notes: what was found and left out.
        protocols: of the grids that have one.
        grids: how many of the arguments are grids.
    """

    runs: list[RunRecord] = field(default_factory=list)
    metrics: list[str] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    protocols: list[GridProtocol] = field(default_factory=list)
    grids: int = 0

    @property
    def protocol(self) -> GridProtocol | None:
        """That of the only grid; runs of several grids have none in common."""
        return self.protocols[0] if len(self.protocols) == len(self.titles) == 1 else None

    @property
    def title(self) -> str:
        """What all of the runs have in common: an argument's name, their group, or the beginning of the names."""
        titles = list(dict.fromkeys(self.titles))
        if len(titles) == 1:
            return titles[0]
        groups = {run.info.get("group") for run in self.runs}
        if len(groups) == 1 and (group := groups.pop()):
            return str(group)
        first, last = min(titles), max(titles)
        same = next(
            (place for place, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first)
        )
        common = first[:same].rstrip("-_=. ")
        return common if len(common) > 2 else f"{len(self.runs)} runs"


def read_sources(arguments: Sequence[str], runs_dir: Path = Path("runs")) -> list[RunRecord]:
    """The runs of `open_sources` alone."""
    return open_sources(arguments, runs_dir).runs


def open_sources(arguments: Sequence[str], runs_dir: Path = Path("runs")) -> Sources:
    """Reads every argument: a run folder, a folder of runs, a grid file, `wandb:ADDRESS` or `wandb-offline:DIR`.

    Args:
        arguments: at least one.
        runs_dir: where the runs of a grid file are.

    Raises:
        ComparisonError: an argument is none of these, or there is nothing to compare.
    """
    sources = Sources()
    seen: set[Path] = set()
    for argument in arguments:
        if argument.startswith((_ONLINE, _OFFLINE)):
            _add_wandb(argument, sources)
            continue
        path = Path(argument)
        if os.path.isfile(path):
            path = _grid_folder(path, runs_dir, sources)
        else:
            sources.titles.append(_title(path))
        _add_folder(path, sources, seen)
    if not sources.runs:
        raise ComparisonError("; ".join(sources.notes) or f"no runs in {', '.join(arguments)}")
    sources.metrics = list(dict.fromkeys(sources.metrics))
    _make_ids_unique(sources.runs)
    return sources


def _title(path: Path) -> str:
    place = Path(os.path.realpath(path))  # which loops of links do not end
    return place.parent.name if os.path.isfile(path / RECORD) else place.name


def _add_wandb(argument: str, sources: Sources) -> None:
    from slotbench.comparison.wandb.offline import read_wandb_offline
    from slotbench.comparison.wandb.online import read_wandb

    kind, _, address = argument.partition(":")
    if not address:
        raise ComparisonError(f"{argument} names nothing; type wandb:ENTITY/PROJECT or wandb-offline:FOLDER")
    found = read_wandb(address) if kind == "wandb" else read_wandb_offline(Path(address))
    if not found:
        sources.notes.append(f"no runs in {argument}")
    sources.runs += found
    sources.titles.append(address)


def _grid_folder(path: Path, runs_dir: Path, sources: Sources) -> Path:
    """The folder that a grid file's points run in."""
    grid = _yaml(path)
    if not isinstance(grid, dict) or "base" not in grid:
        runs = runs_dir / path.stem
        raise ComparisonError(
            f"{path} is a file without `base`, so no grid; expected a run folder, a folder of runs, or a grid file"
            + (f"; did you mean {runs}?" if runs.is_dir() else "")
        )
    given = grid.get("name")
    name = given if isinstance(given, str) and Path(given).name == given else path.stem
    folder = runs_dir / name
    if not folder.is_dir():
        raise ComparisonError(
            f"no point of {path} has run yet: there is no {folder}; `slotbench grid run {path}` makes the runs, "
            "--runs_dir DIR says where they are"
        )
    sources.titles.append(name)
    sources.metrics += _metrics(grid)
    return folder


def _add_folder(path: Path, sources: Sources, seen: set[Path]) -> None:
    if not os.path.isdir(path):
        try:
            RunFolder.open(path)
        except RunFolderError as error:
            raise ComparisonError(str(error)) from error
    if os.path.isfile(path / _GRID) and not sources.metrics:
        try:
            sources.metrics += _metrics(_yaml(path / _GRID))
        except ComparisonError as error:
            # the runs are there all the same
            sources.notes.append(f"the grid's own metrics are not known: {error}")
    folders = list(find_run_folders(path))
    points, starts, protocol = _points(path)
    sources.grids += bool(points)
    if not folders and not points:
        raise ComparisonError(f"no runs in {path}: neither it nor a folder in it, three deep, holds {RECORD}")
    # what was run to choose is not reported: a choice flatters the seed that it was made on
    no_rows = starts | (protocol.choosing if protocol is not None else set())
    folders = [folder for folder in folders if folder.name not in no_rows]
    points -= no_rows
    others = [folder for folder in folders if points and folder.name not in points]
    if starts:
        sources.notes.append(f"{len(starts)} points of {path.name} that the others start from are no rows")
    if protocol is not None:
        sources.protocols.append(protocol)
        if not points:
            sources.notes.append(f"no seed of {path} is to be reported yet: slotbench grid status says what is missing")
    # a point that has not begun may have a folder already
    waiting = [
        folder for folder in folders if not os.path.exists(folder / RECORD) and os.path.exists(folder / "point.json")
    ]
    for folder in folders:
        if (resolved := Path(os.path.realpath(folder))) in seen or folder in others or folder in waiting:
            continue
        seen.add(resolved)
        try:
            sources.runs.append(read_run_folder(folder))
        except (ComparisonError, FileError, OSError) as error:
            sources.notes.append(f"{error}: left out" if len(folders) > 1 else str(error))
    begun = len(folders) - len(others) - len(waiting)
    expected = max(len(points), begun + len(waiting))
    if begun < expected:
        sources.notes.append(f"{expected - begun} of the {expected} points of {path} have not run yet")
    if others:
        sources.notes.append(
            f"{len(others)} runs in {path} are no points of the grid as it is now, and left out, "
            f"such as {others[0].name}"
        )


def _points(path: Path) -> tuple[set[str], set[str], GridProtocol | None]:
    """The folders of a grid's points, those that others start from, its protocol; none if the folder is no grid's."""
    try:
        record = valid_part(read_json(path / "grid.json"), GridRecord)
    except FileError:
        return set(), set(), None
    points = {point["id"] for point in record.get("points", ())}
    return points, points & set(record.get("starts", ())), read_protocol(record)


def _yaml(path: Path) -> Any:
    try:
        return read_yaml(path)
    except FileError as error:
        raise ComparisonError(str(error).splitlines()[0]) from error


def _metrics(grid: Any) -> list[str]:
    wanted = grid.get("metrics") if isinstance(grid, dict) else None
    return [str(name) for name in wanted] if isinstance(wanted, list) else []


def _make_ids_unique(runs: list[RunRecord]) -> None:
    taken: set[str] = set()
    for index, run in enumerate(runs):
        name, count = run.id, 1
        while name in taken:
            count += 1
            name = f"{run.id}~{count}"
        taken.add(name)
        if name != run.id:
            runs[index] = replace(run, id=name)
