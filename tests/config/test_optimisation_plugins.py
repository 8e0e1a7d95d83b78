"""A third party's schedule and optimiser: named like a core, recorded by name, and resumed with their file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from slotbench import registry
from slotbench.cli import run

PLUGIN = '''
from torch.optim import SGD
from torch.optim.lr_scheduler import LambdaLR

from slotbench.registry import register


@register("schedules")
class Halving(LambdaLR):
    """Halves the learning rate every so many steps."""

    def __init__(self, optimizer, total_steps: int, every: int = 2):
        self.length = total_steps
        super().__init__(optimizer, lambda step: 0.5 ** (step // every))


@register("optimizers")
class SlowSGD(SGD):
    """SGD at a hundredth of its learning rate."""

    def __init__(self, params, lr: float = 1e-3):
        super().__init__(params, lr / 100)
'''


@pytest.fixture
def plugin(workspace, tiny_components):
    file = Path("halving.py")
    file.write_text(PLUGIN)
    yield ["--plugin", str(tiny_components), "--plugin", str(file)]
    sys.modules.pop("halving", None)


def test_they_are_named_recorded_and_resumed(plugin, capsys):
    named = ["--model.schedule", "Halving", "--model.schedule.every", "3", "--model.optimizer", "SlowSGD"]
    assert run(["fit", "--config", "tiny.yaml", "--run_dir", "run", *plugin, *named]) == 0
    parts = yaml.safe_load(Path("run/config.yaml").read_text())["model"]["init_args"]
    assert parts["schedule"] == {"class_path": "Halving", "init_args": {"every": 3}}
    assert parts["optimizer"] == {"class_path": "SlowSGD", "init_args": {"lr": 0.001}}
    capsys.readouterr()
    assert run(["fit", "--resume", "run", *plugin]) == 0
    assert "is finished" in capsys.readouterr().out


def test_a_recorded_plugin_of_a_schedule_is_asked_for(plugin, capsys):
    assert run(["fit", "--config", "tiny.yaml", "--run_dir", "run", *plugin, "--model.schedule", "Halving"]) == 0
    registry._registered.pop(("schedules", "Halving"))
    capsys.readouterr()
    assert run(["fit", "--resume", "run", *plugin[:2]]) == 2
    assert "for Halving, SlowSGD, and a recorded file is not run by itself" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        (["--model.schedule", "Halvin"], "no schedule named Halvin; did you mean Halving?"),
        (
            ["--model.schedule", "Halving", "--model.schedule.evry", "2"],
            "no argument evry; did you mean every?",
        ),
        (["--model.schedule", "Halving", "--model.schedule.total_steps", "9"], "Halving has no argument total_steps"),
        (["--model.optimizer", "Halving"], "no optimizer named Halving; Halving is the name of a schedule"),
    ],
)
def test_a_slip_gets_the_sentence_that_a_core_gets(plugin, capsys, typed, sentence):
    assert run(["fit", "--config", "tiny.yaml", *plugin, *typed]) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(("kind", "name"), [("schedule", "Halving"), ("optimizer", "SlowSGD"), ("schedule", "StepLR")])
def test_help_shows_the_arguments_of_one(plugin, capsys, kind, name):
    assert run(["fit", "--config", "tiny.yaml", *plugin, f"--model.{kind}.help", name]) == 0
    shown = capsys.readouterr().out
    assert {"Halving": "--schedule.every", "SlowSGD": "--optimizer.lr", "StepLR": "--schedule.step_size"}[name] in shown


@pytest.mark.parametrize("path", ["WarmupCosine", "slotbench.tasks.optimisation.WarmupCosine"])
def test_short_names_and_whole_paths_are_the_same(plugin, capsys, path):
    typed = ["--model.schedule", path, "--model.optimizer", "torch.optim.AdamW" if "." in path else "AdamW"]
    assert run(["show", "tiny.yaml", *plugin, *typed]) == 0
    parts = yaml.safe_load(capsys.readouterr().out)["model"]["init_args"]
    assert (parts["optimizer"]["class_path"], parts["schedule"]["class_path"]) == ("AdamW", "WarmupCosine")
