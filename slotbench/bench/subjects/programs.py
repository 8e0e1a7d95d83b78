"""Videos of MOViLike, and commands of slotbench as processes of their own."""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from slotbench.bench.contests import Contest, Seconds, Way, run_process
from slotbench.bench.harness import python
from slotbench.data.clip_cache import ClipCache
from slotbench.data.movi_like.movi_like import MOViLike
from slotbench.data.movi_like.physics import simulate

# --- data

LAPTOP: dict[str, Any] = {"resolution": 32, "num_objects": (3, 6), "video_frames": 12}
LAPTOP |= {"object_sizes": (0.9, 1.3), "spread": 2.7, "zoom": 1.05}


def movi_like(quick: bool) -> list[Contest]:
    """One contest per size and level."""
    sizes: dict[str, dict[str, Any]] = {f"a, {side}x{side}, 24 frames": {"resolution": side} for side in (32, 64, 128)}
    levels: dict[str, dict[str, Any]] = {f"{level}, 64x64, 24 frames": {"level": level} for level in ("tex", "cam")}
    settings = {"laptop: a, 32x32, 12 frames": LAPTOP, **sizes, **levels}
    return [
        Contest(name, partial(_video_ways, arguments, 4 if quick else 48), "made", unit="videos")
        for name, arguments in list(settings.items())[: 1 if quick else None]
    ]


def _video_ways(arguments: dict[str, Any], kept: int) -> dict[str, Way]:
    """Physics and drawing, the physics alone, and what a cache reads back."""
    data = MOViLike(**arguments, train_videos=1_000_000, val_videos=kept, test_videos=1)
    source: Any = data.simulated("train")
    folder = tempfile.TemporaryDirectory()
    data._write("val", Path(folder.name) / "val", lambda *_: None)
    cache, turns, rng = ClipCache(Path(folder.name) / "val"), count(), np.random.default_rng(0)
    frames = source.num_frames

    def read(_folder: Any) -> None:
        cache.read([int(rng.integers(0, kept))], [0], frames)

    return {
        "made": lambda: source.read([next(turns)], [0], frames),
        "physics alone": lambda: simulate(source.scene(next(turns)), frames),
        # the way keeps the folder alive
        "read back": partial(read, folder),
    }


# --- grids

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


def grids(quick: bool) -> list[Contest]:
    """A grid against its commands by hand; then the status of a grid with points done, failed and waiting.

    The points are stand-ins: a process that starts Python, writes `result.json` and ends. By hand means the same
    commands, one after the other. The grid is the whole of `slotbench grid run`, its own start included, without the
    check by the parser, which takes as long for 1,000 points as for one.
    """
    points, many = (10, 100) if quick else (100, 1000)
    return [
        Contest(f"{points} points", partial(_run_ways, points), "by hand"),
        Contest(f"{many} points", partial(_status_ways, many), "status", group="status"),
    ]


def _run_ways(points: int) -> dict[str, Way]:
    folder = _grid_folder(points)
    root, turns = Path(folder.name), count()
    grid_command = [sys.executable, "-c", PROGRAM, "grid", "run", "grid.yaml", "--runs_dir", "grid"]

    def as_a_grid() -> Seconds:
        shutil.rmtree(root / "grid", ignore_errors=True)
        return run_process(grid_command, root)

    def by_hand(_folder: Any) -> Seconds:
        # the commands of the grid that has just run, into another folder
        other = f"hand{next(turns)}"
        recorded = sorted((root / "grid" / "grid").glob("*/point.json"))
        commands = [json.loads(path.read_text())["command"] for path in recorded]
        own = [[word.replace("grid/", f"{other}/", 1) for word in command] for command in commands]
        return Seconds(sum(run_process(command, root).seconds for command in own))

    # the way keeps the folder alive
    return {"as a grid": as_a_grid, "by hand": partial(by_hand, folder)}


