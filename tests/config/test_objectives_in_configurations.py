"""A list of objectives in a configuration and on the command line, and a run that is resumed with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from slotbench.cli import run
from slotbench.config.command_line import resolve
from slotbench.errors import UserError
from slotbench.registry import RegistryError

TWO = """\
model:
  class_path: SlotAutoencoding
  init_args:
    encoder: {class_path: CNNEncoder, init_args: {dim: 8, channels: [4], kernel_sizes: [3], strides: [4]}}
    core: {class_path: SAVi, init_args: {num_slots: 2, dim: 8}}
    decoder: {class_path: MLPPatchDecoder, init_args: {hidden_dim: 8, patch_size: 4}}
    objectives:
      - class_path: Reconstruction
      - {class_path: SlotContrast, init_args: {weight: 0.25}}
    baseline_clips: 0
data:
  class_path: BouncingBalls
  init_args:
    {num_balls: 2, num_frames: 3, eval_frames: 3, resolution: 16,
     loader: {batch_size: 2, val_batch_size: 2, val_size: 2, train_size: 8}}
trainer: {max_steps: 4, val_check_interval: 4, accelerator: cpu, log_every_n_steps: 1}
"""


@pytest.fixture
def config(tmp_path) -> Path:
    path = tmp_path / "two.yaml"
    path.write_text(TWO)
    return path


def objectives(*arguments: object) -> dict[str, dict]:
    given = yaml.safe_load(resolve([str(one) for one in arguments]).yaml())["model"]["init_args"]["objectives"]
    return {one["class_path"]: one["init_args"] for one in given}


def test_elements_have_their_defaults_and_are_set_by_their_place(config):
    expected = {"weight": 0.25, "temperature": 0.1, "negatives": "batch"}
    assert objectives("--config", config) == {"Reconstruction": {"weight": 1.0}, "SlotContrast": expected}
    changed = objectives("--config", config, "--model.objectives.1.negatives", "clip")
    assert changed["SlotContrast"] == expected | {"negatives": "clip"}


def test_a_list_on_the_command_line_takes_the_place_of_the_files(config):
    typed = "[{class_path: Reconstruction, init_args: {weight: 2}}, {class_path: FeatureSimilarity}]"
    assert list(objectives("--config", config, "--model.objectives", typed)) == ["Reconstruction", "FeatureSimilarity"]
    (given,) = objectives("--config", config, "--model.objectives", "[{class_path: Reconstruction}]")
    assert given == "Reconstruction"


def test_an_unknown_objective_is_answered_by_the_nearest(config):
    config.write_text(TWO.replace("SlotContrast", "SlotContrasts"))
    with pytest.raises((UserError, RegistryError), match="no objective named SlotContrasts; did you mean SlotContrast"):
        objectives("--config", config)


def losses(folder: Path) -> list[tuple[float, ...]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    names = ("train/loss", "train/reconstruction", "train/slot_contrast")
    return [tuple(row[name] for name in names) for row in rows if "train/loss" in row]


def test_a_run_with_objectives_goes_on_as_if_it_had_not_stopped(config, tmp_path, monkeypatch):
    monkeypatch.setattr("slotbench.callbacks.curves.draw_curves", lambda folder: None)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert run(["fit", "--config", str(config), "--run_dir", str(whole)]) == 0
    assert run(["fit", "--config", str(config), "--run_dir", str(parts), "--trainer.max_steps", "2"]) == 0
    again = ["fit", "--config", str(config), "--run_dir", str(parts), "--allow-changes"]
    assert run(again) == 0
    assert len(losses(whole)) == 4
    assert losses(parts) == losses(whole)
