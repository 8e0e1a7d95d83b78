"""How the threads of a training wait, on an idle machine and beside other work: seconds of a training, in turns.

    python benchmarks/waiting_threads.py                 # as the machine is
    python benchmarks/waiting_threads.py --beside 4      # beside four processes that never rest

Each round runs README's first experiment for some steps, without validation, in a process of its own for every way to
wait. Printed are milliseconds a step, the median over rounds, and the ratio to the first way, round by round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WAYS: dict[str, tuple[dict[str, str], list[str]]] = {
    "threads spin": ({"GOMP_SPINCOUNT": "300000"}, []),  # what libgomp does where nothing is said
    "threads sleep": ({"OMP_WAIT_POLICY": "PASSIVE"}, []),
    "spin for 1,000 turns": ({"GOMP_SPINCOUNT": "1000"}, []),
    "spin for 10,000 turns": ({"GOMP_SPINCOUNT": "10000"}, []),
    "one thread": ({"OMP_WAIT_POLICY": "PASSIVE"}, ["--threads", "1"]),
}


def seconds_per_step(way: str, steps: int) -> float:
    """Seconds of a training step, waiting this way."""
    variables, options = WAYS[way]
    unset = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OMP_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in unset} | variables
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [sys.executable, "-m", "slotbench", "fit", "--config", str(ROOT / "experiments/blinking_balls.yaml")]
        command += ["--run_dir", str(run), "--trainer.max_steps", str(steps), "--trainer.limit_val_batches", "0"]
        subprocess.run([*command, *options], env=environment, check=True, stdout=subprocess.DEVNULL)
        seconds: float = json.loads((run / "run.json").read_text(encoding="utf-8"))["seconds_per_step"]
    return seconds


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", type=int, default=0, help="processes that never rest, started here")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    given = parser.parse_args()
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(given.beside)]
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    try:
        for _ in range(given.rounds):
            for way, times in found.items():
                times.append(seconds_per_step(way, given.steps))
                print(f"{way}: {1000 * times[-1]:.0f} ms, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    finally:
        for process in busy:
            process.kill()
    first = found[next(iter(WAYS))]
    print("| threads | ms a step | beside the first |\n|---|---:|---:|")
    for way, times in found.items():
        ratios = [own / other for own, other in zip(times, first, strict=True)]
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"| {way} | {1000 * statistics.median(times):.0f} | {spread} |")


if __name__ == "__main__":
    main()
