"""What packages, runs and grids are called is shown by every command, and obeyed by no terminal."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from slotbench import registry
from slotbench.commands import doctor_report, probe_report
from slotbench.commands.plugins import table_of
from slotbench.commands.run_loading import LoadedRun
from slotbench.data.bouncing_balls import BouncingBalls
from slotbench.health.findings import Finding
from slotbench.probing.factors import Factor
from slotbench.probing.probe import FactorScore, ProbeReport, ProbeSettings
from slotbench.runs.folder import RunFolder
from slotbench.tasks.video_prediction import VideoPrediction

NASTY = "a[/b]\x1b[2J\u202e"
SHOWN = "a[/b]\\x1b[2J\\u202e"


@pytest.fixture
def said(monkeypatch):
    """What the commands print, as a terminal gets it."""
    out = io.StringIO()

    def console(**options):
        return Console(file=out, force_terminal=True, color_system=None, width=300, **options)

    monkeypatch.setattr(doctor_report, "Console", console)
    monkeypatch.setattr(probe_report, "Console", console)
    return out, console


def is_harmless(text: str) -> bool:
    return SHOWN in text and "\x1b[2J" not in text and "\u202e" not in text


def test_plugins(said):
    out, console = said
    entry = registry.Entry(
        NASTY, next(iter(registry.KINDS)), NASTY, target="m:C", state="broken", error=NASTY, summary=NASTY
    )
    console().print(table_of([entry]))
    assert is_harmless(out.getvalue())
    assert out.getvalue().count(SHOWN) == 3


def test_doctor(said):
    out, _ = said
    finding = Finding("components", NASTY, "broken", NASTY, mend=NASTY, detail=NASTY)
    doctor_report.print_report([finding], [finding], {"components": "Components"}, verbose=True)
    assert is_harmless(out.getvalue())


def test_probe(said, capsys):
    out, _ = said
    score = FactorScore(Factor(NASTY, "continuous"), "r2", 3, 3, {"linear": 0.5}, {"prior": 0.1})
    counts = {"clips": 1, "frames": 1, "rows": 1, "matched_by": "masks", "objects_without_slot": 0, "objects": 1}
    report = ProbeReport([score], {"fit": counts, "test": counts}, {NASTY: NASTY})
    data, task = object.__new__(BouncingBalls), object.__new__(VideoPrediction)
    loaded = LoadedRun(RunFolder(Path(f"runs/{NASTY}")), Path(NASTY), 1, data, task, frozenset())
    probe_report.print_report(report, ProbeSettings(heads=("linear",)), loaded)
    assert is_harmless(out.getvalue())
    assert is_harmless(capsys.readouterr().out)
