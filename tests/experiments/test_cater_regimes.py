"""CATER's Table 1: a pre-training of each model and a fine-tuning from it, whose points are the files of that model."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from slotbench.config.command_line import resolve
from slotbench.grids.expansion import Grid, expand
from slotbench.grids.grid_file import read_grid_file

PAPER = Path(__file__).parents[2] / "experiments" / "paper"
GRIDS = PAPER.parent / "grids" / "paper"
CORES = ("OCSlotSSM", "SlotSSM", "SlotTransformer", "SingleStateSSM")


def files_of(core: str) -> dict[str, Path]:
    """The files of a model, by the label of their points."""
    name = core.lower()
    return {"pre-training": PAPER / f"cater_pretrain_{name}.yaml", "fine-tuned": PAPER / f"cater_{name}.yaml"}


@cache
def grid(label: str) -> Grid:
    return expand(
        read_grid_file(GRIDS / {"pre-training": "cater_pretraining.yaml", "fine-tuned": "cater_regimes.yaml"}[label])
    )


def resolved(arguments: list[str]) -> dict[str, Any]:
    return yaml.safe_load(resolve(arguments).yaml())


@pytest.mark.parametrize("core", CORES)
def test_both_parts_have_one_encoder_and_one_core_so_that_all_of_them_is_taken_over(core: str) -> None:
    first, second = (yaml.safe_load(path.read_text()) for path in files_of(core).values())
    for part in ("encoder", "core"):
        assert first["model"]["init_args"][part] == second["model"]["init_args"][part]
    assert second["model"]["init_args"]["core"]["class_path"] == core
    data = first["data"]["init_args"]
    assert (data["sampling"], data["num_frames"], data["target"]) == ("random", 32, "frames")
    assert (first["model"]["class_path"], second["model"]["class_path"]) == ("SlotAutoencoding", "ClipClassification")


def test_each_fine_tuning_starts_from_the_pre_training_of_its_core_and_seed() -> None:
    before = {f"cater_pretraining/{point.id}": point for point in grid("pre-training").points}
    assert len(before) == len(grid("fine-tuned").points) == len(CORES) * 3
    for point in grid("fine-tuned").points:
        for key in ("model.core", "seed_everything"):
            assert before[point.start].settings[key] == point.settings[key]


@pytest.mark.parametrize(
    ("core", "label"),
    [
        pytest.param(core, label, marks=() if core == "SlotTransformer" else pytest.mark.slow)
        for core in CORES
        for label in ("pre-training", "fine-tuned")
    ],
)
def test_a_point_is_the_file_of_its_model(core: str, label: str) -> None:
    point = next(point for point in grid(label).points if point.settings["model.core"] == core)
    assert resolved([*point.arguments]) == resolved(["--config", str(files_of(core)[label])])
