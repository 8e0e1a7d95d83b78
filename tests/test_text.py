"""Foreign text on its way to a terminal."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from slotbench.text import printable


def test_escapes_are_shown_and_not_obeyed():
    assert printable("a\x1b[2Jb\x07\x9bc\u202egnp\r") == "a\\x1b[2Jb\\x07\\x9bc\\u202egnp\\x0d"


def test_ordinary_text_stays_as_it_is():
    assert printable("Größe 模型 – 3 × 4\n\tx") == "Größe 模型 – 3 × 4\n\tx"


def test_long_text_is_cut_and_says_so():
    assert printable("a" * 30, limit=10) == "a" * 10 + "… (20 more characters)"


@given(st.text())
def test_nothing_a_terminal_obeys_is_left(text):
    assert not {unicodedata.category(c) for c in printable(text) if c not in "\n\t"} & {"Cc", "Cf", "Cs", "Co"}
