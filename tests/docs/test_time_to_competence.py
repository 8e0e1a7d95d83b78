"""`docs/scripts/time_to_competence.py`: when a competence is first reached, and the page that says so."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slotbench.comparison.records import ComparisonError, Metric, RunRecord

ROOT = Path(__file__).parents[2]
GRIDS = ROOT / "experiments" / "grids"
PAGE = ROOT / "docs" / "results" / "time_to_competence.md"
ARCHIVES = {
    "positions": "cater_like_cores",
    "colours": "blinking_balls_long_study",
    "colours_short": "blinking_balls_study",
    "balls": "bouncing_balls_study",
    "balls_long": "bouncing_balls_longer",
}


@pytest.fixture(scope="module")
def script():
    sys.path.insert(0, str(ROOT / "docs" / "scripts"))
    import time_to_competence

    return time_to_competence


@pytest.fixture
def study(script, monkeypatch):
    monkeypatch.setattr(script, "flops_of", lambda study: {"A": 2e9, "B": 1e9})
    return script.Study("grid", "steps", Metric("val/score", "score", higher_is_better=True), 0.5)


def run(core, *values, every=10):
    steps = every * np.arange(1, len(values) + 1) - 1
    curves = {"val/score": (steps, np.array(values, dtype=float))}
    known = {"val/score": values[-1], "low": 0.2, "high": 0.6}
    return RunRecord(core, core, "", "finished", {"model.core": core}, known, curves=lambda limit: curves)


def test_a_competence_is_reached_between_two_validations(script, study):
    reached = script.first_reached([10, 20, 30], [0.4, 0.6, 0.3], 0.5, study)
    assert (reached.after, reached.by) == (10, 20)
    assert script.first_reached([10, 20], [0.5, 0.6], 0.5, study).told() == "≤ 10"
    assert reached.told(0.1, 1) == "1.0 to 2.0"
    never = script.first_reached([1000, 2000], [0.4, 0.49], 0.5, study)
    assert math.isinf(never.by)
    assert never.told() == "> 2,000"
    lower = replace(study, metric=replace(study.metric, higher_is_better=False))
    assert script.first_reached([10, 20], [0.6, 0.4], 0.5, lower).by == 20


def test_a_level_is_a_number_or_the_mean_of_predictors(script, study):
    assert study.competence(run("A", 0.1)) == 0.5
    assert replace(study, level=("low", "high")).competence(run("A", 0.1)) == pytest.approx(0.4)


def test_seeds_that_never_reach_it_are_counted(script, study):
    late = [run("A", 0.1, 0.6, 0.9), run("A", 0.1, 0.2, 0.3), run("A", 0.1, 0.2, 0.3)]
    soon = [run("B", 0.6, 0.9, 0.9), run("B", 0.1, 0.6, 0.9)]
    assert script.rows(study, {"A": late, "B": soon}) == [
        "| B | 1.00 | 10 to 20 | ≤ 10 (2 of 2) | 0.0 to 0.0 | 0.900 ± 0.000, gains 12 % |",
        "| A | 2.00 | 20 to 30 | > 30 (1 of 3) | 0.0 to 0.1 | 0.500 ± 0.346, gains 25 % |",
    ]


def test_seeds_with_other_validations_are_refused(script, study):
    with pytest.raises(ComparisonError, match="the seeds of A have validations after other steps"):
        script.rows(study, {"A": [run("A", 0.1, 0.6), run("A", 0.1, 0.6, every=20)]})


@pytest.mark.parametrize(
    "name", ["positions", *(pytest.param(name, marks=pytest.mark.slow) for name in list(ARCHIVES)[1:])]
)
def test_the_records_make_the_table_again(script, tmp_path, capsys, name):
    study = script.STUDIES[name]
    archive = GRIDS / "records" / f"{ARCHIVES[name]}.zip"
    unpack = ["grid", "unpack", str(GRIDS / f"{study.grid}.yaml"), str(archive), "--runs_dir", str(tmp_path)]
    subprocess.run([sys.executable, "-m", "slotbench", *unpack], cwd=ROOT, check=True, capture_output=True)
    assert script.main([name, "--runs_dir", str(tmp_path)]) == 0
    made = capsys.readouterr().out.strip()
    comment = f"<!-- table: python docs/scripts/time_to_competence.py {name} -->"
    shown = PAGE.read_text(encoding="utf-8").partition(comment)[2].partition("<!-- end")[0].strip()
    assert made == shown


def test_runs_that_are_not_there_are_named(script, tmp_path, capsys):
    assert script.main(["balls_long", "--runs_dir", str(tmp_path)]) == 1
    assert "no point of" in capsys.readouterr().err


def test_the_levels_on_the_page_are_those_of_the_script(script):
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert re.search(r"halfway between grey and constant velocity, 0\.0978, and constant velocity, 0\.0525", text)
    table = (ROOT / "docs" / "results" / "bouncing_balls.md").read_text(encoding="utf-8")
    grey, velocity = (
        float(re.search(rf"\| \*{name}\* \|  \|  \| ([\d.]+)", table)[1])
        for name in ("grey, mean of the context", "oracle: constant velocity")
    )
    assert (grey + velocity) / 2 == pytest.approx(0.0978, abs=1e-4)
    assert script.STUDIES["colours"].level == 0.9
