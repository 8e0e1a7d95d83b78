"""The pages of results: tables and tests behind verdicts are what the committed records make."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RECORDS = sorted((ROOT / "experiments" / "grids" / "records").glob("*.csv"))
STUDIES = sorted((DOCS / "results").glob("*.md"))


@pytest.fixture
def made(monkeypatch):
    """The modules that make tables and contrasts."""
    monkeypatch.syspath_prepend(DOCS)
    import contrasts
    import tables

    yield tables, contrasts
    sys.modules.pop("tables")
    sys.modules.pop("contrasts")


@pytest.mark.parametrize("page", ["mazes", "slot_identity"])
def test_records_make_the_table_of_a_page_again(made, page):
    tables, _ = made
    text = (DOCS / "results" / f"{page}.md").read_text(encoding="utf-8")
    emptied = tables.TABLE.sub(lambda match: f"{match[1]}nothing\n{match[5]}", text)
    assert emptied != text
    assert tables.remade(emptied) == text


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_records_make_every_table_again(made):
    tables, _ = made
    for page in STUDIES:
        text = page.read_text(encoding="utf-8")
        assert tables.remade(text) == text, page


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_records_make_every_contrast_again(made, tmp_path):
    _, contrasts = made
    assert contrasts.main(["--out", str(tmp_path / "made.csv")]) == 0
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "made.csv"), pd.read_csv(DOCS / "results" / "contrasts.csv"))


def test_records_are_small_and_name_no_folder_of_a_machine():
    for path in RECORDS:
        assert path.stat().st_size <= 300_000, path
        assert not re.search(r"(?<![\w./-])/(?:home|root|work|tmp)/", path.read_text(encoding="utf-8")), path


def test_claims_are_counted_right():
    lines = (DOCS / "results.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("|")]
    head = next(row for row in rows if row[0] == "claims")
    counted = {row[0]: row[1:] for row in rows[rows.index(head) + 2 :][:6]}
    paper, verdicts = "", []
    for row in rows:
        if len(row) == 5 and row[2] in head:
            paper = row[0] or paper
            verdicts.append((paper, row[2]))
    for name, counts in counted.items():
        own = [verdict for paper, verdict in verdicts if name in (paper, "all")]
        assert counts == [str(own.count(kind)) for kind in head[1:]], name
