"""The pages of results: tables and tests behind verdicts are what the committed records make."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from slotbench.comparison.statistics import holm
from slotbench.grids.grid_file import read_grid_file

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RECORDS = sorted((ROOT / "experiments" / "grids" / "records").glob("*.csv"))
GRIDS = sorted((ROOT / "experiments" / "grids").rglob("*.yaml"))
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


@pytest.mark.parametrize("page", ["../results", "mazes", "slot_identity"])
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


def test_a_contrast_about_masks_has_all_three_scores(made):
    _, contrasts = made
    for name, study in yaml.safe_load(contrasts.STUDIES.read_text(encoding="utf-8")).items():
        for given in study["scores"]:
            masks = {kind for metric in given["metrics"].values() for kind in re.findall("fg_ari|miou|ari", metric)}
            only_grid = given["pairs"] == [["OC-SlotSSM", "blind grid"]]
            assert masks in (set(), {"fg_ari", "ari", "miou"}) or only_grid, name


def test_holm_corrects_over_the_pairs_of_a_study_by_one_score_of_masks_at_a_time(made, monkeypatch):
    _, contrasts = made
    sides = {name: {"core": name} for name in "abc"}
    scores = [
        {"metrics": {"x": "x", "y": "y"}, "pairs": [["a", "b"], ["a", "c"]]},
        {"metrics": {"z": "z"}, "pairs": [["b", "c"]]},
    ]
    noise = np.random.default_rng(0).normal(size=(15, 3))
    runs = pd.DataFrame(noise, columns=list("xyz")).assign(core=list("abc") * 5)
    runs.loc[runs["core"] == "a", "x"] += 9
    runs.loc[runs["core"] == "c", "z"] += 1
    monkeypatch.setattr(contrasts, "runs_of", lambda study: runs)
    found = contrasts.contrasts("made", {"sides": sides, "scores": scores})
    by_x, by_y = (holm(found["p"].loc[rows]) for rows in ([0, 1, 4], [2, 3, 4]))
    expected = [*by_x[:2], *by_y[:2], max(by_x[4], by_y[4])]
    assert list(found["p_holm"]) == pytest.approx(expected)
    assert by_x[4] != by_y[4]


@pytest.mark.parametrize("path", GRIDS, ids=lambda path: path.stem)
def test_a_protocol_chooses_by_the_loss_unless_the_file_says_why_not(path):
    protocol = read_grid_file(path).protocol
    if protocol is not None and protocol.metric != "val/loss":
        assert re.search("^  by: .*# ", path.read_text(encoding="utf-8"), re.MULTILINE)


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
