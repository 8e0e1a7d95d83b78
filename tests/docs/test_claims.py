"""The claims of `docs/results.md` and of the papers' pages: verdicts are words of one rule, and counted right."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "results.md"


def table(page: Path, first: str, second: str) -> list[list[str]]:
    """The rows of the first table whose head begins with these two cells, its head first."""
    lines = page.read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {first} | {second} |"))
    rows: list[list[str]] = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return [rows[0], *rows[2:]]


def rule() -> list[str]:
    """The verdicts that the rule at the top of the page defines, each in one sentence."""
    above_the_tables = PAGE.read_text(encoding="utf-8").partition("\n| ")[0]
    return re.findall(r"^- \*\*([a-z ]+)\*\*: ", above_the_tables, re.MULTILINE)


def test_the_rule_defines_every_verdict():
    assert rule() == ["holds", "in part", "contested", "undecided", "not so here", "open"]


def test_verdicts_are_words_of_the_rule():
    _, *claims = table(PAGE, "paper", "claim")
    assert {row[2] for row in claims} <= set(rule())


@pytest.mark.parametrize("paper", ["convs5", "psb", "slotssm"])
def test_verdicts_of_a_paper_are_words_of_the_rule(paper):
    _, *claims = table(DOCS / "papers" / f"{paper}.md", "claim", "here")
    assert len(claims) > 5
    assert {row[1] for row in claims} <= set(rule())


def test_the_count_of_claims_is_that_of_the_table():
    _, *claims = table(PAGE, "paper", "claim")
    verdicts: dict[str, Counter[str]] = {}
    paper = ""
    for name, _, verdict, *_ in claims:
        paper = name or paper
        verdicts.setdefault(paper, Counter())[verdict] += 1
    (_, *kinds), *counts = table(PAGE, "claims", "holds")
    assert kinds == rule()
    expected = [[paper, *(str(counted[kind]) for kind in kinds)] for paper, counted in verdicts.items()]
    total = sum(verdicts.values(), Counter())
    assert counts == [*expected, ["all", *(str(total[kind]) for kind in kinds)]]
