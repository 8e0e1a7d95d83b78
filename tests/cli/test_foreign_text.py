"""What packages, runs and grids are called is shown by every command, and obeyed by no terminal."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from slotbench import registry
from slotbench.commands import doctor_report, probe_report
from slotbench.commands.plugins import table_of
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


def test_plugins(said):
    out, console = said
    entry = SimpleNamespace(
        name=NASTY, kind=next(iter(registry.KINDS)), summary=NASTY, distribution=NASTY, state="broken", error=NASTY
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
    score = SimpleNamespace(
        factor=SimpleNamespace(name=NASTY), floors={"prior": 0.1}, heads={"linear": 0.5}, metric="r2", scored=3
    )
    counts = {"clips": 1, "frames": 1, "rows": 1, "matched_by": "masks", "objects_without_slot": 0, "objects": 1}
    report = SimpleNamespace(scores=[score], matching={"fit": counts, "test": counts}, left_out={NASTY: NASTY})
    loaded = SimpleNamespace(
        folder=SimpleNamespace(path=f"runs/{NASTY}"), checkpoint=SimpleNamespace(name=NASTY), step=1
    )
    probe_report.print_report(report, SimpleNamespace(heads=["linear"]), loaded)
    assert is_harmless(out.getvalue())
    assert is_harmless(capsys.readouterr().out)
