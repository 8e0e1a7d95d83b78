"""Help fits the terminal: no line is longer, no word is broken, options and meanings stand in columns."""

from __future__ import annotations

import re

import pytest

from slotbench.cli import COMMANDS, run
from slotbench.help_text import fitted

ACTIONS = ("run", "show", "test", "check")
HELP = [
    ["--help"],
    *([command, "--help"] for command in COMMANDS),
    *(["grid", action, "--help"] for action in ACTIONS),
    ["test", "--lengths", "1", "--help"],
    ["fit", "--help-all"],
]


def columns_of_meanings(text: str) -> list[set[int]]:
    """Of every block of rows, where meanings begin; the usage has none."""
    text = text.partition("\n\n")[2] if text.startswith("Usage: ") else text
    blocks = re.findall(r"(?:^  .*\n?)+", text, re.MULTILINE)
    starts = [re.finditer(r"^(?:  \S.*?  +| {7,})(?=\S)", block, re.MULTILINE) for block in blocks]
    return [{found.end() - found.start() for found in start} for start in starts]


@pytest.mark.parametrize("arguments", HELP, ids=" ".join)
def test_help_fits_the_terminal(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = {}
    for width in (80, 140):
        monkeypatch.setenv("COLUMNS", str(width))
        assert run(arguments) == 0
        shown[width] = capsys.readouterr().out
        assert max(map(len, shown[width].splitlines())) <= width
        # a meaning that has a word too long for its column stands below, at 6
        assert all(len(columns - {6}) <= 1 for columns in columns_of_meanings(shown[width]))
    narrow, wide = ([word for word in shown[width].split() if word != "\\"] for width in (80, 140))
    assert narrow == wide


def test_paragraphs_are_filled_and_rows_keep_their_columns() -> None:
    text = """Usage: slotbench it FILE [--long_option VALUE] [--other OTHER]
       slotbench it [--help]

Says what it is in a paragraph that was written at
another width.
  --long_option VALUE    what it does, in more words than fit into a line of forty columns
                         and on two lines of the source
  --other OTHER  short

Examples:
  slotbench it file.yaml --long_option 'a value' \\
    --other b"""
    assert fitted(text, 48).splitlines() == [
        "Usage: slotbench it FILE [--long_option VALUE]",
        "           [--other OTHER]",
        "       slotbench it [--help]",
        "",
        "Says what it is in a paragraph that was written",
        "at another width.",
        "  --long_option VALUE  what it does, in more",
        "                       words than fit into a",
        "                       line of forty columns and",
        "                       on two lines of the",
        "                       source",
        "  --other OTHER        short",
        "",
        "Examples:",
        "  slotbench it file.yaml \\",
        "    --long_option 'a value' --other b",
    ]


def test_what_is_long_stands_above_its_meaning() -> None:
    text = "  --an_option_with_a_very_long_name VALUE  meaning\n  --short  other"
    assert fitted(text, 60).splitlines() == [
        "  --an_option_with_a_very_long_name VALUE",
        "           meaning",
        "  --short  other",
    ]
    # a word that has no room in the column has it below
    text = f"  --option  {'x' * 40}\n  --other  y"
    assert fitted(text, 48).splitlines() == ["  --option", f"      {'x' * 40}", "  --other   y"]
