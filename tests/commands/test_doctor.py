"""`slotbench doctor`: what it finds, what it says is broken, and its exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from slotbench import doctor, registry
from slotbench.cli import run
from slotbench.doctor import findings


def found_by(group: str) -> dict[str, doctor.Finding]:
    return {finding.name: finding for _, finding in findings(Path("runs"), [group])}


@pytest.mark.parametrize(
    ("name", "version", "text"),
    [("jsonargparse", "3.0", "is 3.0"), ("lightning", "2.6.3", "compromised"), ("einops", None, "is not installed")],
)
def test_a_wrong_version_is_broken_with_what_to_type(name, version, text, monkeypatch, capsys):
    installed = doctor._installed
    monkeypatch.setattr(doctor, "_installed", lambda asked: version if asked == name else installed(asked))
    found = found_by("versions")[name]
    assert found.state == "broken"
    assert text in found.text
    assert f"pip install '{name}" in found.text
    assert run(["doctor", "versions"]) == 1
    assert f"not in order: {name}" in capsys.readouterr().out


def test_a_component_that_cannot_be_imported_is_broken(monkeypatch):
    def load(kind, name):
        raise registry.RegistryError("") from RuntimeError("no such luck")

    monkeypatch.setattr(registry, "load", load)
    monkeypatch.setattr(registry, "names", lambda kind: ["Torn"] if kind == "cores" else [])
    assert found_by("components")["Torn"] == ("Torn", "broken", "cores: RuntimeError: no such luck")


def test_a_kernel_that_gives_something_else_is_broken(monkeypatch):
    monkeypatch.setattr("slotbench.bench.ops.error_of", lambda op, kernel, device: float(kernel == "torch"))
    found = found_by("kernels")
    assert found["linear_scan/torch"].state == "broken"
    assert found["linear_scan"].state == "ok"


def test_what_is_absent_is_a_note_until_it_is_required(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert run(["doctor", "devices"]) == 0
    assert run(["doctor", "devices", "--require", "cuda"]) == 1


def test_an_unknown_group_is_refused(capsys):
    assert run(["doctor", "kernel"]) == 2
    assert "did you mean kernels?" in capsys.readouterr().err