def _status_ways(points: int) -> dict[str, Way]:
    folder = _grid_folder(points)
    root = Path(folder.name)
    command = [sys.executable, "-c", PROGRAM, "grid"]
    run_process([*command, "run", "grid.yaml", "--runs_dir", "many", "--only", "num_slots=0"], root)
    metrics = {f"val/metric{n}": 0.5 for n in range(40)}
    done = {"step": 10, "seconds": 20.0, "metrics": metrics, "headlines": [{"metric": "val/metric0"}]}
    failed = {"state": "failed", "step": 3, "total_steps": 10, "metrics": metrics}
    events = [{"attempt": 1, "started": "now", "engine": "local"}, {"attempt": 1, "ended": "now", "exit_code": 1}]
    listed = json.loads((root / "many" / "grid" / "grid.json").read_text())["points"]
    for index, point in enumerate(listed):
        if index % 3 == 2:
            continue  # it waits
        path = root / "many" / "grid" / point["id"]
        path.mkdir(exist_ok=True)
        (path / "point.json").write_text(json.dumps(point))
        name, record = ("run.json", failed) if index % 3 else ("result.json", done)
        (path / name).write_text(json.dumps(record))
        (path / "attempts.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
        (path / "log.txt").write_text("step 3\nRuntimeError: no\n" * 50)

    def status(_folder: Any) -> Seconds:
        return run_process([*command, "status", "grid.yaml", "--runs_dir", "many"], root, codes=(0, 1))

    return {"status": partial(status, folder)}


def _grid_folder(points: int) -> tempfile.TemporaryDirectory[str]:
    """A folder with a grid of that many points on one axis."""
    folder = tempfile.TemporaryDirectory()
    root = Path(folder.name)
    (root / "stand_in.py").write_text(STAND_IN)
    (root / "base.yaml").write_text("model: {class_path: SlotAutoencoding}\n")
    values = ", ".join(map(str, range(points)))
    (root / "grid.yaml").write_text(f"base: base.yaml\nproduct: {{model.core.num_slots: [{values}]}}\n")
    return folder


# --- comparison

CORES = ("SlotSSM", "RIM", "SlotTransformer", "SplitSSM")
SEEDS, SCORES, EVERY = 5, 40, 100


def comparison(quick: bool) -> list[Contest]:
    """One contest, of runs that are made up."""
    num_runs, num_rows = (20, 1_000) if quick else (200, 10_000)
    ways = partial(_comparison_ways, num_runs, num_rows)
    return [Contest(f"{num_runs} runs of {num_rows:,} lines", ways, "table")]


def _comparison_ways(num_runs: int, num_rows: int) -> dict[str, Way]:
    folder = tempfile.TemporaryDirectory()
    root = Path(folder.name)
    for index in range(num_runs):
        _make_run(root / "runs" / f"variant{index // SEEDS:02d}" / f"20260101-000000-{index:04x}", index, num_rows)
    more = {
        "table": [],
        "table of the best validations": ["--select", "best"],
        "table and page": ["--html", str(root / "page.html")],
    }

    def compare(words: list[str], _folder: Any) -> Seconds:
        return run_process(python("slotbench", "compare", str(root / "runs"), *words))

    return {name: partial(compare, words, folder) for name, words in more.items()}


def _make_run(folder: Path, index: int, num_rows: int) -> None:
    """One of five seeds of a variant: 40 scores of validation in every hundredth line."""
    folder.mkdir(parents=True)
    chance, variant = random.Random(index), index // SEEDS
    lines: list[str] = []
    last: dict[str, float] = {}
    for row in range(num_rows):
        values = {"train/loss": chance.random()}
        if row % EVERY == EVERY - 1:
            values = {"val/loss": chance.random()}
            values |= {f"val/score_{k:02d}": chance.random() for k in range(SCORES - 1)}
            last |= values
        step = 25 * row + 24
        lines.append(json.dumps({"step": step, "epoch": 0, "seconds": 0.1 * step, **values}))
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")

    def part(name: str, size: int, **more: Any) -> dict[str, Any]:
        return {"class_path": name, "init_args": {**more, **{f"argument_{k}": 0.5 * k + 0.25 for k in range(size)}}}

    parts = {
        "encoder": part("PatchEncoder", 10),
        "core": part(CORES[variant % len(CORES)], 12, num_slots=2 + variant // len(CORES)),
        "decoder": part("TransformerDecoder", 10),
        "optimizer": part("torch.optim.AdamW", 10),
    }
    config = {
        "seed_everything": index % SEEDS,
        "model": {"class_path": "VideoPrediction", "init_args": parts},
        "data": part("BouncingBalls", 18),
        "trainer": {f"argument_{k}": None for k in range(38)},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    headline = {"higher_is_better": True, "baselines": {"nothing": 0.1}}
    steps = 25 * num_rows
    record = {
        "id": folder.name,
        "name": f"variant{variant:02d}",
        "state": "finished",
        "step": steps,
        "total_steps": steps,
        "seconds_per_step": 0.1,
        "parameters": {"encoder": 1, "core": 2, "decoder": 3, "total": 6},
        "headlines": [{"metric": f"val/score_{k:02d}", "label": f"score {k}", **headline} for k in range(3)],
        "metrics": last,
        "best": {name: {"value": value, "step": steps} for name, value in last.items()},
    }
    (folder / "run.json").write_text(json.dumps(record, indent=2))
