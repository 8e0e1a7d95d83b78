"""What a task of prediction reports: its headlines, its plot, and the names under which scores are logged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from slotbench.tasks.base import Headline
from slotbench.tasks.given_weights import GivenWeights
from slotbench.tasks.rollout_scores import Curves, summarise

__all__ = ["curve_values", "floors_of", "horizon_panels", "oracles_of", "rollout_headlines"]

Stage = Literal["val", "test"]

_PANELS = {"mse": "squared error per pixel", "psnr": "PSNR, dB", "ssim": "SSIM", "lpips": "LPIPS"}

_FLOOR, _ORACLE = "floor|", "oracle|"


def rollout_headlines(
    stage: Stage,
    horizon: int,
    names: Sequence[str],
    floors: Mapping[str, Curves],
    oracles: Mapping[str, Curves],
    given: GivenWeights,
    clips: int,
) -> list[Headline]:
    """The scores of roll-outs with their floors and oracles, then LPIPS and FVD of the test, with what they need.

    Args:
        stage: of the scores.
        horizon: predicted frames.
        names: of the scores of every frame.
        floors: the curves of trivial answers in this stage.
        oracles: the curves of predictors that are given the simulator's state.
        given: the weights of LPIPS and FVD.
        clips: in a group.
    """
    labels = {"mse": f"error: MSE per pixel, {horizon} frames ahead", "psnr": "PSNR in dB", "ssim": "SSIM"}
    found = [
        Headline(
            f"{stage}/rollout_{name}",
            label,
            _means(floors, name),
            higher_is_better=name != "mse",
            oracles=_means(oracles, name),
        )
        for name, label in labels.items()
        if name in names
    ]
    weighed = {
        "lpips": ("LPIPS (AlexNet), in the test", given.lpips_weights, "lpips_weights"),
        "fvd": (f"FVD, in the test, of {clips} clips", given.fvd_weights, "fvd_weights"),
    }
    for name, (label, path, option) in weighed.items():
        needs = f"--model.{option} FILE" if path is None else "slotbench test RUN"
        beside, ahead = (_means(floors, name), _means(oracles, name)) if stage == "test" else ({}, {})
        found.append(
            Headline(f"test/rollout_{name}", label, beside, higher_is_better=False, needs=needs, oracles=ahead)
        )
    return found


def horizon_panels(
    names: Sequence[str], curves: Curves, floors: Mapping[str, Curves], oracles: Mapping[str, Curves]
) -> dict[str, dict[str, list[float]]]:
    """Each score by step of the horizon, beside its floors and oracles: a panel per score."""
    beside = dict(floors) | {f"oracle: {oracle}": by for oracle, by in oracles.items()}
    return {
        _PANELS[name]: {"this run": curves[name]} | {other: by[name] for other, by in beside.items() if name in by}
        for name in names
    }


def floors_of(curves: Mapping[str, Curves]) -> dict[str, Curves]:
    """Of the curves of all answers those of the floors, by the floor's name."""
    return {name.removeprefix(_FLOOR): found for name, found in curves.items() if name.startswith(_FLOOR)}


def oracles_of(curves: Mapping[str, Curves]) -> dict[str, Curves]:
    """Of the curves of all answers those of the oracles, by the oracle's name."""
    return {name.removeprefix(_ORACLE): found for name, found in curves.items() if name.startswith(_ORACLE)}


def curve_values(curves: Mapping[str, Curves], means_until: Sequence[int] = ()) -> dict[str, float]:
    """What is logged of the curves of all answers, by name without the stage.

    Args:
        curves: by answer: "" for the model, "floor|NAME" for a floor, "oracle|NAME", or a variant of the model.
        means_until: see `summarise`.
    """
    found: dict[str, float] = {}
    for answer, of_answer in curves.items():
        scores = dict(of_answer)
        if "capped" in scores:
            found["rollout_capped"] = float(np.mean(scores.pop("capped")))
        kind, bar, name = answer.partition("|")
        prefix = f"{kind}/rollout_" if bar else "rollout_"
        suffix = f"/{name}" if bar else f"_{answer}" if answer else ""
        found |= summarise(scores, prefix, suffix, means_until)
    return found


def _means(floors: Mapping[str, Curves], name: str) -> dict[str, float]:
    return {floor: float(np.mean(by[name])) for floor, by in floors.items() if name in by}
