"""The page about scoring shows what its commands print for the clips that its script writes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from slotbench import cli

PAGE = (Path(__file__).parents[2] / "docs" / "score.md").read_text(encoding="utf-8")
(SCRIPT,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
SHOWN = re.findall(r"^```console\n\$ slotbench (.*?)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def discs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("discs")
    subprocess.run([sys.executable, "-I", "-c", SCRIPT], cwd=folder, check=True)
    return folder


def rows(text):
    """The lines of a table by their first words, with the numbers in them."""
    lines = [re.split(r"  +", line.strip()) for line in text.splitlines() if re.search(r"  +-?\d", line)]
    return {first: [cell for cell in cells if re.fullmatch(r"(> )?-?[\d.]+", cell)] for first, *cells in lines}


def test_the_table_of_conventions_is_what_the_command_prints(discs, monkeypatch, capsys):
    monkeypatch.chdir(discs)
    command, shown = SHOWN[0]
    assert cli.run(command.split()) == 0
    assert len(rows(shown)) == 6
    assert rows(capsys.readouterr().out) == rows(shown)


def test_the_table_of_scores_is_what_the_command_prints(discs, monkeypatch, capsys):
    monkeypatch.chdir(discs)
    command, shown = SHOWN[1]
    # the last three columns see the frames, and take a second per clip
    assert cli.run(command.partition(" --frames")[0].split()) == 0
    found, expected = rows(capsys.readouterr().out), rows(shown)
    assert list(found) == list(expected)
    assert len(found) > 15
    for name, cells in found.items():
        assert cells == expected[name][: len(cells)], name
