"""`slotbench grid show | test | probe | check FILE`: states and configurations of points, scores, the parser's word."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Sequence

from slotbench.commands.grid.opening import OpenGrid, open_grid
from slotbench.config.command_line import resolve
from slotbench.config.tree import material_settings
from slotbench.errors import FileError, UserError
from slotbench.grids.choosing import choose, find_point
from slotbench.grids.expansion import Point
from slotbench.grids.ledger import PointStatus
from slotbench.grids.protocol import choices
from slotbench.grids.status import points, status_lines
from slotbench.io import read_json_object
from slotbench.registry import RegistryError

__all__ = ["check", "probe", "problems", "show", "test"]


def show(given: argparse.Namespace, settings: list[str]) -> int:
    """Prints the state of every point, 0 if all are done; or one point's configuration, and the line that runs it."""
    opened = open_grid(given, settings)
    if given.point is not None:
        point = find_point(opened.grid, given.point)
        print(f"# {point.id}\n# {shlex.join(['slotbench', 'fit', *opened.fit_arguments(point)])}")
        print(resolve([*point.arguments, *opened.options]).yaml(), end="")
        return 0
    chosen = _chosen(given, opened)
    found = [opened.folder.point(point.id).status(opened.grid.file.metrics) for point in chosen]
    if opened.remembered:
        print(f"as last run, with {shlex.join(opened.changes)}")
    print("\n".join(status_lines(opened.grid, opened.folder, chosen, found)))
    return 0 if _is_done(opened, chosen, found) else 1


def test(given: argparse.Namespace, settings: list[str]) -> int:
    """Tests the reported points that are done, with these settings; 0 if all reported ones have been tested."""
    return _evaluate(given, settings, "test", "tested")


def probe(given: argparse.Namespace, settings: list[str]) -> int:
    """Probes the reported points that are done, with these options; 0 if all reported ones have been probed."""
    return _evaluate(given, settings, "probe", "probed")


def _evaluate(given: argparse.Namespace, settings: list[str], how: str, done_so: str) -> int:
    """Runs a command for the reported points that are done, unless it has been run with the same settings."""
    opened = open_grid(given, [])
    reported = [point for point in _chosen(given, opened) if point.stage != "choose"]
    if not reported:
        raise UserError(f"{opened.folder.path} has no reported points yet; slotbench grid run {given.file} first")
    options = [*opened.options, *(["--threads", str(given.threads)] if given.threads else [])]
    wanted = material_settings(settings)
    missing = failed = 0
    for number, point in enumerate(reported, 1):
        folder = opened.folder.point(point.id)
        if folder.ended() != "done":
            missing += 1
        elif wanted not in [read_json_object(path).get("settings", {}) for path in folder.path.glob(f"{how}*.json")]:
            print(f"{number} of {len(reported)}  {point.id}", flush=True)
            command = [sys.executable, "-P", "-m", "slotbench", how, str(folder.path), *options, *settings]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            if done.returncode:
                failed += 1
                print(f"  failed: {done.stdout.decode(errors='replace').strip()[-400:]}", file=sys.stderr)
    evaluated = len(reported) - missing - failed
    print(f"{opened.folder.path}: {evaluated} of {len(reported)} reported points {done_so}, {missing} not done")
    return int(bool(missing or failed))


def check(given: argparse.Namespace, settings: list[str]) -> int:
    """Asks the parser about every point."""
    opened = open_grid(given, settings, remember=False)
    chosen = choose(opened.grid, given.only)
    found = problems(chosen, opened.options)
    if not found:
        print(f"{given.file}: {points(len(chosen))}, and the parser takes all of them")
        return 0
    by_message: dict[str, list[Point]] = {}
    for point, message in found:
        by_message.setdefault(message, []).append(point)
    report = [f"{points(len(found))} of {len(chosen)} in {given.file} cannot be run"]
    for message, same in by_message.items():
        more = f" and {len(same) - 1} more" if len(same) > 1 else ""
        report += [f"{same[0].id}{more}:", *(f"  {line}" for line in message.splitlines())]
    raise UserError("\n".join(report))


def problems(chosen: Sequence[Point], options: Sequence[str]) -> list[tuple[Point, str]]:
    """The points that the parser refuses, with its messages."""
    found = []
    for point in chosen:
        try:
            resolve([*point.arguments, *options])
        except (UserError, RegistryError, FileError) as error:
            found.append((point, str(error)))
    return found


def _chosen(given: argparse.Namespace, opened: OpenGrid) -> list[Point]:
    """The points that `--only` asks for, of those that the grid has by now."""
    return [point for point in choose(opened.grid, given.only) if point in opened.grid.points]


def _is_done(opened: OpenGrid, chosen: Sequence[Point], found: Sequence[PointStatus]) -> bool:
    """Whether all points are done; a candidate of the protocol may have diverged instead."""
    states = {
        status.state
        for point, status in zip(chosen, found, strict=True)
        if not (status.state == "diverged" and point.stage == "choose")
    }
    return states <= {"done"} and all(choice.chosen is not None for choice in choices(opened.grid, opened.folder))
