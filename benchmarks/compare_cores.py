"""Trains every core of experiments/matched/EXPERIMENT over several seeds, and draws the table and the curves.

    python benchmarks/compare_cores.py run bouncing_balls --seeds 3 --jobs 2
    python benchmarks/compare_cores.py report bouncing_balls --out docs/assets

Each run is an ordinary one, `slotbench fit --config experiments/EXPERIMENT.yaml --config
experiments/matched/EXPERIMENT/CORE.yaml --seed_everything SEED`, below RUNS/EXPERIMENT-CORE-seedN; a run that has
finished is not made again. The order is seed by seed, so that an interrupted comparison still compares.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]


def cores_of(experiment: str) -> list[str]:
    return sorted(path.stem for path in (ROOT / "experiments" / "matched" / experiment).glob("*.yaml"))


def finished(folder: Path) -> Path | None:
    """The newest finished run below `folder`."""
    runs = [path for path in sorted(folder.glob("*/run.json")) if json.loads(path.read_text())["state"] == "finished"]
    return runs[-1].parent if runs else None


def train(experiment: str, core: str, seed: int, runs: Path, settings: list[str]) -> str:
    name = f"{experiment}-{core}-seed{seed}"
    if finished(runs / name):
        return f"{name}: done before"
    matched = ROOT / "experiments" / "matched" / experiment / f"{core}.yaml"
    command = [sys.executable, "-m", "slotbench", "fit", "--config", str(ROOT / "experiments" / f"{experiment}.yaml")]
    command += ["--config", str(matched), "--seed_everything", str(seed), "--name", name, "--runs_dir", str(runs)]
    command += ["--group", f"{experiment}-cores", "--threads", "1", *settings]
    (runs / "logs").mkdir(parents=True, exist_ok=True)
    with (runs / "logs" / f"{name}.log").open("w") as log:
        code = subprocess.run(
            command, stdout=log, stderr=log, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=False
        ).returncode
    return f"{name}: {'finished' if code == 0 else f'FAILED, exit code {code}; see {log.name}'}"


def run(args: argparse.Namespace) -> int:
    cores = args.cores or cores_of(args.experiment)
    with ThreadPoolExecutor(args.jobs) as pool:
        jobs = [
            pool.submit(train, args.experiment, core, seed, args.runs, args.settings)
            for seed in range(args.first_seed, args.first_seed + args.seeds)
            for core in cores
        ]
        failed = 0
        for job in jobs:
            print(job.result(), flush=True)
            failed += "FAILED" in job.result()
    return int(failed > 0)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = top.add_subparsers(required=True)
    training = commands.add_parser("run")
    training.add_argument("experiment")
    training.add_argument("--cores", nargs="+")
    training.add_argument("--seeds", type=int, default=3)
    training.add_argument("--first-seed", type=int, default=0)
    training.add_argument("--jobs", type=int, default=1)
    training.add_argument("--runs", type=Path, default=Path("runs"))
    training.add_argument("--settings", nargs=argparse.REMAINDER, default=[])
    training.set_defaults(function=run)
    return top


if __name__ == "__main__":
    given = parser().parse_args()
    sys.exit(given.function(given))
