"""What a grid adds to running its points by hand, and how long its status takes.

The points are stand-ins: a process that starts Python, writes `result.json` and ends. By hand means the same commands,
one after the other. Of the grid it is the whole of `slotbench grid run`, a process of its own, its own start included,
without the check by the parser, which takes as long for 1,000 points as for one.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from slotbench.bench.contest import Contest, Seconds, Way, run_process
from slotbench.bench.subjects import Subject

__all__ = ["SUBJECT"]

STAND_IN = """
import json, os, sys
folder = sys.argv[sys.argv.index("--run_dir") + 1]
os.makedirs(folder, exist_ok=True)
with open(os.path.join(folder, "result.json"), "w") as file:
    json.dump({"id": "x", "step": 1, "seconds": 0.1, "seconds_per_step": 0.1, "metrics": {"val/loss": 0.5}}, file)
"""

PROGRAM = """
import sys
from slotbench.commands.grid import check as grid_check
from slotbench.grids import jobs
jobs.fit_command = lambda point, folder, options: [
    sys.executable, "-S", "stand_in.py", *jobs.fit_arguments(point, folder, options)
]
grid_check.check_before_start = lambda opened, unchecked: None
from slotbench.cli import run
sys.exit(run(sys.argv[1:]))
"""


def contests(quick: bool) -> Iterator[Contest]:
    """A grid against its commands by hand; then the status of a grid with points done, failed and waiting."""
    points, many = (10, 100) if quick else (100, 1000)
    yield Contest(f"{points} points", partial(_run, points), "by hand")
    yield Contest(f"{many} points", partial(_status, many), "status", group="status")


def _run(points: int) -> dict[str, Way]:
    folder = tempfile.TemporaryDirectory()
    root, turns = Path(folder.name), count()
    _write_grid(root, points)
    grid_command = [sys.executable, "-c", PROGRAM, "grid", "run", "grid.yaml", "--runs_dir"]

    def as_a_grid() -> Seconds:
        shutil.rmtree(root / "grid", ignore_errors=True)
        return run_process([*grid_command, "grid"], root)

    def by_hand() -> Seconds:
        # the commands of the grid that has just run, into another folder
        other = f"hand{next(turns)}"
        recorded = sorted((root / "grid" / "grid").glob("*/point.json"))
        commands = [json.loads(path.read_text())["command"] for path in recorded]
        own = [[word.replace("grid/", f"{other}/", 1) for word in command] for command in commands]
        return Seconds(sum(run_process(command, root).seconds for command in own))

    return {"as a grid": as_a_grid, "by hand": lambda _=folder: by_hand()}  # type: ignore[misc]


def _status(points: int) -> dict[str, Way]:
    folder = tempfile.TemporaryDirectory()
    root = Path(folder.name)
    _write_grid(root, points)
    command = [sys.executable, "-c", PROGRAM, "grid"]
    run_process([*command, "run", "grid.yaml", "--runs_dir", "many", "--only", "num_slots=0"], root)
    listed = json.loads((root / "many" / "grid" / "grid.json").read_text())["points"]
    for index, point in enumerate(listed):
        if index % 3 < 2:  # the third is waiting
            _leave_a_run(root / "many" / "grid" / point["id"], point, done=index % 3 == 0)
    status = [*command, "status", "grid.yaml", "--runs_dir", "many"]
    return {"status": lambda _=folder: run_process(status, root, codes=(0, 1))}  # type: ignore[misc]


def _leave_a_run(path: Path, point: dict[str, Any], done: bool) -> None:
    metrics = {f"val/metric{n}": 0.5 for n in range(40)}
    path.mkdir(exist_ok=True)
    (path / "point.json").write_text(json.dumps(point))
    if done:
        result = {"step": 10, "seconds": 20.0, "metrics": metrics, "headlines": [{"metric": "val/metric0"}]}
        (path / "result.json").write_text(json.dumps(result))
    else:
        record = {"state": "failed", "step": 3, "total_steps": 10, "metrics": metrics}
        (path / "run.json").write_text(json.dumps(record))
    events = [{"attempt": 1, "started": "now", "engine": "local"}, {"attempt": 1, "ended": "now", "exit_code": 1}]
    (path / "attempts.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    (path / "log.txt").write_text("step 3\nRuntimeError: no\n" * 50)


def _write_grid(folder: Path, points: int) -> None:
    """A grid of that many points on one axis."""
    (folder / "stand_in.py").write_text(STAND_IN)
    (folder / "base.yaml").write_text("model: {class_path: SlotAutoencoding}\n")
    values = ", ".join(map(str, range(points)))
    (folder / "grid.yaml").write_text(f"base: base.yaml\nproduct: {{model.core.num_slots: [{values}]}}\n")


SUBJECT = Subject("grids of stand-ins that do next to nothing", "grid", contests, rounds=3)
