"""The page of a comparison, opened from a file and used in a real browser.

`SLOTBENCH_SCREENSHOTS=FOLDER` makes the last test keep the pictures of the docs there, of the runs that
`SLOTBENCH_SCREENSHOTS_OF` names (folders, as one gives them to `slotbench compare`), or else of made-up ones.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from page_comparisons import CURVES, ERROR, SCORE, made_up
from PIL import Image

from slotbench.comparison.page.page import write_html
from slotbench.comparison.records import Comparison, Metric
from slotbench.comparison.sources import open_sources
from slotbench.comparison.statistics import summarise
from slotbench.comparison.table import compare

GRIDS = Path(__file__).parents[2] / "experiments" / "grids"


def test_what_the_page_shows_when_it_is_opened(open_page, comparison):
    tab = open_page(comparison)
    page = tab.page
    assert page.title() == page.inner_text("h1") == "Made up"
    assert page.inner_text("#facts").startswith("27 runs in 9 rows · up to 3 seeds a row")
    assert page.inner_text("#command") == comparison.command
    assert page.inner_text("#notes") == "a note"
    assert tab.labels() == [row.label for row in comparison.rows]
    assert page.locator("td.best").count() == 1
    assert "best of its column" in page.locator("td.best").text_content()
    assert page.locator(".rows .badge").all_inner_texts() == ["1 failed"]
    names = page.locator(".baselines th .name").all_inner_texts()
    assert names == ["one slot", "k-means", "copy the last frame", "black"]
    assert page.locator("#curves figure").count() == 3
    assert tab.rows(CURVES) == tab.rows("axis", "points") == list(range(9))
    assert page.locator("#settings tr.differs").count() > 0
    assert page.locator("#media img").count() == 9


def test_success_and_budget_are_columns_of_a_grid_with_a_protocol_alone(open_page, comparison):
    plain = open_page(comparison)
    assert plain.page.locator("th[data-column='success']").count() == 0
    first, *others = (replace(row, success=(2, 3), steps=5000, seconds=90.0) for row in comparison.rows)
    tab = open_page(replace(comparison, rows=[replace(first, success=(0, 3)), *others], has_protocol=True))
    heading = tab.page.locator("th[data-column='success']")
    assert "beat the best baseline" in heading.locator("button").get_attribute("title")
    heading.locator("button").click()
    tab.settle()
    assert tab.labels()[-1] == first.label
    words = tab.page.locator(".rows tr").last.inner_text().split()
    assert {"0/3", "5,000", "1.5"} <= set(words)


def test_a_heading_sorts_and_says_so(open_page, comparison):
    tab = open_page(comparison)
    heading = tab.page.locator(f"th[data-column='metric {ERROR}']")
    best_first = tab.labels()
    assert heading.get_attribute("aria-sort") == "none"
    heading.locator("button").click()
    tab.settle()
    assert heading.get_attribute("aria-sort") == "ascending"
    assert tab.labels() == best_first
    heading.locator("button").press("Enter")
    tab.settle()
    assert heading.get_attribute("aria-sort") == "descending"
    assert tab.labels() == best_first[::-1]
    assert tab.page.evaluate("document.activeElement.id") == f"sort metric {ERROR}"
    tab.page.click("#columns summary")
    tab.page.locator("#columns label", has_text="model.core.num_slots").click()
    tab.page.keyboard.press("Escape")
    tab.page.locator("th[data-column='key model.core.num_slots'] button").click()
    tab.settle()
    assert [label.split(", ")[1] for label in tab.labels()] == ["4 slots"] * 3 + ["8 slots"] * 3 + ["16 slots"] * 3


def test_rows_without_a_value_are_last_either_way(open_page, comparison):
    first = comparison.rows[0]
    lacking = replace(first, cells={SCORE: first.cells[SCORE]})
    tab = open_page(replace(comparison, rows=[lacking, *comparison.rows[1:]]))
    button = tab.page.locator(f"th[data-column='metric {ERROR}'] button")
    for _ in range(2):
        button.click()
        tab.settle()
        assert tab.labels()[-1] == first.label


def test_the_filter_keeps_rows_with_all_words_everywhere(open_page, comparison):
    tab = open_page(comparison)
    tab.page.fill("#filter", "num_slots=8 -core=psb")
    tab.settle()
    assert sorted(tab.labels()) == ["OCSlotSSM, 8 slots", "SlotSSM, 8 slots"]
    assert len(tab.rows(CURVES)) == len(tab.rows("axis", "points")) == 2
    assert tab.page.locator("#media figure").count() == 2
    assert tab.page.inner_text("#shown") == "2 of 9 rows drawn, 2 match"
    tab.page.fill("#filter", "core.num_slots=8 failed")
    tab.settle()
    failed = [row for row in comparison.rows if row.unfinished]
    assert tab.labels() == [row.label for row in failed if "8 slots" in row.label]
    tab.page.fill("#filter", "no such thing")
    tab.settle()
    assert tab.labels() == []
    assert "No row has all these words" in tab.page.inner_text("#table")


def test_a_word_of_the_filter_is_looked_for_in_what_one_sees(open_page, comparison):
    rows = [replace(row, label=row.label.partition(",")[0] + f" {n}") for n, row in enumerate(comparison.rows)]
    tab = open_page(replace(comparison, rows=rows))
    tab.page.fill("#filter", "Slot")
    tab.settle()
    # the names of settings, such as num_slots, and settings that no column shows are not in sight
    assert len(tab.labels()) == 6
    assert not [label for label in tab.labels() if label.startswith("PSB")]
    tab.page.fill("#filter", "16")
    tab.settle()
    assert tab.labels() == []
    tab.page.click("#columns summary")
    tab.page.locator("#columns label", has_text="model.core.num_slots").click()
    tab.settle()
    assert len(tab.labels()) == 3


def test_a_row_that_is_hidden_loses_its_lines_points_and_images(open_page, comparison):
    tab = open_page(comparison)
    page = tab.page
    drawn = tab.layers(CURVES)["lines"]
    page.locator("tr[data-row='2'] td").first.click()
    tab.settle()
    assert tab.rows(CURVES) == tab.rows("axis", "points") == [0, 1, 3, 4, 5, 6, 7, 8]
    assert page.locator("#media figure[data-row='2']").count() == 0
    assert page.locator("#eye-2").get_attribute("aria-pressed") == "false"
    page.locator("#curves-entry-2").press("Enter")
    tab.settle()
    assert tab.layers(CURVES)["lines"] == drawn
    assert page.evaluate("document.activeElement.id") == "curves-entry-2"
    page.locator("#eye-5").click(modifiers=["Shift"])
    tab.settle()
    assert tab.rows(CURVES) == [5]
    page.click("#show-none")
    tab.settle()
    assert "None of the rows that are shown" in page.inner_text("#curves")
    page.click("#show-all")
    tab.settle()
    assert tab.rows(CURVES) == list(range(9))


def test_a_row_has_the_same_colour_in_the_table_and_in_the_plots(open_page, comparison):
    tab = open_page(comparison)
    stroke = "node => [getComputedStyle(node).stroke, node.getAttribute('stroke-dasharray')]"

    def look(row: int) -> tuple[str, str]:
        colour, dashes = tab.page.locator(f"#table tr[data-row='{row}'] .swatch line").evaluate(stroke)
        return "#{:02x}{:02x}{:02x}".format(*map(int, re.findall(r"\d+", colour))), dashes or ""

    lines = tab.layers(CURVES)["lines"]
    for row, colour, dash in zip(lines["row"], lines["colour"], lines["dash"], strict=True):
        if row >= 0:
            assert (colour, " ".join(f"{part:g}" for part in dash)) == look(row)
    looks = [look(row) for row in range(9)]
    assert len(set(looks)) == 9
    tab.page.locator(f"th[data-column='metric {ERROR}'] button").dblclick()
    tab.settle()
    assert look(8) == looks[8]


def pixels_of(picture: bytes, colour: str) -> int:
    pixels = np.asarray(Image.open(io.BytesIO(picture)).convert("RGB"))
    return int((pixels == [int(colour[at : at + 2], 16) for at in (1, 3, 5)]).all(-1).sum())


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_the_plots_are_there_to_be_seen(open_page, colours):
    tab = open_page(made_up(cores=1, slots=(4,), seeds=1), colours=colours)
    colour = tab.layers(CURVES)["lines"]["colour"][-1]
    for plot in ("#curves .plot", "#axis"):
        box = tab.page.locator(plot).first
        box.locator("canvas").first.wait_for()
        tab.page.wait_for_timeout(500)
        assert pixels_of(box.screenshot(), colour) > 50


def test_a_row_opens_into_its_runs(open_page, comparison):
    tab = open_page(comparison)
    position = next(place for place, row in enumerate(comparison.rows) if row.unfinished)
    tab.page.click(f"#open-{position}")
    runs = tab.page.locator("tr.run")
    assert runs.count() == 3
    said = runs.all_inner_texts()
    assert sum("failed" in text for text in said) == 1
    for text, run, value in zip(
        said, comparison.rows[position].runs, comparison.rows[position].cells[SCORE].values, strict=True
    ):
        assert run.source in text
        assert f"{value:.4f}" in text
    tab.page.click(f"#open-{position}")
    assert runs.count() == 0


def test_the_interval_is_shown_beside_the_pointer_and_on_demand(open_page, comparison):
    tab = open_page(comparison)
    cell = comparison.rows[0].cells[SCORE]
    tab.page.locator("tr[data-row='0'] td.score").first.hover()
    assert f"{cell.low:.4f} to {cell.high:.4f}" in tab.page.inner_text("#tip")
    tab.page.mouse.move(0, 0)
    assert tab.page.locator("#tip").is_hidden()
    tab.page.check("#table-intervals")
    assert f"{cell.low:.4f} to {cell.high:.4f}" in tab.page.locator("tr[data-row='0'] td.score").first.inner_text()


def test_scores_stand_beside_the_row_and_nothing_is_cut_off(open_page, comparison):
    longer = "SlotSSM, schedule=" + "linear warm-up and cosine, " * 4
    rows = [replace(comparison.rows[0], label=longer), *comparison.rows[1:]]
    tab = open_page(replace(comparison, rows=rows), width=1300)
    inside, table = (tab.page.locator(name).bounding_box()["width"] for name in ("#table", "#table > table"))
    assert table <= inside
    headings = tab.page.locator("#table thead th").all_inner_texts()
    assert [heading.split("\n")[0].split("\u00a0")[0] for heading in headings[:4]] == [
        *("row", "seeds", "FG-ARI per video", "error: MSE per pixel")
    ]
    assert tab.page.locator("th[data-column^=key]").count() == 0
    tab.page.click("#open-0")
    assert "model.core.num_slots: " in tab.page.inner_text("tr.settings")
    for entry in tab.page.locator("#curves-legend .entry").all():
        box = entry.bounding_box()
        assert box["x"] + box["width"] <= 1300


def many_columns() -> Comparison:
    """A page with twelve columns: seeds, six scores, success, steps, minutes, parameters, time per step."""
    given = made_up(cores=3, slots=(4,), seeds=2)
    names = [f"val/rollout_mse/step_{step:02}" for step in range(4)]
    labels = ["PSB", "SlotTransformer, rule=most_frequent", "slot_init=learned, interaction=decoupled, time_bias=mlp"]
    rows = [
        replace(
            row,
            label=label,
            cells={**row.cells, **dict.fromkeys(names, row.cells[ERROR])},
            success=(2, 2),
            steps=5000,
            seconds=90.0,
        )
        for row, label in zip(given.rows, labels, strict=True)
    ]
    metrics = [*given.metrics, *(Metric(name, name.removeprefix("val/"), False) for name in names)]
    return replace(given, rows=rows, metrics=metrics, has_protocol=True)


# of each name: its width, the width of its longest word, and whether all of it is in sight
WIDTHS = """() => [...document.querySelectorAll("#table .rows .name, #table .baselines .name")].map((node) => {
  const box = node.getBoundingClientRect();
  const probe = document.createElement("span");
  probe.style.cssText = "position: absolute; visibility: hidden; white-space: nowrap";
  node.parentElement.append(probe);
  const widths = node.textContent.split(" ").map((word) => {
    probe.textContent = word;
    return probe.getBoundingClientRect().width;
  });
  probe.remove();
  const isWhole = node.scrollHeight <= node.clientHeight + 1 && node.scrollWidth <= node.clientWidth + 1;
  return [box.width, Math.max(...widths), isWhole && box.left >= 0 && box.right <= innerWidth];
})"""


def test_names_of_rows_can_be_read_beside_twelve_columns(open_page):
    tab = open_page(many_columns())
    assert tab.page.locator("#table thead th").count() == 1 + 12
    for width in (400, 550, 700, 701, 900, 1100, 1300, 1500, 1920):
        tab.page.set_viewport_size({"width": width, "height": 900})
        for wide, longest_word, is_whole in tab.page.evaluate(WIDTHS):
            assert wide >= longest_word - 1
            assert is_whole
        first = tab.page.locator("#table .rows th").first.bounding_box()["width"]
        assert first <= 0.6 * width
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= width


def test_on_a_narrow_screen_the_first_scores_are_in_sight(open_page, comparison):
    tab = open_page(comparison, width=400)
    best = tab.page.locator("tr[data-row='0'] td.score").first.bounding_box()
    assert best["x"] + best["width"] <= 400
    assert best["y"] + best["height"] <= 450


def test_a_number_that_is_far_too_large_is_short_and_leaves_the_others_their_digits(open_page, comparison):
    first = comparison.rows[-1]
    lost = replace(first, cells={**first.cells, SCORE: summarise([1e20, 1e20])}, diverged=1)
    tab = open_page(replace(comparison, rows=[*comparison.rows[:-1], lost]))
    scores = [row.locator("td.score").first.inner_text() for row in tab.page.locator("#table tr[data-row]").all()]
    assert scores[-1] == "1.0e20 ± 0.0000 (2)"
    assert scores[0].startswith(f"{comparison.rows[0].cells[SCORE].mean:.4f} ±")


def test_runs_that_diverged_are_marked_in_table_legend_and_plots(open_page):
    tab = open_page(made_up(cores=2, slots=(4,), seeds=3, states={1: "diverged"}))
    assert tab.page.locator(".rows .badge.bad").all_inner_texts() == ["1 diverged"]
    (row,) = [place for place in (0, 1) if "✕" in tab.page.inner_text(f"#curves-entry-{place}")]
    for plot in (CURVES, "axis"):
        points = tab.layers(plot)["points"]
        crosses = [points["row"][at] for at, marker in enumerate(points["marker"]) if marker == "x"]
        assert crosses == [row]


def test_columns_are_chosen(open_page, comparison):
    tab = open_page(comparison)
    tab.page.click("#columns summary")
    tab.page.locator("#columns label", has_text="parameters").click()
    assert tab.page.locator("th[data-column=parameters]").count() == 0
    tab.page.keyboard.press("Escape")
    assert tab.page.locator("#columns .sheet").is_hidden()


def test_text_from_runs_stays_text(open_page, comparison):
    evil = '</script ></script><img src=x onerror="window.harmed = true"><b>&amp; $$x$$ \\[y\\]'
    row = replace(comparison.rows[0], label=evil, settings={evil: evil, "model.core": evil})
    row = replace(row, runs=[replace(run, name=evil, settings={**run.settings, evil: evil}) for run in row.runs])
    rows = [row, *comparison.rows[1:]]
    score, error = comparison.metrics
    score = replace(score, label=evil, baselines={evil: 0.5}, oracles={evil: 0.6})
    texts = {"title": evil, "notes": [evil], "command": evil, "keys": ["model.core", evil], "metrics": [score, error]}
    tab = open_page(replace(comparison, rows=rows, **texts))
    assert tab.page.title() == tab.page.inner_text("h1") == evil
    assert tab.labels()[0] == evil
    assert tab.page.inner_text("#notes") == tab.page.inner_text("#command") == evil
    tab.page.locator("#table td.score").first.hover()
    assert tab.page.inner_text("#tip").startswith(evil)
    tab.page.select_option("#axis-x", "key model.core")
    tab.page.check("#axis-baselines")
    tab.page.locator("#axis canvas").first.wait_for()
    assert tab.layers("axis")["names"]["text"] == [evil, f"oracle: {evil}"]
    assert tab.page.evaluate("window.harmed") is None
    assert tab.page.locator("img[src=x], b").count() == 0


def test_the_page_can_ask_no_server_for_anything(browser, comparison, tmp_path):
    write_html(comparison, tmp_path / "page.html")
    page = browser.new_page()
    asked = []
    page.goto((tmp_path / "page.html").as_uri())
    page.on("requestfinished", lambda request: asked.append(request.url))
    refused = page.evaluate("fetch('https://127.0.0.1:9/data').then(() => 'answered', (error) => error.name)")
    loaded = page.evaluate(
        "() => new Promise((done) => { const image = new Image(); image.onload = () => done('loaded');"
        "image.onerror = () => done('refused'); image.src = 'https://127.0.0.1:9/a.png'; })"
    )
    page.close()
    assert (refused, loaded, asked) == ("TypeError", "refused", [])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Comparison("", [], [], []), {"#table": "No runs.", "#curves": "no curves", "#axis-far": "no scores"}),
        (made_up(cores=1, slots=(4,), seeds=1), {"#settings": "No setting differs", "#media": "no images"}),
        (made_up(cores=2, slots=(4,), points=0), {"#curves": "no curves", "#media": "no images"}),
        (made_up(cores=1, slots=(4,), seeds=1, points=1), {"#curves": "FG-ARI"}),
    ],
    ids=["no runs", "one run", "no curves", "one point"],
)
@pytest.mark.parametrize("width", [400, 1300])
def test_little_to_show_is_shown_all_the_same(open_page, given, said, width):
    tab = open_page(given, width=width)
    for part, text in said.items():
        assert text in tab.page.inner_text(part)
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_page_is_dark_where_the_reader_s_system_is(open_page, comparison):
    grounds = [
        open_page(comparison, colours=colours).page.evaluate("getComputedStyle(document.body).backgroundColor")
        for colours in ("light", "dark")
    ]
    assert grounds == ["rgb(255, 255, 255)", "rgb(20, 23, 28)"]


# text on its ground, and lines on the page's
PAIRS = """() => {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(name).trim();
  const light = (colour) => {
    const parts = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255);
    const [r, g, b] = parts.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [high, low] = [light(value(a)), light(value(b))].sort((x, y) => y - x);
    return (high + 0.05) / (low + 0.05);
  };
  const on = (ground, ...inks) => inks.map((ink) => [`--${ink}`, `--${ground}`]);
  const texts = [
    ...on("ground", "ink", "quiet", "link", "baseline", "warn"), ...on("raised", "ink", "quiet"),
    ...on("best", "ink", "quiet"), ...on("differs", "ink", "quiet"),
    ...on("bad", "bad-ink"), ...on("busy", "busy-ink"), ...on("odd", "odd-ink"),
  ];
  const lines = Array.from({ length: 8 }, (_, index) => [`--line-${index}`, "--ground"]);
  return { texts: texts.map((pair) => contrast(...pair)), lines: lines.map((pair) => contrast(...pair)) };
}"""


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_text_and_lines_stand_out_from_their_ground(open_page, colours):
    tab = open_page(made_up(cores=1), colours=colours)
    contrasts = tab.page.evaluate(PAIRS)
    assert min(contrasts["texts"]) >= 4.5
    assert min(contrasts["lines"]) >= 3


NAMELESS = """() => [...document.querySelectorAll("button, input, select, summary, svg[role=img]")]
  .filter((node) => {
    const label = node.getAttribute("aria-label") || node.querySelector("img")?.alt;
    return !(label || node.textContent.trim() || node.closest("label")?.textContent.trim());
  })
  .map((node) => node.outerHTML)"""


def test_everything_that_can_be_used_has_a_name(open_page, comparison):
    assert open_page(comparison).page.evaluate(NAMELESS) == []


def test_printed_it_has_the_whole_table_and_no_controls(open_page, comparison):
    tab = open_page(comparison)
    tab.page.emulate_media(media="print")
    assert tab.page.locator(".bar").is_hidden()
    assert tab.page.locator("#curves-controls").is_hidden()
    box, table = (tab.page.locator(name).bounding_box()["height"] for name in ("#table", "#table > table"))
    assert box >= table - 1


@pytest.mark.skipif(
    "SLOTBENCH_SCREENSHOTS" not in os.environ, reason="makes the pictures of the docs: SLOTBENCH_SCREENSHOTS=FOLDER"
)
def test_pictures_for_the_docs(open_page, comparison, tmp_path):
    folder = Path(os.environ["SLOTBENCH_SCREENSHOTS"])
    sources = shlex.split(os.environ.get("SLOTBENCH_SCREENSHOTS_OF", ""))
    if sources:
        found = open_sources(sources)
        command = f"slotbench compare runs/{found.title} --html {found.title}.html"
        comparison = compare(found.runs, title=found.title, command=command)
    tab = open_page(comparison)
    moving = [name for name in tab.page.locator("#media-name option").all_inner_texts() if name.endswith(".gif")]
    if moving:
        tab.page.select_option("#media-name", moving[0])
    tab.page.wait_for_timeout(3000)  # the library draws when the page is idle
    tab.page.screenshot(path=folder / "compare_page.png")
    tab.page.set_viewport_size({"width": 1300, "height": 2000})  # each part is seen whole
    tab.page.wait_for_timeout(2000)
    for part in ("curves", "axis", "settings", "media"):
        tab.page.locator(f"#{part}-part").screenshot(path=folder / f"compare_{part}.png")
    open_page(comparison, colours="dark").page.screenshot(path=folder / "compare_page_dark.png")
    record = GRIDS / "records" / "moving_sprites_study.zip"
    study = str(GRIDS / "studies" / "moving_sprites.yaml")
    unpack = [sys.executable, "-m", "slotbench", "grid", "unpack", study, str(record), "--runs_dir", str(tmp_path)]
    subprocess.run(unpack, check=True)
    found = open_sources([study], tmp_path)
    command = "slotbench compare experiments/grids/studies/moving_sprites.yaml --html moving_sprites.html"
    wide = compare(
        found.runs,
        metrics=found.metrics,
        title=found.title,
        command=command,
        protocol=found.protocol,
        notes=found.notes,
    )
    tab = open_page(wide)
    tab.page.locator("#table").evaluate("node => { node.scrollLeft = node.scrollWidth; }")
    tab.settle()
    tab.page.screenshot(path=folder / "compare_wide.png", clip={"x": 0, "y": 0, "width": 1300, "height": 780})
    for name in ("page", "page_dark", "curves", "axis", "settings", "media", "wide"):
        assert (folder / f"compare_{name}.png").stat().st_size > 1000
