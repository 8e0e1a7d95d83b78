"""Seconds and peak memory of `slotbench compare` on many long runs, as a process of its own.

    python benchmarks/compare_runs.py            # 200 runs of 10,000 lines of metrics
    python benchmarks/compare_runs.py --quick    # 20 runs of 1,000 lines

The runs are made up: 40 variants of five seeds, 40 scores of validation in every hundredth line, a configuration of
the size that `fit` writes. Every command is measured several times; what is printed is the fastest, and the largest
memory. On a busy machine the processor's seconds say more.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

SEEDS, SCORES, EVERY = 5, 40, 100
CORES = ["SlotSSM", "RIM", "SlotTransformer", "SplitSSM"]
BUDGET_S, BUDGET_MB = 5.0, 500.0


def make_runs(root: Path, num_runs: int, num_rows: int) -> None:
    for index in range(num_runs):
        folder = root / f"variant{index // SEEDS:02d}" / f"20260101-000000-{index:04x}"
        folder.mkdir(parents=True)
        chance = random.Random(index)
        lines, last = [], {}
        for row in range(num_rows):
            step = 25 * row + 24
            values = {"train/loss": chance.random()}
            if row % EVERY == EVERY - 1:
                values = {"val/loss": chance.random()} | {
                    f"val/score_{k:02d}": chance.random() for k in range(SCORES - 1)
                }
                last |= values
            lines.append(json.dumps({"step": step, "epoch": 0, "seconds": 0.1 * step, **values}))
        (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
        (folder / "config.yaml").write_text(yaml.safe_dump(config(index), sort_keys=False))
        (folder / "run.json").write_text(json.dumps(record(folder.name, index, 25 * num_rows, last), indent=2))


def config(index: int) -> dict:
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


def record(run_id: str, index: int, steps: int, metrics: dict[str, float]) -> dict:
    headlines = [
        {"metric": f"val/score_{k:02d}", "label": f"score {k}", "higher_is_better": True, "floors": {"nothing": 0.1}}
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


def measure(command: list[str], repeats: int) -> tuple[float, float, float]:
    """Least seconds, least seconds of the processor, and most MB of resident memory."""
    seconds, busy, memory = [], [], []
    for _ in range(repeats):
        begun = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        seconds.append(time.perf_counter() - begun)
        process.returncode = os.waitstatus_to_exitcode(status)
        busy.append(usage.ru_utime + usage.ru_stime)
        memory.append(usage.ru_maxrss / 1024)
        if process.returncode:
            raise SystemExit(f"exit code {process.returncode}: {' '.join(command)}")
    return min(seconds), min(busy), max(memory)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--runs", type=int)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    num_runs = given.runs or (20 if given.quick else 200)
    num_rows = given.rows or (1000 if given.quick else 10_000)
    with tempfile.TemporaryDirectory() as scratch:
        make_runs(Path(scratch) / "runs", num_runs, num_rows)
        base = [sys.executable, "-m", "slotbench", "compare", str(Path(scratch) / "runs")]
        kinds = {
            "table": base,
            "table of the best validations": [*base, "--select", "best"],
            "table and page": [*base, "--html", str(Path(scratch) / "page.html")],
        }
        print(f"{num_runs} runs of {num_rows:,} lines; budget {BUDGET_S:g} s and {BUDGET_MB:g} MB")
        within = True
        for what, command in kinds.items():
            seconds, busy, memory = measure(command, given.repeats)
            within &= seconds < BUDGET_S and memory < BUDGET_MB
            print(f"{what:<30}  {seconds:6.2f} s  ({busy:.2f} s of the processor)  {memory:6.0f} MB", flush=True)
    return int(not within)


if __name__ == "__main__":
    sys.exit(main())
