"""A comparison as text and as a page."""

from __future__ import annotations

import io
import json
import re

import pandas as pd
import pytest
from made_up_runs import config, made_up, make_run, seeds

from slotbench.comparison.formats import decimals, number, terminal_table, to_csv, to_json, to_latex, to_markdown
from slotbench.comparison.page import write_html
from slotbench.comparison.runs import Runs
from slotbench.comparison.sources import read_sources
from slotbench.comparison.table import compare

VALUES = {"SlotSSM": [0.90, 0.91, 0.92], "RIM": [0.3, 0.5, 0.4]}


@pytest.fixture
def comparison():
    return compare(seeds(VALUES), command="slotbench compare x")


def test_markdown(comparison):
    lines = to_markdown(comparison).splitlines()
    assert lines[:4] == ["### made up", "", "    slotbench compare x", ""]
    assert lines[4] == "| core | parameters | s per step | where: IoU ↑ | error ↓ | loss ↓ | seeds |"
    assert lines[5] == "|---|---:|---:|---:|---:|---:|---:|"
    assert lines[6] == "| *black* |  |  | 0.000 |  |  |  |"
    assert lines[8].startswith("| SlotSSM | 1,500 | 0.100 | **0.910 ± 0.010** |")
    assert any(line.startswith("- **bold**: the best") for line in lines)


def test_latex_escapes_what_it_must():
    runs = Runs({"a": made_up("a", {"data.x_y": "5 %"}, {"val/iou": -0.5})}, title="t")
    text = to_latex(compare(runs, ["iou"], keys=["x_y"]))
    assert r"x\_y" in text
    assert r"5 \%" in text
    assert "$-$0.500" in text
    assert r"\begin{tabular}{lrrrr}" in text


def test_csv_has_numbers_in_full_and_baselines_by_kind(comparison):
    table = pd.read_csv(io.StringIO(to_csv(comparison)))
    assert list(table["kind"]) == ["baseline", "baseline", "runs", "runs"]
    row = table[table["label"] == "RIM"].iloc[0]
    assert (row["val/iou"], row["val/iou_std"], row["val/iou_n"]) == (pytest.approx(0.4), pytest.approx(0.1), 3)
    assert row["val/iou_low"] < row["val/iou"] < row["val/iou_high"]


def test_json_has_what_the_table_is_made_of(comparison):
    made = json.loads(to_json(comparison))
    assert made["metrics"][0]["baselines"] == {"black": 0.0, "copy": 0.4}
    assert made["rows"][1]["scores"]["val/iou"]["values"] == [0.3, 0.5, 0.4]
    assert made["rows"][0]["scores"]["val/iou"]["is_best"] is True


def test_the_terminal_leaves_out_what_has_no_room(comparison):
    from rich.console import Console

    def printed(width: int) -> str:
        console = Console(width=width, record=True, file=io.StringIO())
        console.print(terminal_table(comparison, width))
        return console.export_text()

    wide, narrow = printed(120), printed(60)
    assert "0.910 ± 0.010 *" in wide
    assert "no room" not in wide
    assert "no room for val/mse, val/loss" in narrow
    assert "0.910 ± 0.010" in narrow
    assert max(map(len, narrow.splitlines())) <= 60


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(0.1234, 2, "0.12"), (-0.001, 2, "0.00"), (float("nan"), 1, "NaN"), (1e-9, 9, "1.0e-09"), (1e9, 0, "1.0e09")],
)
def test_numbers(value, digits, text):
    assert number(value, digits) == text


def test_digits_are_those_that_the_spread_justifies():
    assert decimals([1.0], [0.012, 0.014]) == 3
    assert decimals([0.00321], []) == 5
    assert decimals([], []) == 3


def test_the_page_has_the_table_curves_settings_and_images(tmp_path):
    for core, values in VALUES.items():
        for seed, value in enumerate(values):
            rows = [{"step": step, "val/iou": value * step / 3, "train/loss": 1 / step} for step in (1, 2, 3)]
            metrics = {"val/iou": value, "val/mse": 1 - value, "val/extra": 0.5}
            folder = make_run(tmp_path / "balls" / f"{core}{seed}", config(core, seed, note="</script>"), metrics, rows)
            (folder / "media").mkdir()
            (folder / "media" / "clip_latest.png").write_bytes(b"image")
            (folder / "media" / "loss.png").write_bytes(b"image")
    comparison = compare(read_sources([str(tmp_path / "balls")]), title="a < b", command="slotbench compare x")
    write_html(comparison, tmp_path / "deep" / "page.html")
    page = (tmp_path / "deep" / "page.html").read_text()
    assert "<title>a &lt; b</title>" in page
    assert page.count('<tr data-row="') == 2
    assert page.count('class="detail"') == 2
    assert '<td class="number best"' in page
    assert "0.910 ± 0.010" in page
    assert page.count('<img src="data:image/png;base64') == 2
    assert "loss.png" not in page
    assert 'data-column="' in page
    assert "extra</label>" in page
    assert "<th>model.core</th>" in page
    assert page.count('<figure class="plot">') == 2
    shown = re.sub(r"<script[^>]*>.*?</script>", "", page, flags=re.DOTALL)
    assert "</script>" not in shown
    assert not re.findall(r'(?:src|href)="(?!data:|#)', shown)
    assert "default-src 'none'" in page


def test_a_page_without_curves_or_images_has_the_table_alone(comparison, tmp_path):
    write_html(comparison, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert '<section id="Table">' in page
    assert "Images" not in page
    assert "Bokeh" not in page


def test_an_image_that_has_no_room_is_named(tmp_path, monkeypatch):
    folder = make_run(tmp_path / "balls" / "one", metrics={"val/iou": 0.5})
    (folder / "media").mkdir()
    (folder / "media" / "clip.png").write_bytes(b"x" * 100)
    monkeypatch.setattr("slotbench.comparison.page._MOST_MEDIA", 50)
    write_html(compare(read_sources([str(tmp_path / "balls")])), tmp_path / "page.html")
    assert "too large for this page" in (tmp_path / "page.html").read_text()
