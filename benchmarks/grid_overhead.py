"""What a grid adds to running its points by hand, and how long its status takes.

    python benchmarks/grid_overhead.py            # 100 points, status of 1,000: about a minute
    python benchmarks/grid_overhead.py --quick    # 20 points, status of 200

The points are stand-ins: a process that starts Python, writes `result.json` and ends. By hand means the same commands,
one after the other, from a loop in one process. What is measured of the grid is the whole of `slotbench grid run`, in
a process of its own, its own start-up included, without the check by the parser, which takes as long for 1,000 points
as for one. The two are run in turn; printed are the smallest difference and the median, once of the wall clock and once
of the processor's seconds, which say more on a busy machine.

Bars: 50 ms per point; 1 s for the status of 1,000 points.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

STAND_IN = """
import json, os, sys
folder = sys.argv[sys.argv.index("--run_dir") + 1]
os.makedirs(folder, exist_ok=True)
with open(os.path.join(folder, "result.json"), "w") as file:
    json.dump({"id": "x", "step": 1, "seconds": 0.1, "seconds_per_step": 0.1, "metrics": {"val/loss": 0.5}}, file)
"""

PROGRAM = """
import sys
from slotbench.commands import grid_checking
from slotbench.grids import jobs
jobs.fit_command = lambda point, folder, options: [
    sys.executable, "-S", "stand_in.py", *jobs.fit_arguments(point, folder, options)
]
grid_checking.check_before_start = lambda opened, unchecked: None
from slotbench.cli import run
sys.exit(run(sys.argv[1:]))
"""


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    points, many = (20, 200) if given.quick else (100, 1000)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "stand_in.py").write_text(STAND_IN)
        (folder / "base.yaml").write_text("model: {class_path: SlotAutoencoding}\n")
        added = overhead(folder, points, given.repeats)
        seconds = status(folder, many, given.repeats)
    found = {
        "points": points,
        "added_ms_per_point": summary(wall for wall, _ in added),
        "added_cpu_ms_per_point": summary(cpu for _, cpu in added),
        "status_points": many,
        "status_seconds": summary(wall for wall, _ in seconds),
        "status_cpu_seconds": summary(cpu for _, cpu in seconds),
    }
    print(json.dumps(found, indent=2))
    if given.out:
        given.out.write_text(json.dumps(found, indent=2) + "\n")


def summary(values: Iterable[float]) -> dict[str, float]:
    """The smallest and the median."""
    values = list(values)
    return {"min": round(min(values), 2), "median": round(statistics.median(values), 2)}


def overhead(folder: Path, points: int, repeats: int) -> list[tuple[float, float]]:
    """Milliseconds per point that a grid adds, of the wall clock and of the processor, once per repeat."""
    write_grid(folder, points)
    added = []
    for repeat in range(repeats):
        grid, grid_cpu = timed(folder, "grid", "run", "grid.yaml", "--runs_dir", f"grid{repeat}")
        recorded = sorted((folder / f"grid{repeat}" / "grid").glob("*/point.json"))
        commands = [json.loads(path.read_text())["command"] for path in recorded]
        by_hand = [[word.replace(f"grid{repeat}/", f"hand{repeat}/") for word in command] for command in commands]
        began, began_cpu = time.perf_counter(), children()
        for command in by_hand:
            subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        hand, hand_cpu = time.perf_counter() - began, children() - began_cpu
        print(f"{points} points: {grid:.2f} s as a grid, {hand:.2f} s by hand", file=sys.stderr)
        added.append(((grid - hand) / points * 1000, (grid_cpu - hand_cpu) / points * 1000))
    return added


def status(folder: Path, points: int, repeats: int) -> list[tuple[float, float]]:
    """Seconds, of both clocks, that the status takes where a third is done, a third failed and a third waiting."""
    write_grid(folder, points)
    timed(folder, "grid", "run", "grid.yaml", "--runs_dir", "many", "--only", "num_slots=0")
    listed = json.loads((folder / "many" / "grid" / "grid.json").read_text())["points"]
    record = {"state": "failed", "step": 3, "total_steps": 10, "metrics": {f"val/metric{n}": 0.5 for n in range(40)}}
    for index, point in enumerate(listed):
        if index % 3 == 2:
            continue
        path = folder / "many" / "grid" / point["id"]
        path.mkdir(exist_ok=True)
        (path / "point.json").write_text(json.dumps(point))
        done = {"step": 10, "seconds": 20.0, "metrics": record["metrics"], "headlines": [{"metric": "val/metric0"}]}
        (path / ("run.json" if index % 3 else "result.json")).write_text(json.dumps(record if index % 3 else done))
        events = [{"attempt": 1, "started": "now", "engine": "local"}, {"attempt": 1, "ended": "now", "exit_code": 1}]
        (path / "attempts.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
        (path / "log.txt").write_text("step 3\nRuntimeError: no\n" * 50)
    return [timed(folder, "grid", "status", "grid.yaml", "--runs_dir", "many", code=1) for _ in range(repeats)]


def write_grid(folder: Path, points: int) -> None:
    """A grid of that many points on one axis."""
    values = ", ".join(map(str, range(points)))
    (folder / "grid.yaml").write_text(f"base: base.yaml\nproduct: {{model.core.num_slots: [{values}]}}\n")


def children() -> float:
    """Seconds that the processor has spent on our children so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timed(folder: Path, *arguments: str, code: int = 0) -> tuple[float, float]:
    """Seconds, of the wall clock and of the processor, of one `slotbench` command, its start-up included."""
    began, began_cpu = time.perf_counter(), children()
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], cwd=folder, capture_output=True, text=True)
    seconds = time.perf_counter() - began, children() - began_cpu
    if done.returncode != code:
        sys.exit(done.stdout + done.stderr)
    return seconds


if __name__ == "__main__":
    main()
