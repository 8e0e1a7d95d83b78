"""The stages that run whole commands: `slotbench bench cores`, trainings at the papers' sizes, and one experiment."""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slotbench.bench.gpu.plan import Items, OutOfTimeError, Settings, problem_of, run_command
from slotbench.bench.harness import OUT_OF_MEMORY, OUT_OF_TIME, python
from slotbench.files import read_json_object_or_none, write_atomically
from slotbench.yaml_files import read_yaml

__all__ = [
    "CASES",
    "PLANS",
    "Case",
    "cores",
    "experiment",
    "fit",
    "merged",
    "plan_config",
    "steps_that_fit",
    "training",
]


# --- slotbench bench cores

CORES = ("SlotSSM", "SlotTransformer", "SlotRNN", "RIM", "PSB", "ConvS5")
_SIZES = ["--lengths", "80", "640", "--timeout", "15", "--memory", "24"]
_QUICK_SIZES = ["--lengths", "4", "8", "--timeout", "60", "--memory", "4", "--quick"]


def cores(settings: Settings, items: Items) -> str:
    """Runs the command, which resumes by itself; returns how many points there are."""
    out = settings.out / "cores"
    command = python("slotbench", "bench", "cores", *CORES[: 1 if settings.quick else None], "--out", str(out))
    command += ["--device", settings.device, *(_QUICK_SIZES if settings.quick else _SIZES)]
    items["command"] = {"command": command[3:], "points": None}
    code = run_command(command, items.left(), items.log)
    if code:
        raise RuntimeError(f"slotbench bench cores ended with code {code}; cores.log says more")
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


def fit(
    settings: Settings,
    config: Mapping[str, Any],
    folder: Path,
    steps: int,
    seconds: float,
    *,
    precision: str = "fp32",
    to_its_end: bool = False,
) -> dict[str, Any]:
    """Runs `slotbench fit` until its steps or its time are over, whichever comes first.

    Args:
        settings: of the day.
        config: of the experiment.
        folder: the run folder.
        steps: to train for.
        seconds: to train for, at most.
        precision: one of `PRECISIONS`.
        to_its_end: validates, and resumes a run that is there; otherwise there is only training, always anew.

    Returns:
        The numbers of the run's record, with a "problem" and a "message" where something went wrong.
    """
    trainer: dict[str, Any] = {"accelerator": "gpu" if settings.device == "cuda" else "cpu", "devices": 1}
    trainer |= {"precision": PRECISIONS[precision], "max_steps": steps, "max_time": {"seconds": round(seconds)}}
    command = python("slotbench", "fit", "--config", f"{folder}.yaml", "--run_dir", str(folder))
    if to_its_end:
        command.append("--allow-changes")  # the time that is left is another one
    else:
        shutil.rmtree(folder, ignore_errors=True)
        command.append("--no-final-validation")
        trainer |= {"limit_val_batches": 0, "num_sanity_val_steps": 0, "log_every_n_steps": 10}
    write_atomically(Path(f"{folder}.yaml"), json.dumps(merged(config, {"trainer": trainer}), indent=1))  # JSON is YAML
    log = Path(f"{folder}.log")
    log.unlink(missing_ok=True)
    code = run_command(command, seconds + START, log)
    printed = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    found = outcome(read_json_object_or_none(folder / "run.json") or {}, code or 0, printed)
    if code is None:
        found |= {"problem": OUT_OF_TIME, "message": f"longer than {seconds + START:.0f} s with its start"}
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


def _small(given: Mapping[str, Any]) -> dict[str, Any]:
    """Smaller frames and shorter clips, as far as the parts of the models take them."""
    smaller = {"resolution": 16, "num_frames": 2, "digit_size": 7, "eval_frames": 3}
    if "patches_per_side" in given:
        smaller |= {"resolution": 32, "num_frames": 3, "patches_per_side": 2}
    return {name: min(value, int(given[name])) for name, value in smaller.items() if given.get(name) is not None}


# --- training at the papers' sizes

STEPS, QUICK_STEPS = 300, 2
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
    Case("PSB", (f"{_PAPER}/movi_a_psb.yaml",), "moving sprites for MOVi-A"),
    Case("ConvS5", (f"{_PAPER}/moving_mnist_300_convs5.yaml",), "digits of noise for MNIST's, one clip on one device"),
    Case("Slot Attention", (f"{_PAPER}/clevr6_weighted_mean.yaml",), "moving sprites for CLEVR6"),
    Case("RIM", (f"{_PAPER}/bouncing_balls.yaml", "experiments/matched/paper_bouncing_balls/RIM.yaml")),
)


