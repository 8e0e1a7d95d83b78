"""The slices of `slotbench bench cores` and of training steps at the papers' sizes."""

from __future__ import annotations

import copy
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slotbench.bench.gpu.plan import Items, OutOfTimeError, Settings, run_command
from slotbench.bench.harness import OUT_OF_MEMORY, OUT_OF_TIME, python
from slotbench.files import read_json_object_or_none, write_atomically
from slotbench.yaml_files import read_yaml

__all__ = ["CASES", "Case", "case_config", "compiled", "cores", "fit", "merged", "small_data", "training"]


# --- slotbench bench cores

_SIZES = ["--lengths", "80", "320", "640", "1280", "2560", "--timeout", "15", "--memory", "40"]
_QUICK_SIZES = ["--lengths", "4", "8", "--timeout", "60", "--memory", "4", "--quick"]


def cores(settings: Settings, items: Items, names: Sequence[str]) -> str:
    """Runs the command, which resumes by itself; returns how many points there are."""
    out = items.path.with_suffix(".cores")
    command = python("slotbench", "bench", "cores", *names[: 1 if settings.quick else None], "--out", str(out))
    command += ["--device", settings.device, *(_QUICK_SIZES if settings.quick else _SIZES)]
    items["command"] = {"command": command[3:], "points": None}
    code = run_command(command, items.left(), items.log)
    if code:
        raise RuntimeError(f"slotbench bench cores ended with code {code}; {items.log.name} says more")
    points = (read_json_object_or_none(out / "cores.json") or {"points": []})["points"]
    failed = [point for point in points if point.get("problem") == "error"]
    items["command"] |= {"points": len(points), "errors": len(failed)}
    items.write()
    message = f"{len(points)} points{f', {len(failed)} errors' if failed else ''}"
    if code is None:
        raise OutOfTimeError(message)
    return message


# --- one training

PRECISIONS = {"fp32": "32-true", "bf16": "bf16-mixed"}
"""Names in the report, and what Lightning calls them."""
START = 60.0
"""Seconds that a training may take beside its steps: imports, workers, the device, the last checkpoint."""
_PROFILE = "slotbench.bench.gpu.step_profile.StepProfile"


def fit(
    settings: Settings,
    items: Items,
    config: Mapping[str, Any],
    folder: Path,
    steps: int,
    seconds: float,
    precision: str,
    mode: str = "off",
) -> dict[str, Any]:
    """Trains with `slotbench fit` until its steps or its time are over, whichever comes first, and profiles it.

    Args:
        settings: of the command.
        items: of the slice, whose log gets what the command prints, and whose time ends it.
        config: of the experiment.
        folder: the run folder.
        steps: to train for.
        seconds: to train for, at most.
        precision: one of `PRECISIONS`.
        mode: of `--compile`.

    Returns:
        The numbers of the run's record and of its `StepProfile`, with a "problem" and a "message" where something went
        wrong.
    """
    profile: dict[str, Any] = {"path": f"{folder}.profile"}
    if settings.quick:
        profile |= {"warmup": 0, "timed": 1, "recorded": 1}
    trainer: dict[str, Any] = {"accelerator": "gpu" if settings.device == "cuda" else "cpu", "devices": 1}
    trainer |= {"precision": PRECISIONS[precision], "max_steps": steps, "max_time": {"seconds": round(seconds)}}
    trainer |= {"limit_val_batches": 0, "num_sanity_val_steps": 0, "log_every_n_steps": 10}
    trainer |= {"callbacks": [{"class_path": _PROFILE, "init_args": profile}]}
    write_atomically(Path(f"{folder}.yaml"), json.dumps(merged(config, {"trainer": trainer}), indent=1))  # JSON is YAML
    command = python("slotbench", "fit", "--config", f"{folder}.yaml", "--run_dir", str(folder), "--compile", mode)
    before = items.log.stat().st_size if items.log.is_file() else 0
    limit = min(seconds + START, items.left())
    code = run_command([*command, "--no-final-validation", "--allow-import", _PROFILE], limit, items.log)
    printed = items.log.read_bytes()[before:].decode(errors="replace").splitlines()
    record = read_json_object_or_none(folder / "run.json") or {}
    found = outcome(record, code or 0, [line.strip() for line in printed if line.strip()])
    if (profiled := read_json_object_or_none(Path(profile["path"]))) is not None:
        found |= {"profile": profiled, "steps_per_second": 1 / profiled["seconds_per_step"]}
    if code is None:
        found |= {"problem": OUT_OF_TIME, "message": f"longer than {limit:.0f} s with its start"}
    return found


