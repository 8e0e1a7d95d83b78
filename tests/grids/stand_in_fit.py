"""Stands in for `slotbench fit` in the tests of grids: starts at once, and fails in every way that a training can.

    python stand_in_fit.py [arguments of fit] --run_dir DIR

What is to go wrong is written in the file `faults/<width>-<seed>` or `faults/<width>-<seed>-<rate>` of the working
directory.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path

STEPS = 4


def value(flag: str) -> str:
    return sys.argv[sys.argv.index(flag) + 1]


def write(path: Path, content: dict) -> None:
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(json.dumps(content))
    os.replace(partial, path)


def main() -> None:
    folder = Path(value("--run_dir"))
    if (folder / "result.json").exists():
        print("this run has finished")
        return
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        train(folder)


def train(folder: Path) -> None:
    width, seed = int(value("--model.core.dim")), int(value("--seed_everything"))
    with open(folder / "starts.txt", "a") as starts:
        starts.write("started\n")
    fault = Path("faults") / f"{width}-{seed}"
    if "--model.optimizer.lr" in sys.argv and not fault.exists():
        fault = Path("faults") / f"{width}-{seed}-{value('--model.optimizer.lr')}"
    what = fault.read_text() if fault.exists() else ""
    stopped = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    record = {"id": folder.name, "state": "running", "total_steps": STEPS, "host": "a", "pid": os.getpid()}
    saved = folder / "step.txt"
    step = int(saved.read_text()) if saved.exists() else 0
    while step < STEPS:
        step += 1
        write(folder / "run.json", {**record, "step": step})
        print(f"step {step}", flush=True)
        if what == "raise":
            raise RuntimeError("the loss is not finite")
        if what == "diverge" and step > 2:
            write(folder / "run.json", {**record, "step": step, "state": "diverged", "diverged_at": step})
            ended = {"state": "diverged", "diverged_at": step, "error": "the training has diverged", "step": step}
            write(folder / "result.json", {"id": folder.name, **ended, "metrics": {"val/loss": "NaN"}})
            sys.exit(1)
        if what == "kill":
            fault.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        (folder / "last.ckpt").write_bytes(bytes(200_000))
        saved.write_text(str(step))
        while what == "wait" and fault.exists() and not stopped:
            time.sleep(0.01)
        if stopped and step < STEPS:
            write(folder / "run.json", {**record, "step": step, "state": "interrupted"})
            sys.exit(128 + signal.SIGTERM)
    write(folder / "run.json", {**record, "step": step, "state": "finished"})
    loss = width + seed / 10
    if "--model.optimizer.lr" in sys.argv:
        # the best learning rate is a tenth of the width
        loss += abs(float(value("--model.optimizer.lr")) - width / 10)
    loss = float(what.removeprefix("loss ")) if what.startswith("loss ") else loss
    result = {"id": folder.name, "step": step, "seconds": 2.0, "seconds_per_step": 0.5, "metrics": {"val/loss": loss}}
    write(folder / "result.json", {**result, "headlines": [{"metric": "val/loss"}]})


main()
