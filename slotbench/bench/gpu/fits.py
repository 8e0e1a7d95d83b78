"""One training as a process of its own: `slotbench fit` on a configuration written for it, and what its record says."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from slotbench.bench.gpu.plan import Settings
from slotbench.bench.job import OUT_OF_MEMORY
from slotbench.bench.results import OUT_OF_TIME
from slotbench.files import read_json_object_or_none, write_atomically
from slotbench.yaml_files import read_yaml

__all__ = ["PRECISIONS", "START", "Fit", "experiment", "merged"]

PRECISIONS = {"fp32": "32-true", "bf16": "bf16-mixed"}
"""Names in the report, and what Lightning calls them."""

START = 60.0
"""Seconds that a training may take beside its steps: imports, workers, the device, the last checkpoint."""
_PATIENCE = 30.0  # seconds from the signal that ends a training to the one that kills it


def experiment(*files: str) -> dict[str, Any]:
    """The configuration of experiment files, later ones over earlier ones.

    Raises:
        FileError: a file is not there, or is no YAML.
    """
    config: dict[str, Any] = {}
    for file in files:
        config = merged(config, read_yaml(file))
    return config


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` over `below`; another class takes none of the arguments of the one before."""
    result = copy.deepcopy(dict(below))
    for key, value in above.items():
        old = result.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            another = "class_path" in value and value["class_path"] != old.get("class_path")
            result[key] = copy.deepcopy(dict(value)) if another else merged(old, value)
        else:
            result[key] = copy.deepcopy(value)
    return result


@dataclass(frozen=True)
class Fit:
    """A training that ends by its steps or by its time, whichever comes first.

    Attributes:
        config: of the experiment.
        folder: the run folder.
        steps: to train for.
        seconds: to train for, at most.
        precision: one of `PRECISIONS`.
        validate: whether the experiment's own validations are made.
        resumes: whether a run that is there is resumed; it is made anew otherwise.
    """

    config: Mapping[str, Any]
    folder: Path
    steps: int
    seconds: int | float
    precision: str = "fp32"
    validate: bool = False
    resumes: bool = False

    def run(self, settings: Settings) -> dict[str, Any]:
        """What came of it: the numbers of its record, or a "problem" with a "message"."""
        file = self.folder.with_name(f"{self.folder.name}.yaml")
        write_atomically(file, json.dumps(self._whole_config(settings), indent=1))  # JSON is YAML
        command = [sys.executable, "-P", "-m", "slotbench", "fit", "--config", str(file)]
        command += ["--run_dir", str(self.folder), "--allow-import", "slotbench.bench.gpu"]
        if self.resumes:
            command.append("--allow-changes")  # the time that is left is another one
        else:
            shutil.rmtree(self.folder, ignore_errors=True)
        command += [] if self.validate else ["--no-final-validation"]
        with open(self.folder.with_name(f"{self.folder.name}.log"), "w+", encoding="utf-8", errors="replace") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
            timed_out = False
            try:
                process.wait(self.seconds + START)
            except subprocess.TimeoutExpired:
                timed_out = True
            finally:
                _end(process)
            log.seek(0)
            said = [line.strip() for line in log if line.strip()]
        return self._outcome(process.returncode, timed_out, said)

    def _whole_config(self, settings: Settings) -> dict[str, Any]:
        trainer = {
            "accelerator": "gpu" if settings.device == "cuda" else "cpu",
            "devices": 1,
            "precision": PRECISIONS[self.precision],
            "max_steps": self.steps,
            "max_time": _clock_time(self.seconds),
        }
        if not self.validate:
            trainer |= {"limit_val_batches": 0, "num_sanity_val_steps": 0, "log_every_n_steps": 10}
        return merged(self.config, {"trainer": trainer})

    def _outcome(self, code: int, timed_out: bool, said: list[str]) -> dict[str, Any]:
        record = read_json_object_or_none(self.folder / "run.json") or {}
        speed, memory = record.get("seconds_per_step"), record.get("peak_device_memory")
        found = {
            "steps": record.get("step"),
            "steps_per_second": 1 / speed if isinstance(speed, float) and speed > 0 else None,
            "memory_mb": memory / 1e6 if memory else None,
            "parameters": (record.get("parameters") or {}).get("total"),
            "kernels": record.get("kernels"),
            "state": record.get("state"),
        }
        if timed_out:
            return found | {
                "problem": OUT_OF_TIME,
                "message": f"longer than {self.seconds + START:.0f} s with its start",
            }
        if code:
            # a run that was not even started has said why; one that was has an error in its record
            last = record.get("error") or _sentence(said) or f"exit code {code}"
            lost = "out of memory" in f"{last} {' '.join(said[-40:])}".lower() or "OutOfMemory" in last
            return found | {"problem": OUT_OF_MEMORY if lost else "error", "message": last}
        return found


def _end(process: subprocess.Popen[bytes]) -> None:
    """Lets a training that is still there write its checkpoint, then ends it."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _sentence(said: list[str]) -> str:
    """What `slotbench` said in refusing a command, else the last line."""
    refusals = [index for index, line in enumerate(said) if line.startswith("slotbench:")]
    return " ".join(said[refusals[-1] : refusals[-1] + 3]) if refusals else (said[-1] if said else "")


def _clock_time(seconds: int | float) -> str:
    """As Lightning's trainer takes a duration: DD:HH:MM:SS."""
    whole = timedelta(seconds=max(1, round(seconds)))
    minutes, rest = divmod(whole.seconds, 60)
    return f"{whole.days:02d}:{minutes // 60:02d}:{minutes % 60:02d}:{rest:02d}"
