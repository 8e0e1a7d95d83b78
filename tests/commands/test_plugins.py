"""`slotbench plugins`: the table of components, and a page about each that is named."""

from __future__ import annotations

import json

import pytest

from slotbench import registry
from slotbench.cli import run


def shown(capsys, *arguments: str) -> str:
    assert run(["plugins", *arguments]) == 0
    return capsys.readouterr().out


def test_the_table_has_every_name_a_cores_causality_and_its_paper(capsys):
    table = shown(capsys)
    assert all(name in table for kind in registry.KINDS for name in registry.names(kind))
    (line,) = (line for line in table.splitlines() if line.startswith("  SlotSSM "))
    assert " causal " in line
    assert "2024" in line or "2025" in line
    assert "encoders" not in shown(capsys, "core")


def test_a_component_is_shown_with_its_arguments_defaults_module_and_paper(capsys):
    page = shown(capsys, "SlotSSM")
    assert "SlotSSM: core of slotbench" in page
    assert "  num_slots: " in page
    assert "Source: " in page
    assert "slotbench_plugins.cores.slot_ssm:SlotSSM" in page


def test_json_is_a_record_of_every_component_and_of_a_named_one_its_arguments(capsys):
    found = json.loads(shown(capsys, "cores", "RIM", "--json"))["components"]
    assert [one["name"] for one in found[1:]] == registry.names("cores")
    assert {one["name"] for one in found[0]["arguments"]} >= {"num_slots", "top_k"}
    assert found[0]["description"]


def test_the_models_that_come_along_are_a_kind(capsys):
    assert "movi_like_savi " in shown(capsys, "models")
    assert shown(capsys, "model") == shown(capsys, "models")


@pytest.mark.parametrize(("typed", "meant"), [("corse", "did you mean cores?"), ("SlotSMM", "did you mean SlotSSM?")])
def test_a_misspelt_name_or_kind_gets_the_one_that_is_near(typed, meant, capsys):
    assert run(["plugins", typed]) == 2
    assert meant in capsys.readouterr().err
