"""Foreign text on its way to a terminal, rich, CSV, LaTeX, Markdown and HTML."""

from __future__ import annotations

import io
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from slotbench.text import csv_cell, latex_text, markdown_cell, one_line, printable, rich_text


def test_escapes_are_shown_and_not_obeyed():
    assert printable("a\x1b[2Jb\x07\x9bc\u202egnp\r") == "a\\x1b[2Jb\\x07\\x9bc\\u202egnp\\x0d"


def test_ordinary_text_stays_as_it_is():
    assert printable("Größe 模型 – 3 × 4\n\tx") == "Größe 模型 – 3 × 4\n\tx"


def test_long_text_is_cut_and_says_so():
    assert printable("a" * 30, limit=10) == "a" * 10 + "… (20 more characters)"


@given(st.text())
def test_nothing_a_terminal_obeys_is_left(text):
    assert not {unicodedata.category(c) for c in printable(text) if c not in "\n\t"} & {"Cc", "Cf", "Cs", "Co"}


def test_a_cell_is_one_line():
    assert one_line("a\nb\tc\u2028d\x1b[0m") == "a\\x0ab\\x09c\\u2028d\\x1b[0m"
    assert one_line("val/fg_ari ü") == "val/fg_ari ü"


@pytest.mark.parametrize(
    "text", ["a[/b]", "[red]x[/red]", "[link=file:///x]y", "[@click=app.quit]z", "1[2]\\", "[", "\\[b]"]
)
def test_rich_shows_markup_and_does_not_obey_it(text):
    out = io.StringIO()
    Console(file=out, force_terminal=True, color_system=None, width=200).print(f"[bold]{rich_text(text)}[/bold]")
    assert Text.from_ansi(out.getvalue()).plain.rstrip("\n") == text


@given(st.text(st.characters(codec="utf-8")))
def test_rich_never_fails_over_foreign_text(text):
    assert Text.from_markup(f"[bold]{rich_text(text)}[/bold]", emoji=False).plain == printable(text)


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-cmd", "@SUM(A1)", "\t=1", "\r=1", "  =1", "＝1", "-2+3"])
def test_a_spreadsheet_finds_no_formula(text):
    assert str(csv_cell(text)).startswith("'")


def test_numbers_and_ordinary_text_stay_themselves_in_csv():
    given = [None, -1.5, 3, True, "-1e-3", "+2", "SlotSSM", "val/psnr", "", "a=b", "-inf"]
    assert [csv_cell(value) for value in given] == given


_TEX = re.compile(
    r"\\(?:textbackslash|textasciitilde|textasciicircum|textbar)\{\}|\\[&%$#_{}]|\{[\[\]*]\}|\$[<>^2\\a-z]+\$"
)


@given(st.text())
def test_latex_has_no_live_character_left(text):
    assert not set(_TEX.sub("", latex_text(text))) & set("\\&%$#_{}~^[]*<>|\n")


def test_latex_of_a_hostile_name():
    assert latex_text(r"\input{/etc/passwd}") == r"\textbackslash{}input\{/etc/passwd\}"


def test_markdown_shows_what_is_written():
    assert markdown_cell("val/fg_ari/video") == "val/fg_ari/video"
    assert markdown_cell("a|b\n<img src=x onerror=y>[x](javascript:y)") == (
        r"a\|b\\x0a&lt;img src=x onerror=y&gt;\[x\](javascript:y)"
    )
    assert markdown_cell("_a_ **b** `c` $d$ ~~e~~ # f !g &lt;") == (
        r"\_a\_ \*\*b\*\* \`c\` \$d\$ \~\~e\~\~ \# f \!g &amp;lt;"
    )
