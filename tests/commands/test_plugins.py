"""`slotbench plugins`: a line per component that is never wrapped, and a page about the one that is named."""

from __future__ import annotations

import subprocess
import sys

import pytest

from slotbench import cli, registry
from slotbench.sources import arguments_from_source, meanings_from_source

FILE = '''
from slotbench import registry
from slotbench.interfaces import TemporalCore


@registry.register("cores")
class Odd(TemporalCore):
    """Nothing."""

    def __init__(self, *sizes, width: int = 3):
        super().__init__()

    def forward(self, tokens, state=None):
        return None
'''


def test_the_table_has_a_line_of_at_most_80_columns_for_each_component_and_its_name_in_full(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert cli.run(["plugins"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    listed = [line.split()[0] for line in lines if line.startswith("  ") and line != "  none"]
    assert listed == [entry.name for kind in registry.KINDS for entry in registry.entries(kind)]


def test_a_wide_terminal_shows_more_of_the_descriptions(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "110")
    assert cli.run(["plugins", "encoders"]) == 0
    assert 80 < max(map(len, capsys.readouterr().out.splitlines())) <= 110


def test_a_component_is_shown_with_its_arguments_defaults_module_and_paper_without_importing_torch():
    code = "import sys; from slotbench.cli import run; run(['plugins', 'SlotSSM']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *page, imported = done.stdout.rstrip().splitlines()
    assert imported == "False"
    assert page[0] == "SlotSSM: core of slotbench"
    assert "  slotbench_plugins.cores.slot_ssm:SlotSSM" in page
    assert page[page.index("  dim: int = 64") + 1] == "      width of a slot."
    assert "  token_spec: TokenSpec" in page
    assert page[page.index("Source") + 1].startswith("  Jiang, Deng, Singh, Lee, Ahn")


def test_every_argument_of_a_built_in_component_has_a_meaning_of_its_own_or_of_a_base():
    targets = [entry.target for kind in registry.KINDS for entry in registry.entries(kind)]
    for target in (target for target in targets if target.startswith("slotbench")):
        arguments = arguments_from_source(target)
        assert arguments is not None, target
        assert set(arguments) <= set(meanings_from_source(target, arguments)), target


def test_a_meaning_of_ones_own_goes_before_that_of_a_base():
    meanings = meanings_from_source("slotbench_plugins.cores.single_state_ssm:SingleStateSSM", ["dim", "state_dim"])
    assert meanings["dim"].startswith("width of the one slot")
    assert meanings["state_dim"] == "SSM state per channel."


def test_a_component_whose_source_does_not_say_its_arguments_is_imported(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    (tmp_path / "odd_core.py").write_text(FILE)
    assert cli.run(["plugins", "Odd", "--plugin", str(tmp_path / "odd_core.py")]) == 0
    page = capsys.readouterr().out
    assert "Odd: core of odd_core.py" in page
    assert "  width: int = 3" in page.splitlines()


@pytest.mark.parametrize(
    ("typed", "meant"), [("cors", "cores"), ("SlotSSMM", "SlotSSM"), ("Encoders", "encoders"), ("savi", "SAVi")]
)
def test_a_misspelt_name_or_kind_gets_the_one_that_is_near(typed, meant, capsys):
    assert cli.run(["plugins", typed]) == 2
    assert f"did you mean {meant}?" in capsys.readouterr().err
