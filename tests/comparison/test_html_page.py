"""The page of a comparison as a file: what is in it, and that nothing in it can do harm; tests/browser opens it."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from html.parser import HTMLParser
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from page_comparisons import made_up
from PIL import Image

from slotbench.comparison.page.page import write_html
from slotbench.comparison.records import Cell, Comparison, Curve, Metric, Row, RunRecord, thinned

BREAKOUT = "</script ><img src=x onerror=alert(1)></script><!--<script>"


class _Page(HTMLParser):
    """Every element of the page with its attributes, and the text of scripts, style sheets and the title.

    The scripts of the plotting library are taken out first, into `library`: they are most of the page, and not ours.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self._open = ""
        begin = '<script class="library">'
        first, *rest = path.read_text(encoding="utf-8").split(begin)
        self.library, after = zip(*(piece.split("</script>", 1) for piece in rest), strict=True)
        self.feed(first + "".join(f"{begin}</script>{piece}" for piece in after))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        self._open = str(attributes.get("id") or tag) if tag in ("script", "style", "title") else ""

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts[self._open] = self.texts.get(self._open, "") + data

    @property
    def data(self) -> dict[str, Any]:
        return json.loads(self.texts["data"])

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)

    @property
    def policy(self) -> str:
        (meta,) = (a for tag, a in self.elements if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy")
        return str(meta["content"])


def _written(comparison: Comparison, folder: Path, **options: int) -> _Page:
    write_html(comparison, folder / "page.html", **options)
    return _Page(folder / "page.html")


def _run(number: int = 0, settings: Mapping[str, Any] | None = None, **fields: Any) -> RunRecord:
    return RunRecord(f"id-{number}", f"run {number}", f"runs/{number}", "finished", settings or {}, {}, **fields)


def _comparison(*runs: RunRecord) -> Comparison:
    return Comparison("of runs", [], [], [Row(run.name, {}, [run], {}) for run in runs])


def test_the_page_holds_the_table(tmp_path):
    comparison = made_up(cores=2, slots=(4,), seeds=3, notes=["one run is missing"])
    data = _written(comparison, tmp_path).data
    assert [row["label"] for row in data["rows"]] == [row.label for row in comparison.rows]
    for row, given_row in zip(data["rows"], comparison.rows, strict=True):
        assert row["settings"] == given_row.settings
        assert row["parameters"] == given_row.parameters
        for name, cell in given_row.cells.items():
            shown = row["cells"][name]
            assert shown["by_run"] == pytest.approx(cell.values, rel=1e-6)
            assert shown["mean"] == pytest.approx(cell.mean, rel=1e-6)
            assert shown["std"] == pytest.approx(cell.std, rel=1e-6)
            assert shown["low"] < shown["mean"] < shown["high"]
            assert shown["best"] == cell.is_best
    assert [metric["higher"] for metric in data["metrics"]] == [True, False]
    assert data["metrics"][0]["baselines"] == {"one slot": 0.0, "k-means": 0.46}
    assert (data["title"], data["command"], data["notes"]) == ("Made up", comparison.command, ["one run is missing"])


def test_each_row_points_at_its_own_runs(tmp_path):
    comparison = made_up(cores=3, slots=(4, 8), seeds=2, states={3: "failed"})
    data = _written(comparison, tmp_path).data
    for row, given_row in zip(data["rows"], comparison.rows, strict=True):
        assert [data["runs"][position]["id"] for position in row["runs"]] == [run.id for run in given_row.runs]
        assert [data["runs"][position]["state"] for position in row["runs"]] == [run.state for run in given_row.runs]
        assert [data["runs"][position]["seed"] for position in row["runs"]] == [0, 1]
    assert sum(row["unfinished"] for row in data["rows"]) == 1


def test_common_settings_are_held_once_and_own_ones_per_run(tmp_path):
    runs = [_run(0, {"a": 1, "b": 1, "c": [1, 2]}), _run(1, {"a": 1, "b": True, "c": [1, 2], "d": None})]
    data = _written(_comparison(*runs), tmp_path).data
    assert data["common"] == {"a": 1, "c": [1, 2]}
    assert [run["own"] for run in data["runs"]] == [{"b": 1}, {"b": True, "d": None}]
    assert data["order"] == ["a", "b", "c", "d"]


def test_a_run_without_the_metric_leaves_the_others_at_their_seeds(tmp_path):
    runs = [replace(_run(number), summary=summary) for number, summary in enumerate([{"m": 1.0}, {}, {"m": 3.0}])]
    row = Row("row", {}, runs, {"m": Cell((1.0, 3.0), 2.0, 1.4)})
    data = _written(Comparison("", [], [Metric("m", "m")], [row]), tmp_path).data
    assert data["rows"][0]["cells"]["m"]["by_run"] == [1.0, None, 3.0]


def test_numbers_that_are_not_finite_are_words(tmp_path):
    row = Row("row", {"lr": math.inf}, [_run()], {"m": Cell((math.nan,), math.nan)})
    metric = Metric("m", "m", baselines={"worst": -math.inf})
    data = _written(Comparison("", ["lr"], [metric], [row]), tmp_path).data
    assert data["rows"][0]["cells"]["m"]["mean"] == "NaN"
    assert data["rows"][0]["settings"]["lr"] == "Infinity"
    assert data["metrics"][0]["baselines"] == {"worst": "-Infinity"}


def test_nothing_in_the_data_can_break_out(tmp_path):
    safe = made_up(cores=1, slots=(4,), seeds=1)
    harmless = _written(safe, tmp_path)
    row = replace(safe.rows[0], label=BREAKOUT, settings={BREAKOUT: BREAKOUT})
    row = replace(row, runs=[replace(row.runs[0], name=BREAKOUT, settings={BREAKOUT: BREAKOUT})])
    evil = replace(safe, title=BREAKOUT, keys=[BREAKOUT], rows=[row], notes=[BREAKOUT], command="{{script}}{{data}}")
    page = _written(evil, tmp_path)
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in harmless.elements]
    assert page.count("img") == 0
    assert "<" not in page.texts["data"] + page.texts["contents"]
    assert page.data["rows"][0]["settings"] == {BREAKOUT: BREAKOUT}
    assert page.data["command"] == "{{script}}{{data}}"
    assert page.texts["title"] == BREAKOUT
    assert page.texts["script"] == harmless.texts["script"]


