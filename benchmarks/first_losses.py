"""Losses of the first steps of the laptop experiments on one thread, written down, or compared with what was.

    python benchmarks/first_losses.py --out today.json [EXPERIMENT ...]
    python benchmarks/first_losses.py --against today.json --within 0 [EXPERIMENT ...]

Every experiment is trained by `slotbench fit` for a few steps with nothing but its training loss. Exits 1 where a
loss differs by more than `--within`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def losses(experiment: str, steps: int, program: str) -> dict[str, float] | str:
    """Training loss by step; the end of what was printed if it failed."""
    with tempfile.TemporaryDirectory() as runs:
        command = [program, "fit", "--config", f"experiments/{experiment}.yaml", "--run_dir", f"{runs}/run"]
        command += ["--trainer.max_steps", str(steps), "--trainer.log_every_n_steps", "1"]
        command += ["--trainer.limit_val_batches", "0", "--trainer.accelerator", "cpu"]
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
        ended = subprocess.run(
            command, cwd=ROOT, env=os.environ | threads, capture_output=True, text=True, errors="replace"
        )
        rows = Path(runs, "run", "metrics.jsonl")
        if not rows.exists():
            return (ended.stdout + ended.stderr)[-600:]
        found = [json.loads(line) for line in rows.read_text().splitlines()]
        return {str(row["step"]): float(row["train/loss"]) for row in found if "train/loss" in row}


def main() -> int:
    """Runs the experiments one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiments", nargs="*", help="names; by default all of experiments/*.yaml")
    parser.add_argument("--out", type=Path, help="JSON to write, after every experiment")
    parser.add_argument("--against", type=Path, help="JSON that was written before")
    parser.add_argument("--within", type=float, default=0.0, help="largest relative difference of a loss")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--program", default=str(Path(sys.executable).with_name("slotbench")))
    given = parser.parse_args()
    before = json.loads(given.against.read_text()) if given.against else {}
    names = given.experiments or sorted(path.stem for path in ROOT.glob("experiments/*.yaml"))
    found, differing = {}, []
    for name in names:
        found[name] = losses(name, given.steps, given.program)
        if given.out:
            given.out.write_text(json.dumps(found, indent=1))
        if isinstance(found[name], str):
            print(f"{name}: {found[name]}", flush=True)
            continue
        line = f"{name}: {len(found[name])} losses, the last {list(found[name].values())[-1]:.9g}"
        if isinstance(before.get(name), dict):
            pairs = [(value, found[name].get(step, math.nan)) for step, value in before[name].items()]
            largest = max(abs(old - new) / max(abs(old), 1e-12) if new == new else math.inf for old, new in pairs)
            line += f"; largest difference {largest:.3g} over {len(pairs)}"
            if largest > given.within:
                differing.append(name)
        print(line, flush=True)
    print(f"differing: {', '.join(differing) or 'none'}" if before else "")
    return bool(differing)


if __name__ == "__main__":
    sys.exit(main())
