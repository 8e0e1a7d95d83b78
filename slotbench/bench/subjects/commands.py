"""Commands of slotbench as processes of their own: what a grid adds to its points, and comparing many runs."""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from slotbench.bench.subjects import Subject
from slotbench.bench.timing import Contest, Seconds, Way, run_process

__all__ = ["SUBJECTS"]

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


def _grids(quick: bool) -> Iterator[Contest]:
    """A grid against its commands by hand; then the status of a grid with points done, failed and waiting.

    The points are stand-ins: a process that starts Python, writes `result.json` and ends. By hand means the same
    commands, one after the other. The grid is the whole of `slotbench grid run`, its own start included, without the
    check by the parser, which takes as long for 1,000 points as for one.
    """
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

    def by_hand(_folder: Any) -> Seconds:
        # the commands of the grid that has just run, into another folder
        other = f"hand{next(turns)}"
        recorded = sorted((root / "grid" / "grid").glob("*/point.json"))
        commands = [json.loads(path.read_text())["command"] for path in recorded]
        own = [[word.replace("grid/", f"{other}/", 1) for word in command] for command in commands]
        return Seconds(sum(run_process(command, root).seconds for command in own))

    # the way keeps the folder alive
    return {"as a grid": as_a_grid, "by hand": partial(by_hand, folder)}


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


SEEDS, SCORES, EVERY = 5, 40, 100
CORES = ("SlotSSM", "RIM", "SlotTransformer", "SplitSSM")
SIZE, QUICK_SIZE = (200, 10_000), (20, 1_000)


def _comparison(quick: bool) -> Iterator[Contest]:
    """One contest, of runs that are made up."""
    num_runs, num_rows = QUICK_SIZE if quick else SIZE
    yield Contest(f"{num_runs} runs of {num_rows:,} lines", partial(_comparison_ways, num_runs, num_rows), "table")


def _comparison_ways(num_runs: int, num_rows: int) -> dict[str, Way]:
    folder = tempfile.TemporaryDirectory()
    root = Path(folder.name)
    _make_runs(root / "runs", num_runs, num_rows)
    command = [sys.executable, "-P", "-m", "slotbench", "compare", str(root / "runs")]
    more = {
        "table": [],
        "table of the best validations": ["--select", "best"],
        "table and page": ["--html", str(root / "page.html")],
    }
    # the ways keep the folder alive
    return {name: lambda words=words, _=folder: run_process([*command, *words]) for name, words in more.items()}  # type: ignore[misc]


def _make_runs(root: Path, num_runs: int, num_rows: int) -> None:
    """Variants of five seeds, 40 scores of validation in every hundredth line, a configuration as `fit` writes it."""
    for index in range(num_runs):
        folder = root / f"variant{index // SEEDS:02d}" / f"20260101-000000-{index:04x}"
        folder.mkdir(parents=True)
        chance = random.Random(index)
        lines: list[str] = []
        last: dict[str, float] = {}
        for row in range(num_rows):
            step = 25 * row + 24
            values = {"train/loss": chance.random()}
            if row % EVERY == EVERY - 1:
                scores = {f"val/score_{k:02d}": chance.random() for k in range(SCORES - 1)}
                values = {"val/loss": chance.random(), **scores}
                last |= values
            lines.append(json.dumps({"step": step, "epoch": 0, "seconds": 0.1 * step, **values}))
        (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
        (folder / "config.yaml").write_text(yaml.safe_dump(_config(index), sort_keys=False))
        (folder / "run.json").write_text(json.dumps(_record(folder.name, index, 25 * num_rows, last), indent=2))


def _config(index: int) -> dict[str, Any]:
    """As many settings as a run on bouncing balls has; core, slots and seed differ."""
    variant = index // SEEDS
    core = {"num_slots": 2 + variant // len(CORES), **{f"argument_{k}": 0.5 * k + 0.25 for k in range(12)}}
    part = {f"argument_{k}": 0.5 * k + 0.25 for k in range(10)}
    return {
        "seed_everything": index % SEEDS,
        "model": {
            "class_path": "VideoPrediction",
            "init_args": {
                "encoder": {"class_path": "PatchEncoder", "init_args": part},
                "core": {"class_path": CORES[variant % len(CORES)], "init_args": core},
                "decoder": {"class_path": "TransformerDecoder", "init_args": part},
                "optimizer": {"class_path": "torch.optim.AdamW", "init_args": part},
            },
        },
        "data": {"class_path": "BouncingBalls", "init_args": {f"argument_{k}": k for k in range(18)}},
        "trainer": {f"argument_{k}": None for k in range(38)},
    }


def _record(run_id: str, index: int, steps: int, metrics: dict[str, float]) -> dict[str, Any]:
    headlines = [
        {"metric": f"val/score_{k:02d}", "label": f"score {k}", "higher_is_better": True, "baselines": {"nothing": 0.1}}
        for k in range(3)
    ]
    return {
        "id": run_id,
        "name": f"variant{index // SEEDS:02d}",
        "state": "finished",
        "step": steps,
        "total_steps": steps,
        "seconds_per_step": 0.1,
        "parameters": {"encoder": 1, "core": 2, "decoder": 3, "total": 6},
        "headlines": headlines,
        "metrics": metrics,
        "best": {name: {"value": value, "step": steps} for name, value in metrics.items()},
    }


SUBJECTS = {
    "grids": Subject("grids of stand-ins that do next to nothing", "grid", _grids, rounds=3),
    "comparison": Subject("slotbench compare", "runs", _comparison, rounds=3),
}