def outcome(record: Mapping[str, Any], code: int, printed: list[str]) -> dict[str, Any]:
    """The numbers of a run's record; a "problem" with a "message" where the exit code is one.

    Args:
        record: of the run; empty where it was not even started.
        code: exit code of the command.
        printed: lines that it printed.
    """
    speed, memory = record.get("seconds_per_step"), record.get("peak_device_memory")
    found = {
        "steps": record.get("step"),
        "steps_per_second": 1 / speed if isinstance(speed, float) and speed > 0 else None,
        "memory_mb": memory / 1e6 if memory else None,
        "parameters": (record.get("parameters") or {}).get("total"),
        "kernels": record.get("kernels"),
        "state": record.get("state"),
    }
    if code:
        # the refusal of a command has a line that begins like this
        refusals = [index for index, line in enumerate(printed) if line.startswith("slotbench:")]
        shown = printed[refusals[-1] : refusals[-1] + 3] if refusals else printed[-1:]
        message = record.get("error") or " ".join(shown) or f"exit code {code}"
        lost = "out of memory" in f"{message} {' '.join(printed[-40:])}".lower() or "OutOfMemory" in message
        found |= {"problem": OUT_OF_MEMORY if lost else "error", "message": message}
    return found


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` over `below`; another class takes none of the arguments of the one before."""
    result = copy.deepcopy(dict(below))
    for key, value in above.items():
        old = result.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            another = "class_path" in value and value["class_path"] != old.get("class_path")
            result[key] = merged({} if another else old, value)
        else:
            result[key] = copy.deepcopy(value)
    return result


def small_data(given: Mapping[str, Any]) -> dict[str, Any]:
    """Smaller frames and shorter clips, as far as the parts of the models take them."""
    smaller = {"resolution": 16, "num_frames": 2, "digit_size": 7, "eval_frames": 3}
    if "patches_per_side" in given:
        smaller |= {"resolution": 32, "num_frames": 3, "patches_per_side": 2}
    return {name: min(value, int(given[name])) for name, value in smaller.items() if given.get(name) is not None}


# --- training at the papers' sizes

STEPS, COMPILED_STEPS, QUICK_STEPS = 300, 40, 2
_LEAST = 10.0  # seconds of training at the least: where not all get as much, the last ones are left out
_PAPER = "experiments/paper"


@dataclass(frozen=True)
class Case:
    """A family's experiment.

    Attributes:
        family: of models.
        files: the experiment, and what is laid over it.
        stands_in: what is simulated in the place of which data; "" where the experiment's own data is simulated.
    """

    family: str
    files: tuple[str, ...]
    stands_in: str = ""


CASES = (
    Case("SlotSSM", (f"{_PAPER}/blinking_balls_earliest_t6_p4.yaml",)),
    Case("OC-SlotSSM", (f"{_PAPER}/movi_a_ocslotssm.yaml",), "moving sprites for MOVi-A"),
    Case("PSB", (f"{_PAPER}/movi_a_psb.yaml",), "moving sprites for MOVi-A"),
    Case("SAVi", (f"{_PAPER}/movi_a_savi.yaml",), "moving sprites for MOVi-A"),
    Case("STEVE", (f"{_PAPER}/movi_c_steve.yaml",), "moving sprites for MOVi-C"),
    Case("ConvS5", (f"{_PAPER}/moving_mnist_300_convs5.yaml",), "digits of noise for MNIST's, one clip on one device"),
    Case("ConvLSTM", (f"{_PAPER}/moving_mnist_300_convlstm.yaml",), "as for ConvS5"),
    Case("Slot Attention", (f"{_PAPER}/clevr6_weighted_mean.yaml",), "moving sprites for CLEVR6"),
    Case("RIM", (f"{_PAPER}/bouncing_balls.yaml", "experiments/matched/paper_bouncing_balls/RIM.yaml")),
    Case("SlotRNN", (f"{_PAPER}/bouncing_balls.yaml", "experiments/matched/paper_bouncing_balls/SlotRNN.yaml")),
)


@dataclass(frozen=True)
class Run:
    """A training of a slice.

    Attributes:
        case: what is trained.
        precision: one of `PRECISIONS`.
        mode: of `--compile`.
    """

    case: Case
    precision: str
    mode: str = "off"

    @property
    def key(self) -> str:
        """Of its item."""
        return f"{self.case.family}, {self.precision}{'' if self.mode == 'off' else f', compile {self.mode}'}"

    @property
    def share(self) -> int:
        """Of the time: compilation takes a minute."""
        return 1 if self.mode == "off" else 2


def training(settings: Settings, items: Items, families: Sequence[str]) -> str:
    """Trains each family that has no item yet, all in fp32 first; returns how many trainings there are.

    Raises:
        OutOfTimeError: some could not be begun.
    """
    cases = [case for case in CASES if case.family in families]
    return _train(settings, items, [Run(case, precision) for precision in PRECISIONS for case in cases], STEPS)


def compiled(settings: Settings, items: Items, families: Sequence[str]) -> str:
    """Trains each family as written and with its parts compiled; returns how many trainings there are.

    All are trained as written first, then as CUDA graphs, which promise most where starting operations takes the time.

    Raises:
        OutOfTimeError: some could not be begun.
    """
    cases = [case for case in CASES if case.family in families][: 1 if settings.quick else None]
    runs = [Run(case, "fp32", mode) for mode in ("off", "graphs", "on") for case in cases]
    return _train(settings, items, runs, COMPILED_STEPS)


def _train(settings: Settings, items: Items, runs: Sequence[Run], steps: int) -> str:
    waiting = [run for run in runs if run.key not in items]
    with tempfile.TemporaryDirectory() as scratch:
        for index, run in enumerate(waiting):
            left = items.left()
            if left < START / 2 + _LEAST:
                break
            # half of what a start may take, as most take less; a quick one has two steps, however slow
            share = left * run.share / sum(other.share for other in waiting[index:])
            seconds = left if settings.quick else max(share - START / 2, _LEAST)
            folder = Path(scratch, run.key.replace(", ", "-").replace(" ", "_"))
            config = case_config(run.case, Path(scratch), quick=settings.quick)
            wanted = QUICK_STEPS if settings.quick else steps
            found = fit(settings, items, config, folder, wanted, seconds, run.precision, run.mode)
            given = config["data"]["init_args"]
            kept = ("resolution", "num_frames", "patches_per_side")
            sizes = {
                "batch": given["loader"].get("batch_size"),
                **{name: given[name] for name in kept if name in given},
            }
            named: dict[str, Any] = {"family": run.case.family, "precision": run.precision, "compile": run.mode}
            named |= {"files": list(run.case.files), "stands_in": run.case.stands_in, "sizes": sizes}
            items[run.key] = {**named, **found}
    if missing := len(runs) - len(items):
        raise OutOfTimeError(f"{items.summary('run')}, {missing} not begun")
    return items.summary("run")


def case_config(case: Case, folder: Path, *, quick: bool) -> dict[str, Any]:
    """The case's experiment with data that needs no download.

    Models, batches, resolutions and numbers of frames are the paper's. Speed and memory do not depend on what the
    frames show, so data that would be downloaded is simulated at the same size.

    Args:
        case: the case.
        folder: for the file of made-up digits.
        quick: shrinks frames, clips and batches; the model stays as it is.
    """
    config: dict[str, Any] = {}
    for file in case.files:
        config = merged(config, read_yaml(file))
    data = config["data"]
    given = data.get("init_args", {})
    loader = dict(given.get("loader", {}))
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    loader["num_workers"] = 0 if quick else min(int(loader.get("num_workers", 0)), available)
    # enough for the steps, and made as quickly by every data set
    loader |= {"train_size": 200_000, "val_size": 64, "test_size": 64}
    if data["class_path"] in ("MOVi", "CLEVR"):
        sizes = {"resolution": given["resolution"], "num_frames": given.get("num_frames", 1), "eval_frames": 2}
        data = {"class_path": "MovingSprites", "init_args": sizes}
    elif data["class_path"] == "MovingMNIST":
        digits = folder / "digits.npy"
        if not digits.is_file():
            np.save(digits, np.random.default_rng(0).integers(0, 256, (100, 28, 28), dtype=np.uint8))
        data = merged(data, {"init_args": {"digits": str(digits)}})
    if quick:
        loader |= {"batch_size": 1, "val_batch_size": 1, "train_size": 64, "val_size": 4, "test_size": 4}
        data = merged(data, {"init_args": small_data(data["init_args"])})
    return merged(config, {"data": merged(data, {"init_args": {"loader": loader}})})
