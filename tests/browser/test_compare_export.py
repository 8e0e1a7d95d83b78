"""What one takes away from the page of a comparison: its table as a file, its address, and rows put together anew."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from page_comparisons import CURVES, ERROR, SCORE

from slotbench.text import csv_cell, latex_text, markdown_cell


def saved(tab, form: str) -> str:
    if not tab.page.locator("#export .sheet").is_visible():
        tab.page.click("#export summary")
    with tab.page.expect_download() as download:
        tab.page.click(f"#export button[aria-label='Download {form}']")
    return Path(download.value.path()).read_text(encoding="utf-8")


def test_the_table_is_saved_as_it_is_shown(open_page, comparison):
    tab = open_page(comparison)
    tab.page.click("#columns summary")
    for name in ("FG-ARI", "parameters", "time per step"):
        tab.page.locator("#columns label", has_text=name).click()
    tab.page.locator("#columns label", has_text="model.core.num_slots").click()
    tab.page.keyboard.press("Escape")
    tab.page.fill("#filter", "SlotSSM")
    tab.page.locator(f"th[data-column='metric {ERROR}'] button").dblclick()
    tab.page.locator("tr[data-row]").last.locator(".eye").click()
    tab.settle()
    rows = sorted((row for row in comparison.rows if "SlotSSM" in row.label), key=lambda row: -row.cells[ERROR].mean)
    rows = rows[:-1]
    table = list(csv.reader(saved(tab, "CSV").splitlines()))
    assert table[0] == ["kind", "label", "seeds", ERROR, f"{ERROR}_std", f"{ERROR}_n", "model.core.num_slots"]
    assert [line[:2] for line in table[1:3]] == [["baseline", "copy the last frame"], ["baseline", "black"]]
    assert [line[1] for line in table[3:]] == [row.label for row in rows]
    for line, row in zip(table[3:], rows, strict=True):
        assert float(line[3]) == pytest.approx(row.cells[ERROR].mean, rel=1e-5)
        assert float(line[4]) == pytest.approx(row.cells[ERROR].std, rel=1e-5)
        assert [line[0], line[2], line[5], line[6]] == ["runs", "3", "3", str(row.settings["model.core.num_slots"])]
    markdown = saved(tab, "Markdown").splitlines()
    assert markdown[0] == "| row | seeds | error: MSE per pixel ↓ | num_slots |"
    assert markdown[1] == "| --- | ---: | ---: | ---: |"
    assert markdown[2].startswith("| *copy the last frame* |  | 0.21")
    assert len(markdown) == 4 + len(rows)
    latex = saved(tab, "LaTeX").splitlines()
    assert "\\begin{tabular}{lrrr}" in latex
    assert "row & seeds & error: MSE per pixel $\\downarrow$ & num\\_slots \\\\" in latex
    assert sum(" $\\pm$ " in line for line in latex) == len(rows)
    assert latex[-1] == "\\end{tabular}"


def test_the_best_is_bold_and_what_is_copied_is_what_is_saved(open_page, comparison):
    tab = open_page(comparison)
    cell = f"{comparison.rows[0].cells[SCORE].mean:.4f}"
    markdown = saved(tab, "Markdown")
    assert f"**{cell} ± " in markdown
    assert f"\\textbf{{{cell} $\\pm$ " in saved(tab, "LaTeX")
    keep = "window.copied = []; navigator.clipboard.writeText = async (words) => void window.copied.push(words)"
    tab.page.evaluate(f"() => {{ {keep} }}")
    copy = tab.page.locator("#export button[aria-label='Copy Markdown']")
    copy.click()
    assert copy.inner_text() == "Copied"
    assert tab.page.evaluate("window.copied") == [markdown]


def test_text_that_is_saved_means_nothing_to_other_programs(open_page, comparison):
    evil = '=cmd|"x", <b>&amp; $y$ \\ [a](b) _c_ d_e *f* `g` ~ ^ # % {h} − ²'
    rows = [replace(comparison.rows[0], label=evil), *comparison.rows[1:]]
    tab = open_page(replace(comparison, rows=rows))
    assert f"| {markdown_cell(evil)} |" in saved(tab, "Markdown")
    assert f"\n{latex_text(evil).replace('−', '$-$')} &" in saved(tab, "LaTeX")
    labels = [line[1] for line in csv.reader(saved(tab, "CSV").splitlines()) if line[0] == "runs"]
    assert labels[0] == csv_cell(evil)
    hidden = "a\x1b[2J\u202eb\nc"
    tab = open_page(replace(comparison, rows=[replace(rows[0], label=hidden), *rows[1:]]))
    for form in ("CSV", "Markdown", "LaTeX"):
        assert not {"\x1b", "\u202e"} & set(saved(tab, form))


def test_the_address_keeps_what_is_chosen(open_page, comparison):
    tab = open_page(comparison)
    page = tab.page
    plain = page.evaluate("location.hash")
    page.locator(f"th[data-column='metric {ERROR}'] button").dblclick()
    page.fill("#filter", "num_slots=8")
    page.select_option("#curves-scale", "log")
    page.uncheck("#table-baselines")
    page.click("#columns summary")
    page.locator("#columns label", has_text="parameters").click()
    page.keyboard.press("Escape")
    tab.settle()
    page.locator("tr[data-row] .eye").first.click()
    tab.settle()
    labels, drawn = tab.labels(), tab.rows(CURVES)
    assert len(labels) == 3
    assert len(drawn) == 2
    address = page.evaluate("location.href")
    page.goto("about:blank")
    page.goto(address)
    page.locator("#curves figure canvas").first.wait_for()
    tab.settle()
    assert tab.labels() == labels
    assert tab.rows(CURVES) == drawn
    assert page.input_value("#filter") == "num_slots=8"
    assert page.input_value("#curves-scale") == "log"
    assert page.locator("th[data-column=parameters], .baselines").count() == 0
    assert page.locator(f"th[data-column='metric {ERROR}']").get_attribute("aria-sort") == "descending"
    page.click("nav a[href='#curves-part']")
    page.wait_for_url(lambda url: "filter=" in url)
    assert page.evaluate("location.href") == address
    assert plain == ""
    page.goto("about:blank")
    page.goto(address.partition("#")[0] + "#sort=no&curves-scale=no&hide=no&by=no&columns=no&no=no")
    tab.settle()
    assert len(tab.labels()) == 9
    assert page.input_value("#curves-scale") == "linear"


def test_rows_are_put_together_by_a_setting(open_page, comparison):
    tab = open_page(comparison)
    page = tab.page
    assert page.locator("#table-by option").all_inner_texts() == ["all settings", "core", "num_slots"]
    page.locator("#eye-0").click()
    with page.expect_event("load"):
        page.select_option("#table-by", "model.core.num_slots")
    tab.settle()
    assert tab.labels() == ["num_slots=16", "num_slots=8", "num_slots=4"]
    assert page.inner_text("#facts").startswith("27 runs in 3 rows · up to 9 runs a row")
    values = [row.cells[SCORE].values for row in comparison.rows if row.settings["model.core.num_slots"] == 16]
    mean, std = np.mean(values), np.std(values, ddof=1)
    assert page.locator("tr[data-row='0'] td.score").first.inner_text().startswith(f"{mean:.4f} ± {std:.4f}")
    page.locator("#curves figure canvas").first.wait_for()
    assert tab.rows(CURVES) == tab.rows("axis", "points") == [0, 1, 2]
    page.click("#open-0")
    assert page.locator("tr.run").count() == 9
    with page.expect_event("load"):
        page.select_option("#table-by", "")
    tab.settle()
    assert tab.labels() == [row.label for row in comparison.rows]
