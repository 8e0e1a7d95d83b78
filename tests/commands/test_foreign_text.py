"""What packages, runs and grids are called is shown by every command, and obeyed by no terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from slotbench import registry
from slotbench.commands.plugins import component_page, table_lines
from slotbench.components import Component
from slotbench.evaluation import tables as probe_report
from slotbench.evaluation.probe_factors import Factor
from slotbench.evaluation.probing import FactorScore, ProbeReport, ProbeSettings
from slotbench.health import findings as doctor_report
from slotbench.health.findings import Finding

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


@pytest.mark.parametrize("width", [60, 300])
def test_plugins(width):
    kind = next(iter(registry.KINDS))
    component = Component(NASTY, kind, NASTY, paper=NASTY, causality="causal", distribution=NASTY)
    text = "\n".join(table_lines({kind: [component]}, width))
    assert is_harmless(text)
    assert text.count(SHOWN) == 4


def test_page_about_a_plugin():
    entry = registry.Entry(NASTY, next(iter(registry.KINDS)), NASTY, target=NASTY, state="broken", error=NASTY)
    text = "\n".join(component_page(entry, 300))
    assert is_harmless(text)
    assert text.count(SHOWN) == 4


def test_doctor(said):
    out, _ = said
    finding = Finding("components", NASTY, "broken", NASTY, fix=NASTY, detail=NASTY)
    doctor_report.print_report([finding], [finding], verbose=True)
    assert is_harmless(out.getvalue())


def test_probe(said, capsys):
    out, _ = said
    score = FactorScore(Factor(NASTY, "continuous"), "r2", 3, 3, {"linear": 0.5}, {"prior": 0.1})
    counts = {"clips": 1, "frames": 1, "rows": 1, "matched_by": "masks", "objects_without_slot": 0, "objects": 1}
    report = ProbeReport([score], {"fit": counts, "test": counts}, {NASTY: NASTY})
    probe_report.print_probe(report, ProbeSettings(heads=("linear",)), f"runs/{NASTY}")
    assert is_harmless(out.getvalue())
    assert is_harmless(capsys.readouterr().out)
