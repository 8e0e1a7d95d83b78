"""`slotbench plugins`: a line per component that is never wrapped, and a page about the one that is named."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from slotbench import __version__, cli, registry
from slotbench.commands.plugins import table_lines
from slotbench.components import Component, cited, components
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


@pytest.mark.parametrize("width", [80, 140])
def test_the_table_fits_the_terminal_and_has_every_name_in_full(width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    assert cli.run(["plugins"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    listed = [line.split()[0] for line in lines if re.match("  [^ ]", line) and line != "  none"]
    assert listed == [entry.name for kind in registry.KINDS for entry in registry.entries(kind)]


def test_a_wide_terminal_shows_more_of_the_descriptions(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "110")
    assert cli.run(["plugins", "encoders"]) == 0
    assert 80 < max(map(len, capsys.readouterr().out.splitlines())) <= 110


def rows(width, *kinds):
    return list(table_lines({kind: components(kind) for kind in kinds}, width))


def test_a_core_has_its_causality_and_its_paper_and_no_package_but_another_one():
    lines = rows(140, "cores")
    (slot_ssm,) = (line for line in lines if line.startswith("  SlotSSM "))
    assert re.match(r"  SlotSSM +causal +Jiang et al., NeurIPS 2024 +Slots that each carry", slot_ssm)
    assert any(re.match(r"  PSB +causal, or not +Singh et al., ICML 2024 ", line) for line in lines)
    assert not any("slotbench" in line for line in lines)
    mine = Component("Fading", "cores", "Fades.", "", "causal", "fading-slots")
    assert list(table_lines({"cores": [mine]}, 140)) == ["cores", "  Fading  causal  fading-slots: Fades."]


def test_on_a_narrow_terminal_what_a_core_is_stands_under_it():
    lines = rows(80, "cores", "optimizers")
    at = next(index for index, line in enumerate(lines) if line.startswith("  SlotSSM "))
    assert lines[at].split("  ")[-1] == "Jiang et al., NeurIPS 2024"
    assert lines[at + 1] == "      Slots that each carry their own state through time under shared…"
    # no paper, one line
    assert any(re.fullmatch(r"  SGD +Implements stochastic gradient descent .*", line) for line in lines)


@pytest.mark.parametrize("width", [60, 80, 110, 140])
def test_descriptions_are_cut_behind_a_word(width):
    for kind in registry.KINDS:
        texts = [text for part in components(kind) for text in (part.summary, cited(part.paper))]
        words = {word.strip(",;:") for text in texts for word in text.split()}
        cut = [line for line in rows(width, kind) if line.endswith("…")]
        assert cut or width > 110 or kind not in ("cores", "datasets")
        assert {line.removesuffix("…").split()[-1] for line in cut} <= words


def test_json_is_a_record_of_every_component_and_of_a_named_one_its_arguments(capsys):
    assert cli.run(["plugins", "cores", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["slotbench"] == __version__
    assert [row["name"] for row in document["components"]] == registry.names("cores")
    (row,) = (row for row in document["components"] if row["name"] == "PSB")
    assert row["causality"] == "causal, or not: causal=False"
    assert row["paper"].endswith("ICML 2024")
    assert (row["kind"], row["distribution"], row["error"]) == ("cores", "slotbench", "")
    assert row["state"] in ("available", "loaded")  # by a test before this one
    assert "arguments" not in row
    assert cli.run(["plugins", "SlotSSM", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["components"]
    arguments = {argument["name"]: argument for argument in row["arguments"]}
    assert arguments["dim"] == {"name": "dim", "type": "int", "default": "64", "meaning": "width of a slot."}
    assert arguments["token_spec"]["default"] is None
    assert "Source: Jiang" in row["description"]


def test_json_names_what_is_broken_and_nothing_in_it_is_obeyed_by_a_terminal(capsys, monkeypatch):
    nasty = "a\x1b[2J\u202e"
    entry = registry.Entry(nasty, "cores", nasty, target=nasty, state="broken", error=nasty)
    monkeypatch.setattr(registry, "entries", lambda kind: [entry])
    assert cli.run(["plugins", "cores", "--json"]) == 0
    text = capsys.readouterr().out
    assert text.isascii()
    assert "\x1b" not in text
    (row,) = json.loads(text)["components"]
    assert (row["state"], row["name"]) == ("broken", "a\\x1b[2J\\u202e")


@pytest.mark.parametrize(
    ("paper", "short"),
    [
        ('the baseline of Smith, De Mello, Kautz, "Convolutional Models", NeurIPS 2023', "Smith et al., NeurIPS 2023"),
        ('Girdhar and Ramanan, "CATER", ICLR 2020', "Girdhar and Ramanan, ICLR 2020"),
        ('van den Oord, Vinyals, Kavukcuoglu, "Neural Learning", NeurIPS 2017', "van den Oord et al., NeurIPS 2017"),
        ('Singh et al., "Illiterate DALL-E Learns" (SLATE), ICLR 2022', "Singh et al., ICLR 2022"),
        ('Lin, "Modular Neural Networks" (2022)', "Lin, 2022"),
        ("PSB (Singh et al., ICML 2024)", "PSB (Singh et al., ICML 2024)"),
        ('SlotSSM §7.1 (loss "bce"); Lin, "Modular", 2022', 'SlotSSM §7.1 (loss "bce")'),
        ("", ""),
    ],
)
def test_a_paper_is_cited_by_its_first_author_and_where_it_appeared(paper, short):
    assert cited(paper) == short


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
