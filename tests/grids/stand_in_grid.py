"""A grid whose points are trained by the stand-in, for the tests of what runs grids."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from slotbench.commands.grid import run as grid_run
from slotbench.grids.expansion import Grid, expand
from slotbench.grids.grid_file import read_grid_file

STAND_IN = Path(__file__).with_name("stand_in_fit.py")
FILE = """
base: base.yaml
product:
  model.core.dim: [{widths}]
seeds: {seeds}
"""

# `slotbench` with the stand-in in the place of `fit`
_PROGRAM = """
import signal, sys
# ignored in what a shell has started in the background, and inherited from there
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, {here!r})
import stand_in_grid
stand_in_grid.stand_in()
from slotbench.cli import run
sys.exit(run(sys.argv[1:]))
"""


def stand_in(monkeypatch: pytest.MonkeyPatch | None = None) -> None:
    """From now on the stand-in trains, and the parser is not asked."""
    patch = monkeypatch.setattr if monkeypatch else setattr
    patch(grid_run, "_FIT", (sys.executable, "-S", str(STAND_IN)))
    patch(grid_run, "_check_before_start", lambda opened, unchecked, given: None)


def write_grid(folder: Path, widths: Sequence[int] = (1, 2), seeds: int = 1, name: str = "widths") -> Grid:
    """Writes `NAME.yaml` and its base into a folder."""
    (folder / "base.yaml").write_text("model: {class_path: TinyTask}\n")
    (folder / "faults").mkdir(exist_ok=True)
    file = folder / f"{name}.yaml"
    file.write_text(FILE.format(widths=", ".join(map(str, widths)), seeds=seeds))
    return expand(read_grid_file(file))


def write_protocol(folder: Path, widths: Sequence[int] = (1, 2), rates: Sequence[float] = (0.1, 0.2, 0.3)) -> Grid:
    """The same with a protocol: the rates on seed 9, then the seeds 0 and 1. The best rate is a tenth of the width."""
    write_grid(folder, widths, seeds=2)
    with open(folder / "widths.yaml", "a") as file:
        file.write(f"metrics: [val/loss]\nprotocol: {{values: {list(rates)}, seed: 9}}\n")
    return expand(read_grid_file(folder / "widths.yaml"))


def fault(folder: Path, width: int, seed: int, what: str) -> Path:
    """From now on this goes wrong with the point of that width and seed."""
    path = folder / "faults" / f"{width}-{seed}"
    path.write_text(what)
    return path


def driver(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """`slotbench ARGUMENTS` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM.format(here=str(Path(__file__).parent)), *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )


def wait_until(what: Callable[[], object], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it has not come to that"
        time.sleep(0.02)


def starts(grid_folder: Path) -> dict[str, int]:
    """How often the stand-in has trained each point, by its own account."""
    return {path.parent.name: len(path.read_text().split()) for path in grid_folder.glob("*/starts.txt")}


def losses(grid_folder: Path) -> dict[str, float]:
    """What the points have come to."""
    found = {}
    for path in grid_folder.glob("*/result.json"):
        found[path.parent.name.rpartition("-")[0]] = json.loads(path.read_text())["metrics"]["val/loss"]
    return found