@settings(max_examples=25)
@given(text=st.text(max_size=30), key=st.text(min_size=1, max_size=10))
def test_any_text_comes_back_as_it_was(tmp_path_factory, text, key):
    comparison = replace(_comparison(_run(0, {key: text})), notes=[text])
    data = _written(comparison, tmp_path_factory.getbasetemp()).data
    assert data["runs"][0]["own"] == {key: text}
    assert data["notes"] == [text]


def test_the_policy_allows_our_script_and_the_librarys_and_nothing_from_elsewhere(tmp_path):
    page = _written(made_up(), tmp_path)
    rules = dict(rule.strip().split(" ", 1) for rule in page.policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == rules["media-src"] == "data:"
    scripts = [page.texts["script"], *page.library]
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    assert rules["script-src"] == " ".join(f"'sha256-{digest}'" for digest in digests)
    for tag, attributes in page.elements:
        assert "src" not in attributes
        assert "style" not in attributes
        assert not any(name.startswith("on") for name in attributes)
        assert str(attributes.get("href", "#")).startswith(("#", "data:,")), tag


def test_the_library_is_bokehs_as_it_is_installed(tmp_path):
    library = _written(made_up(), tmp_path).library
    assert [f'"{version("bokeh")}"' in text for text in library] == [True, True]
    assert "Copyright (c) Anaconda, Inc., and Bokeh Contributors" in library[0]


def test_the_page_before_stays_if_a_new_one_cannot_be_made(tmp_path):
    def broken(limit: int) -> Mapping[str, Curve]:
        raise OSError("the disk is gone")

    _written(made_up(), tmp_path)
    before = (tmp_path / "page.html").read_text()
    with pytest.raises(OSError, match="the disk is gone"):
        write_html(_comparison(_run(curves=broken)), tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == before
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_the_folder_of_the_page_is_made(tmp_path):
    write_html(made_up(), tmp_path / "some" / "where" / "page.html")
    assert (tmp_path / "some" / "where" / "page.html").is_file()


@pytest.mark.parametrize(("options", "message"), [({"max_points": 1}, "2 or more"), ({"media_budget": -1}, "0 for no")])
def test_impossible_limits_are_refused(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        write_html(made_up(), tmp_path / "page.html", **options)


def test_making_a_page_needs_no_torch():
    script = "import sys, slotbench.comparison.page.page; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize("count", [3, 9, 24])
def test_a_page_stays_below_six_megabytes(tmp_path, count):
    """Whatever the runs have drawn and logged; what has no room is named."""
    steps = np.arange(3000)
    draw = np.random.default_rng(0)
    curves = {f"metric/{number:02}": (steps, draw.normal(size=3000)) for number in range(35)}
    runs = []
    for number in range(count):
        images = [tmp_path / str(number) / f"clip_{name}.png" for name in range(2)]
        images[0].parent.mkdir()
        for path in images:
            Image.fromarray(draw.integers(0, 256, (300, 700, 3), dtype=np.uint8)).save(path)
        runs.append(_run(number, curves=lambda limit: {k: thinned(v, limit) for k, v in curves.items()}, media=images))
    data = _written(_comparison(*runs), tmp_path).data
    assert (tmp_path / "page.html").stat().st_size < 6_000_000
    assert len(data["media"]) == 2 * count
    assert data["curves"]["metrics"]
    # all curves of a few runs are there
    assert data["curves"]["left_out"] == [] or count > 9


def test_no_runs_make_a_page(tmp_path):
    data = _written(Comparison("", [], [], []), tmp_path).data
    assert data["title"] == "Comparison"
    assert data["rows"] == data["runs"] == data["media"] == []
