"""The pages of results: short, with small tables that the committed records make again, and figures that are there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from docs_scripts import assert_tables_are_made_again

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RECORDS = ROOT / "experiments" / "grids" / "records"
STUDIES = sorted((DOCS / "results").glob("*.md"))
MOST_WORDS, MOST_COLUMNS = 1_500, 6


def words(page: str) -> int:
    """Words of a page that a reader sees, without comments and addresses."""
    shown = re.sub(r"\]\([^)]*\)", "]", re.sub(r"<!--.*?-->", "", page, flags=re.DOTALL))
    return sum(bool(re.search(r"\w", word)) for word in shown.split())


def test_the_page_of_results_is_read_in_ten_minutes():
    assert words((DOCS / "results.md").read_text(encoding="utf-8")) <= MOST_WORDS


def test_words_are_counted_as_a_reader_sees_them():
    assert words("two [words](and/an/address.md)\n<!-- a comment\nof two lines -->\n| three | - |") == 3


@pytest.mark.parametrize("page", [DOCS / "results.md", *STUDIES], ids=lambda path: path.stem)
def test_tables_are_narrow(page):
    """But for the counts of verdicts, a column each."""
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    wide = [row for row in rows if len(re.findall(r"(?<!\\)\|", row)) - 1 > MOST_COLUMNS]
    assert [row for row in wide if page.stem != "results" or len(re.findall(r"\|", row)) != 8] == []


@pytest.mark.parametrize("page", [p for p in STUDIES if p.stem not in ("archive", "tests")], ids=lambda path: path.stem)
def test_a_study_says_what_it_asked_how_what_it_found_and_what_it_does_not_show(page):
    text = page.read_text(encoding="utf-8")
    parts = ["**Question.**", '!!! abstract "Settings"', "](../assets/", "<!-- table: ", "**Finding.**", "**Limits.**"]
    places = [text.find(part) for part in parts]
    assert -1 not in places
    assert places == sorted(places)
    assert f"(results/{page.name}" in (DOCS / "results.md").read_text(encoding="utf-8")


def test_studies_that_still_improved_at_the_end_are_counted():
    pages = [" ".join(page.read_text(encoding="utf-8").split()) for page in STUDIES]
    studies = [page for page in pages if "**Question.**" in page and "in the last quarter of training" in page]
    improving = [page for page in studies if "- still improving at the end" in page]
    text = " ".join((DOCS / "results.md").read_text(encoding="utf-8").split())
    assert f"in {len(improving)} of {len(studies)} studies some variant still gained 2 % or more" in text


def test_every_figure_of_the_script_is_shown_and_drawn(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "scripts")
    import draw_results

    pages = "".join(page.read_text(encoding="utf-8") for page in [DOCS / "results.md", *STUDIES])
    for name in draw_results.FIGURES:
        assert f"assets/results_{name}.svg" in pages
        assert (DOCS / "assets" / f"results_{name}.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_a_figure_is_drawn_from_the_records(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "scripts")
    import draw_results

    assert draw_results.main(["slots", "--out", str(tmp_path)]) == 0
    drawn = (tmp_path / "results_slots.svg").read_text(encoding="utf-8")
    assert "weighted sum" in drawn
    assert "n = 5" in drawn
    assert draw_results.main(["balls", "--runs_dir", str(tmp_path), "--out", str(tmp_path)]) == 1


def test_the_curve_of_k_means_goes_through_the_baselines_of_the_study():
    scores = json.loads((DOCS / "scripts" / "kmeans_weights.json").read_text())["scores"]
    page = (DOCS / "results" / "objects.md").read_text(encoding="utf-8")
    for name, weight in (("k-means colour", "0.0"), ("k-means colour + position", "1.5")):
        row = next(line for line in page.splitlines() if line.startswith(f"| *{name}* |"))
        shown = [float(cell) for cell in re.findall(r"\d\.\d+", row)]
        assert shown == [pytest.approx(value, abs=0.006) for value in scores[weight].values()]


@pytest.mark.parametrize(
    ("page", "grid", "archive"),
    [
        ("mazes", "maze_cores", "maze_cores"),
        ("depth", "depth_like", "depth_like"),
        ("cameras", "multi_camera_cores", "multi_camera_cores"),
        pytest.param("bouncing_balls", "studies/bouncing_balls", "bouncing_balls_study", marks=pytest.mark.slow),
        pytest.param("objects", "studies/movi_like", "movi_like_study", marks=pytest.mark.slow),
        pytest.param(
            "moving_sprites",
            "studies/moving_sprites studies/moving_sprites_dark",
            "moving_sprites_study moving_sprites_dark_study",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_records_make_the_table_of_a_page_again(tmp_path, page, grid, archive):
    """And the tests behind its verdicts."""
    for one, records in zip(grid.split(), archive.split(), strict=True):
        command = [sys.executable, "-m", "slotbench", "grid", "unpack"]
        command += [str(ROOT / "experiments" / "grids" / f"{one}.yaml"), str(RECORDS / f"{records}.zip")]
        command += ["--runs_dir", str(tmp_path)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, env=environment)
    text = (DOCS / "results" / f"{page}.md").read_text(encoding="utf-8")
    text += "".join(part_on_tests(Path(one).name) for one in grid.split())
    assert_tables_are_made_again(text, tmp_path)


def part_on_tests(grid: str) -> str:
    """The part of the page of tests that is about the runs of a grid."""
    parts = (DOCS / "results" / "tests.md").read_text(encoding="utf-8").split("## ")
    return next(part for part in parts if part.partition("\n")[0] in (grid, grid.removesuffix("_cores")))
