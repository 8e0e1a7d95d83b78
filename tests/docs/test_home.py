"""The home page: its table of cores has the numbers of the studies on their pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
COLUMNS = {
    "blinking_balls": "colour accuracy",
    "bouncing_balls": "error of 8 frames",
    "objects": "FG-ARI",
}


def rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]


def study(name: str) -> list[dict[str, str]]:
    """The rows of the table on a study's page, by column."""
    page = (DOCS / "results" / f"{name}.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- table: [^\n]*\n<!-- columns: [^\n]*\n(.*?)<!-- end of table -->", page, re.DOTALL)
    assert found is not None
    head, _, *body = rows(found[1])
    return [dict(zip(head, row, strict=True)) for row in body]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_scores_of_the_home_page_are_those_of_the_study(number: int) -> None:
    page = (DOCS / "index.md").read_text(encoding="utf-8")
    _, _, *shown = rows(page[page.index("| core |") :].split("\n\n", 1)[0])
    name, column = list(COLUMNS.items())[number - 1]
    baselines: list[str] = []
    scores: dict[str, set[str]] = {}
    for row in study(name):
        if not row["core"].startswith("*"):
            scores.setdefault(row["core"], set()).add(row[column].strip("*"))
        elif row[column] and ("oracle" not in row["core"] or row["core"] == "*oracle: constant velocity*"):
            # which learns nothing, whatever it is told
            baselines.append(row[column])
    assert shown[0][number] == (min if column.startswith("error") else max)(baselines, key=float)
    told = {row[0].split("`")[1]: row[number] for row in shown[1:] if row[number] != "–"}
    assert set(told) == set(scores), "a core is left out"
    assert [core for core, score in told.items() if score not in scores[core]] == []


def test_the_reference_comes_after_the_guides_in_the_search() -> None:
    lowered = {
        path
        for path in DOCS.rglob("*.md")
        if path.read_text(encoding="utf-8").startswith("---\nsearch: {boost: 0.5}\n")
    }
    assert lowered == set((DOCS / "reference").glob("*.md"))


@pytest.mark.parametrize("page", ["wandb.md", "loggers.md"])
def test_who_searches_for_the_short_name_of_weights_and_biases_finds_its_pages(page: str) -> None:
    """The index of the search has the name in texts and titles as "W&amp;B" only, which nobody types."""
    assert (DOCS / page).read_text(encoding="utf-8").startswith("---\ntags: [W&B]\n---\n")


def test_each_kind_with_a_page_of_its_own_is_linked_from_the_list_of_components() -> None:
    page = (DOCS / "reference" / "components.md").read_text(encoding="utf-8")
    for kind in ("encoders", "cores", "decoders", "aggregations", "tokenizers"):
        assert f"<!-- components: {kind} -->" in page
        assert f"({kind}.md)" in page
        assert f"::: slotbench_plugins.{kind}\n" in (DOCS / "reference" / f"{kind}.md").read_text(encoding="utf-8")
