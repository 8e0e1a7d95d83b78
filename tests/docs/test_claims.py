"""The first page of `docs/results.md`: the count of the papers' claims is that of the table below it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "results.md"


def table(first: str, second: str) -> list[list[str]]:
    """The rows of the first table whose head begins with these two cells, its head first."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {first} | {second} |"))
    rows: list[list[str]] = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return [rows[0], *rows[2:]]


def test_the_count_of_claims_is_that_of_the_table():
    _, *claims = table("paper", "claim")
    verdicts: dict[str, Counter[str]] = {}
    paper = ""
    for name, _, verdict, _ in claims:
        paper = name or paper
        verdicts.setdefault(paper, Counter())[verdict] += 1
    (_, *kinds), *counts = table("claims", "holds")
    assert {kind for counted in verdicts.values() for kind in counted} <= set(kinds)
    expected = [[paper, *(str(counted[kind]) for kind in kinds)] for paper, counted in verdicts.items()]
    total = sum(verdicts.values(), Counter())
    assert counts == [*expected, ["all", *(str(total[kind]) for kind in kinds)]]
