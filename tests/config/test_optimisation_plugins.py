"""A third party's schedule and optimiser: named like a core, recorded by name, and resumed with their file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

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


@pytest.mark.parametrize("path", ["WarmupCosine", "slotbench.tasks.optimisation.WarmupCosine"])
def test_short_names_and_whole_paths_are_the_same(plugin, capsys, path):
    typed = ["--model.schedule", path, "--model.optimizer", "torch.optim.AdamW" if "." in path else "AdamW"]
    assert run(["show", "tiny.yaml", *plugin, *typed]) == 0
    parts = yaml.safe_load(capsys.readouterr().out)["model"]["init_args"]
    assert (parts["optimizer"]["class_path"], parts["schedule"]["class_path"]) == ("AdamW", "WarmupCosine")