def training(settings: Settings, items: Items) -> str:
    """Trains each case that has no item yet, every family in fp32 first; returns how many trainings there are.

    Raises:
        OutOfTimeError: some could not be begun.
    """
    folder = settings.out / "training"
    folder.mkdir(parents=True, exist_ok=True)
    pairs = [(case, precision) for precision in PRECISIONS for case in CASES]
    waiting = [(case, precision) for case, precision in pairs if f"{case.family}, {precision}" not in items]
    for index, (case, precision) in enumerate(waiting):
        left = items.left()
        if left < START / 2 + _LEAST:
            break
        # half of what a start may take, as most take less; a quick one has two steps, however slow
        seconds = left if settings.quick else max(left / (len(waiting) - index) - START / 2, _LEAST)
        run = folder / f"{case.family}-{precision}".replace(" ", "_")
        config = case_config(case, folder, quick=settings.quick)
        steps = QUICK_STEPS if settings.quick else STEPS
        found = fit(settings, config, run, steps, seconds, precision=precision)
        shutil.rmtree(run / "checkpoints", ignore_errors=True)  # these weights are of no use
        given = config["data"]["init_args"]
        kept = ("resolution", "num_frames", "patches_per_side")
        sizes = {"batch": given["loader"].get("batch_size"), **{name: given[name] for name in kept if name in given}}
        named = {"family": case.family, "precision": precision, "files": list(case.files), "stands_in": case.stands_in}
        items[f"{case.family}, {precision}"] = {**named, "sizes": sizes, **found}
    if missing := len(pairs) - len(items):
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
        data = merged(data, {"init_args": _small(data["init_args"])})
    return merged(config, {"data": merged(data, {"init_args": {"loader": loader}})})


# --- one experiment to its end

PAPER, LAPTOP = "experiments/paper/blinking_balls_earliest_t6_p4.yaml", "experiments/blinking_balls.yaml"
PLANS = {
    "the paper's setting": 20_000,
    "the paper's sizes, whole frames, every image a target": 2_000,
    "the laptop experiment": 0,
}
"""Name of every plan, and the steps below which it is not worth its time.

The paper's setting has 80 steps in a clip and its loss on the last image alone; the second plan has whole frames (P =
1) and the recipe of `experiments/blinking_balls.yaml`; the third is that experiment.
"""
_OWN, _WHOLE, _LAPTOP = PLANS
_SHARE = 0.8  # of the time, for steps; the rest is validation and what varies
_PROBE_STEPS, _PROBE_SECONDS = 200, 30.0
_VALIDATIONS = 4


def experiment(settings: Settings, items: Items) -> str:
    """Trains by the first plan that has enough steps by the measured speed; an interrupted one is resumed."""
    folder = settings.out / "experiment"
    folder.mkdir(parents=True, exist_ok=True)
    if "choice" not in items:
        items["choice"] = _choice(settings, items)
    plan, steps = items["choice"]["plan"], items["choice"]["steps"]
    config = plan_config(plan, steps, quick=settings.quick)
    found = fit(settings, config, folder / "run", steps, max(items.left() - START, 10.0), to_its_end=True)
    result = read_json_object_or_none(folder / "run" / "result.json") or {}
    items["run"] = {**found, "headlines": result.get("headlines", []), "metrics": result.get("metrics", {})}
    if (problem := problem_of(items["run"])) is not None:
        return f"{plan}: {problem}"
    cut = "" if found["steps"] == steps else f" of {steps:,}, stopped by the time"
    return f"{plan}: {found['steps'] or 0:,} steps{cut}"


def plan_config(plan: str, steps: int, *, quick: bool) -> dict[str, Any]:
    """The experiment of a plan.

    Args:
        plan: a name in `PLANS`.
        steps: of the training, for how often it is validated and how long the schedule is.
        quick: shrinks frames and batches.
    """
    paper, laptop = read_yaml(PAPER), read_yaml(LAPTOP)
    config = laptop if plan == _LAPTOP else paper
    if plan == _WHOLE:
        recipe = ("optimizer", "schedule", "dense_targets", "class_weights", "anneal")
        learned = {name: laptop["model"]["init_args"][name] for name in recipe}
        config = merged(paper, {"model": {"init_args": learned}, "data": {"init_args": {"patches_per_side": 1}}})
    if quick:
        loader = {"batch_size": 2, "val_batch_size": 2, "num_workers": 0, "train_size": 64, "val_size": 4}
        given = _small(config["data"]["init_args"]) | {"patches_per_side": 1, "loader": loader}
        config = merged(config, {"data": {"init_args": given}})
    # so that the last validation is that of the last step
    return merged(config, {"trainer": {"val_check_interval": max(1, -(-steps // _VALIDATIONS))}})


def steps_that_fit(seconds: float, per_second: float | None) -> int:
    """Steps of a training in `seconds`, its start and its validations left out; 0 if its speed is not known."""
    return int(_SHARE * max(0.0, seconds - START) * per_second) if per_second else 0


def _choice(settings: Settings, items: Items) -> dict[str, Any]:
    """The plan and its steps, and the speeds by which it was chosen: that of the stage `training`, and of a probe."""
    trained = Items(settings.out, "training").get("SlotSSM, fp32", {})
    speeds = {_OWN: trained.get("steps_per_second") if problem_of(trained) is None else None}
    plan, steps = _LAPTOP, read_yaml(LAPTOP)["trainer"]["max_steps"]
    if settings.quick:
        plan, steps = _WHOLE, _VALIDATIONS
    elif (own := steps_that_fit(items.left(), speeds[_OWN])) >= PLANS[_OWN]:
        plan, steps = _OWN, own
    else:
        config = plan_config(_WHOLE, _PROBE_STEPS, quick=False)
        items["probe"] = fit(settings, config, settings.out / "experiment" / "probe", _PROBE_STEPS, _PROBE_SECONDS)
        if problem_of(items["probe"]) is None:
            speeds[_WHOLE] = items["probe"]["steps_per_second"]
        whole = steps_that_fit(items.left(), speeds.get(_WHOLE))
        if whole >= PLANS[_WHOLE]:
            plan, steps = _WHOLE, whole
    return {"plan": plan, "steps": steps, "steps_per_second": speeds}
