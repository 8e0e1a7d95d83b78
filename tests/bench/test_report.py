"""Growth exponents, tables and the picture of results whose numbers are known."""

from __future__ import annotations

import json

import pytest
from PIL import Image

from slotbench.bench.plot import draw
from slotbench.bench.report import PANELS, exponent, growth, legend, number, summary, tables, write_report

INFERENCE, TRAINING, MEMORY, *WORK = PANELS


def row(results, title: str, core: str) -> dict[str, str]:
    (table,) = [table for table in tables(results) if table.title.startswith(title)]
    (cells,) = [cells for cells in table.rows if cells[0] == core]
    return dict(zip(table.headings, cells, strict=True))


def test_growth_is_the_slope_over_the_upper_three_lengths(measured):
    assert exponent([10.0, 20.0, 40.0], [3.0, 12.0, 48.0]) == pytest.approx(2.0)
    assert growth(measured, "Square", INFERENCE) == (pytest.approx(2.0), [16, 32, 64])
    # a first point off the line is not looked at
    measured.add("Square", "inference", 8, seconds=[9.0], memory_mb=1.0)
    assert growth(measured, "Square", INFERENCE)[0] == pytest.approx(2.0)


def test_growth_leaves_out_what_failed(measured):
    assert growth(measured, "Square", TRAINING) == (pytest.approx(2.0), [8, 16])
    del measured.points["Square", "training", 8]
    assert growth(measured, "Square", TRAINING) is None, "there is one point"


def test_operations_have_a_table_where_they_were_counted(measured):
    assert row(measured, "Operations of inference", "Line")["T=8"] == ""
    for length in (8, 16, 32):
        measured.add("Line", "inference", length, seconds=[1.0], memory_mb=1.0, flops=10**7 * length**2)
    cells = row(measured, "Operations of inference, GFLOP", "Line")
    assert [cells[f"T={length}"] for length in (8, 16, 32, 64)] == ["0.640", "2.56", "10.2", ""]
    assert cells["grows as"] == "T^2.00 (8 to 32)"
    assert summary(measured.get("Line", "inference", 8)).endswith("1.00 MB, 0.640 GFLOP")
    assert [panel.title for panel in WORK] == ["Operations of inference", "Operations of a training step"]


def test_every_quantity_has_its_growth_in_the_file(measured, tmp_path):
    write_report(measured, tmp_path / "cores.md", "cores.png")
    stored = json.loads(measured.path.read_text())["growth"]
    found = {(fit["core"], fit["quantity"]): fit["exponent"] for fit in stored}
    assert found["Line", MEMORY.title] == pytest.approx(1.0)
    assert found["Square", "Peak memory of inference"] == pytest.approx(2.0)


def test_cells_are_median_and_range_and_say_why_there_is_none(measured):
    cells = row(measured, "Training step", "Square")
    assert cells["T=16"] == "8.00 (4.00–36.0)"
    assert cells["T=32"] == "memory"
    assert cells["T=64"] == "–"
    assert cells["grows as"] == "T^2.00 (8 to 16)"
    assert cells["parameters"] == "1,234"


def test_points_of_a_busy_machine_are_marked(measured):
    cells = row(measured, "Inference latency", "Line")
    assert cells["T=8"].startswith("2.00")
    assert cells["T=16"].startswith("~4.00")
    assert not row(measured, "Peak memory of a training step", "Line")["T=16"].startswith("~")


def test_streaming_says_early_late_and_their_ratio(measured):
    cells = tables(measured)[-1].rows[0]
    assert cells == ["Line", "8", "1.00", "64", "1.20", "1.20 (1.10–1.30)", "0.500", "0.500"]
    assert "time" in tables(measured)[-1].rows[1]


def test_legend_names_limits_noise_and_errors(measured):
    measured.add("Line", "training", 8, problem="error", message="ValueError: oops")
    text = "\n".join(legend(measured))
    assert "above 1 GiB" in text
    assert "longer than 30 s" in text
    assert "took 1.00 ms (1.00–4.00)" in text
    assert "Line, training at T=8: ValueError: oops" in text


def test_summary_of_a_failure_says_which(measured):
    assert summary(measured.get("Square", "training", 32)) == "out of memory: above 1 GiB"
    assert summary(measured.get("Line", "inference", 8)) == "2.00 ms, 20.0 MB"


@pytest.mark.parametrize(
    ("value", "text"), [(0.0123456, "0.0123"), (1.0, "1.00"), (99.96, "100"), (12345.6, "12,300"), (0.0, "0")]
)
def test_numbers_have_three_digits(value, text):
    assert number(value) == text


def test_page_has_every_table_and_the_picture(measured, tmp_path):
    write_report(measured, tmp_path / "cores.md", "cores.png")
    page = (tmp_path / "cores.md").read_text()
    assert "](cores.png)" in page
    for table in tables(measured):
        assert f"## {table.title}" in page
        assert f"| {' | '.join(table.headings)} |" in page
    widths = {line.count("|") for line in page.split("## Training")[1].split("##")[0].splitlines() if "|" in line}
    assert len(widths) == 1, "every row of a table has as many cells"


def test_picture_is_drawn_with_failures_on_it(measured, tmp_path):
    measured.add("Line", "inference", 8, seconds=[1.0], memory_mb=1.0, flops=10**9)
    draw(measured, tmp_path / "with.png")
    measured.points = {key: point for key, point in measured.points.items() if "problem" not in point}
    draw(measured, tmp_path / "without.png")
    pictures = [Image.open(tmp_path / f"{name}.png").convert("RGB") for name in ("with", "without")]
    assert pictures[0].size[0] > 1000
    assert pictures[0].tobytes() != pictures[1].tobytes()


def test_picture_of_nothing_but_failures(measured, tmp_path):
    for key in list(measured.points):
        measured.add(*key, problem="out of memory", message="above 1 GiB", limit=1.0)
    draw(measured, tmp_path / "cores.png")
    assert (tmp_path / "cores.png").is_file()
