"""`docs/tables.py`: what it takes of a comparison into the page."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from docs_scripts import loaded_tables

COMPARED = """### study

    slotbench compare study.yaml

| core | loss |
|---|---:|
| PSB | 1.0 |

- 2 of the 10 points of {runs}/study have not run yet
"""


@pytest.fixture
def tables():
    return loaded_tables()


@pytest.mark.parametrize("given", ["runs", "elsewhere/of-mine", "elsewhere/of-mine/"])
def test_the_page_names_runs_wherever_the_runs_lie(tables, monkeypatch, given):
    def compare(line, **options):
        assert line[-1] == given
        return subprocess.CompletedProcess(line, 0, COMPARED.format(runs=Path(given)), "")

    monkeypatch.setattr(subprocess, "run", compare)
    made = tables.table("slotbench compare study.yaml", given, "before")
    assert made == (
        "\n| core | loss |\n|---|---:|\n| PSB | 1.0 |\n\n- 2 of the 10 points of runs/study have not run yet\n\n"
    )


def test_without_runs_a_table_stays_as_it_was(tables, monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda line, **options: subprocess.CompletedProcess(line, 2, "", "no runs"))
    assert tables.table("slotbench compare study.yaml", "runs", "before") == "before"
