"""One experiment to its end in the time that is left: Blinking Color Balls at the paper's size, scores and baselines.

Three plans, of which the first is taken that has enough steps by the measured speed: the paper's own setting (L = 80
steps of a clip, loss on the last image alone); the paper's sizes with whole frames (P = 1) and the recipe of
`experiments/blinking_balls.yaml`, which learns from every image; that experiment itself. The schedule of the learning
rate is over the steps that there are.
"""

from __future__ import annotations

import time
from typing import Any

from slotbench.bench.gpu.fits import START, Fit, experiment, merged
from slotbench.bench.gpu.plan import Settings
from slotbench.bench.gpu.records import Items, problem_of, read_result
from slotbench.bench.gpu.training import small
from slotbench.files import read_json_object_or_none

__all__ = ["PLANS", "configuration", "run", "steps_that_fit"]

PAPER, LAPTOP = "experiments/paper/blinking_balls_earliest_t6_p4.yaml", "experiments/blinking_balls.yaml"
PLANS = {
    "the paper's setting": 20_000,
    "the paper's sizes, whole frames, every image a target": 2_000,
    "the laptop experiment": 0,
}
"""Name of every plan, and the steps below which it is not worth its time."""
_OWN, _WHOLE, _LAPTOP = PLANS
_SHARE = 0.8  # of the time, for steps; the rest is validation and what varies
_PROBE_STEPS, _PROBE_SECONDS = 200, 30.0
_VALIDATIONS = 4


def run(settings: Settings, items: Items) -> str:
    """Measures what has not been measured, chooses, trains; an experiment that was interrupted is resumed."""
    began = time.monotonic()
    folder = settings.out / "experiment"
    folder.mkdir(parents=True, exist_ok=True)
    if "choice" not in items:
        items["choice"] = _choice(settings, items, began)
    choice = items["choice"]
    left = settings.seconds - (time.monotonic() - began) - START
    config = configuration(choice["plan"], choice["steps"], quick=settings.quick)
    outcome = Fit(config, folder / "run", choice["steps"], max(left, 10.0), validate=True, resumes=True).run(settings)
    result = read_json_object_or_none(folder / "run" / "result.json") or {}
    items["run"] = {**outcome, "headlines": result.get("headlines", []), "metrics": result.get("metrics", {})}
    if (problem := problem_of(items["run"])) is not None:
        return f"{choice['plan']}: {problem}"
    cut = "" if outcome["steps"] == choice["steps"] else f" of {choice['steps']:,}, stopped by the time"
    return f"{choice['plan']}: {outcome['steps'] or 0:,} steps{cut}"


def configuration(plan: str, steps: int, *, quick: bool) -> dict[str, Any]:
    """The experiment of a plan.

    Args:
        plan: a name in `PLANS`.
        steps: of the training, for how often it is validated.
        quick: shrinks frames and batches.
    """
    paper, laptop = experiment(PAPER), experiment(LAPTOP)
    config = laptop if plan == _LAPTOP else paper
    if plan == _WHOLE:
        recipe = ("optimizer", "schedule", "dense_targets", "class_weights", "anneal")
        learned = {name: laptop["model"]["init_args"][name] for name in recipe}
        config = merged(paper, {"model": {"init_args": learned}, "data": {"init_args": {"patches_per_side": 1}}})
    if quick:
        loader = {"batch_size": 2, "val_batch_size": 2, "num_workers": 0, "train_size": 64, "val_size": 4}
        given = small(config["data"]["init_args"]) | {"patches_per_side": 1, "loader": loader}
        config = merged(config, {"data": {"init_args": given}})
    # so that the last validation is that of the last step
    return merged(config, {"trainer": {"val_check_interval": max(1, -(-steps // _VALIDATIONS))}})


def steps_that_fit(seconds: int | float, per_second: int | float | None) -> int:
    """Steps of a training in `seconds`, its start and its validations left out; 0 if nobody knows its speed."""
    return int(_SHARE * max(0.0, seconds - START) * per_second) if per_second else 0


def _choice(settings: Settings, items: Items, began: int | float) -> dict[str, Any]:
    """The plan and its steps, and the speeds by which it was chosen."""
    speeds = {_OWN: _trained_speed(settings)}
    if settings.quick:
        return {"plan": _WHOLE, "steps": _VALIDATIONS, "steps_per_second": speeds}
    own = steps_that_fit(settings.seconds, speeds[_OWN])
    if own >= PLANS[_OWN]:
        return {"plan": _OWN, "steps": own, "steps_per_second": speeds}
    probe = Fit(
        configuration(_WHOLE, _PROBE_STEPS, quick=False), settings.out / "experiment" / "probe", _PROBE_STEPS,
        _PROBE_SECONDS,
    )  # fmt: skip
    items["probe"] = probe.run(settings)
    if problem_of(items["probe"]) is None:
        speeds[_WHOLE] = items["probe"]["steps_per_second"]
    steps = steps_that_fit(settings.seconds - (time.monotonic() - began), speeds.get(_WHOLE))
    if steps >= PLANS[_WHOLE]:
        return {"plan": _WHOLE, "steps": steps, "steps_per_second": speeds}
    return {"plan": _LAPTOP, "steps": experiment(LAPTOP)["trainer"]["max_steps"], "steps_per_second": speeds}


def _trained_speed(settings: Settings) -> float | None:
    """Steps per second of the paper's setting, as the stage of trainings has measured them."""
    item = ((read_result(settings.out, "training") or {}).get("items") or {}).get("SlotSSM, fp32") or {}
    speed = item.get("steps_per_second")
    return speed if problem_of(item) is None and isinstance(speed, float) else None
