"""`slotbench grid` with the true parser and the true training, of the tiny components."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from slotbench.cli import run
from slotbench.grids.ledger import PointFolder

# Lightning, on a machine that has SLURM
pytestmark = pytest.mark.filterwarnings("ignore:The `srun` command is available")

GRID = {
    "base": "tiny.yaml",
    "product": {"model.core.num_slots": [1, 2]},
    "list": [
        {"label": "tiny", "model.core.depth": 3},
        {"label": "other", "model.core": {"class_path": "OtherCore", "init_args": {"mode": "b"}}},
    ],
    "seeds": [7],
    "metrics": ["val/loss"],
}


@pytest.fixture
def grid(workspace, tiny_components):
    """Writes `tiny_grid.yaml`, with changes, and runs actions on it."""

    def call(action: str, *arguments: str, **changes: object) -> int:
        Path("tiny_grid.yaml").write_text(yaml.safe_dump({**GRID, **changes}, sort_keys=False))
        return run(["grid", action, "tiny_grid.yaml", *arguments, "--plugin", str(tiny_components)])

    return call


def done_points() -> list[Path]:
    return sorted(path.parent for path in Path("runs/tiny_grid").glob("*/result.json"))


def test_the_parser_takes_every_point(grid, capsys):
    assert grid("check") == 0
    assert "4 points, and the parser takes all of them" in capsys.readouterr().out


def test_the_check_names_every_wrong_point_and_what_is_wrong_with_it(grid, capsys):
    wrong = [{"label": label, "model.core.num_slotz": number} for number, label in enumerate(("typo", "again"))]
    others = [{"label": "fine"}, {"label": "long", "trainer.max_steps": "many"}]
    assert grid("check", product=None, list=[*wrong, *others]) == 2
    said = capsys.readouterr().err
    assert "3 points of 4 in tiny_grid.yaml cannot be run" in said
    assert "num_slotz" in said
    assert "variant=typo,seed=7-" in said
    assert "max_steps" in said
    assert "many" in said
    assert "variant=fine" not in said


def test_nothing_is_started_if_the_parser_refuses_a_point(grid, capsys):
    assert grid("run", product={"model.core.num_slots": [1, "many"]}, list=None) == 2
    said = capsys.readouterr().err
    assert "nothing has been started" in said
    assert "many" in said
    assert "num_slots=many" in said
    assert not list(Path("runs/tiny_grid").glob("*/log.txt"))


def test_what_is_shown_is_the_configuration_that_the_line_above_it_runs(grid, capsys, tiny_components):
    assert grid("show", "4") == 0
    text = capsys.readouterr().out
    shown = yaml.safe_load(text)
    core = shown["model"]["init_args"]["core"]
    assert core == {"class_path": "OtherCore", "init_args": {"num_slots": 2, "heads": 1, "mode": "b"}}
    assert shown["seed_everything"] == 7
    line = text.splitlines()[1].removeprefix("# slotbench ")
    assert run(shlex.split(line)) == 0
    (folder,) = done_points()
    assert yaml.safe_load((folder / "config.yaml").read_text()) == shown
    capsys.readouterr()
    grid("show")
    rows = capsys.readouterr().out
    assert [rows.count(state) for state in ("waiting", "done")] == [3 + 1, 1 + 1]  # and their counts
    assert "val/loss" in rows


@pytest.mark.slow
def test_true_trainings_that_a_limit_cuts_end_elsewhere_as_if_it_had_not(workspace, tiny_components):
    shutil.copy(tiny_components, "parts.py")
    with open("parts.py", "a", encoding="utf-8") as file:
        file.write(_SLOW)
    settings = {"model.core": "SlowCore", "trainer.max_epochs": 40}
    content = {"base": "tiny.yaml", "settings": settings, "product": {"model.core.num_slots": [1, 2]}}
    Path("slow.yaml").write_text(yaml.safe_dump(content))
    command = [sys.executable, "-m", "slotbench", "grid", "run", "slow.yaml", "--plugin", "parts.py"]
    calm = subprocess.run([*command, "--runs_dir", "calm"], check=False)
    assert calm.returncode == 0
    Path("slow").touch()
    began = time.monotonic()
    cut = subprocess.run([*command, "--jobs", "2", "--minutes", "1.5"], check=False)
    assert cut.returncode == 124
    assert time.monotonic() - began < 100
    points = [PointFolder(path) for path in Path("runs/slow").glob("num_slots=*")]
    assert [point.state() for point in points] == ["interrupted"] * 2
    assert all(0 < point.status().step < 80 for point in points)
    Path("slow").unlink()
    shutil.move("runs", "elsewhere")
    assert subprocess.run([*command, "--jobs", "2", "--runs_dir", "elsewhere"], check=False).returncode == 0
    for path in Path("elsewhere/slow").glob("num_slots=*"):
        ours, theirs = (json.loads((root / "result.json").read_text()) for root in (path, Path("calm/slow", path.name)))
        assert ours["step"] == theirs["step"] == 80
        assert ours["metrics"]["val/loss"] == pytest.approx(theirs["metrics"]["val/loss"], rel=1e-6)


_SLOW = '''

import os
import time


@register("cores")
class SlowCore(TinyCore):
    """Takes its time as long as there is a file of that name."""

    def forward(self, tokens, state=None):
        if self.training and os.path.exists("slow"):
            time.sleep(2.0)
        return super().forward(tokens, state)
'''
