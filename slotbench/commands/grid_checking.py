"""Before a grid is run: the parser is asked, in a process of its own, whether it takes the points."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from slotbench.commands.grid_opening import OpenGrid
from slotbench.commands.grid_words import points
from slotbench.errors import UserError
from slotbench.grids.expansion import Point

__all__ = ["check_before_start", "covering"]


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


def check_before_start(opened: OpenGrid, unchecked: Sequence[Point]) -> None:
    """Checks a covering set of points and notes that they have been checked.

    Raises:
        UserError: the parser refuses some; it has said which and why.
    """
    some = covering(unchecked)
    print(f"asking the parser about {points(len(some))} with every value of every axis ...", flush=True)
    command = [sys.executable, "-P", "-m", "slotbench", "grid", "check", str(opened.grid.file.path)]
    command += ["--points", *(point.id for point in some), *opened.options, *opened.grid.extra]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr).strip().removeprefix("slotbench: ")
        raise UserError(f"nothing has been started: {said}")
    opened.folder.note_checked(unchecked)
