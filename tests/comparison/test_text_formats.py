"""The table as text: digits, marks, baselines, escapes, widths."""

from __future__ import annotations

import csv
import math
import re
from dataclasses import replace
from io import StringIO

import pytest
from made_up_runs import HEADLINES, record, seeds
from rich.console import Console

from slotbench.comparison.formats.sheet import make_sheet
from slotbench.comparison.formats.terminal import plain_text, print_comparison
from slotbench.comparison.formats.text_formats import runs_to_csv, to_csv, to_latex, to_markdown
from slotbench.comparison.records import Metric, Row
from slotbench.comparison.statistics import summarise
from slotbench.comparison.table import compare
from slotbench.text import one_line

GOOD, BAD = [0.90, 0.91, 0.92], [0.3, 0.5, 0.4]


@pytest.fixture
def comparison():
    return compare([*seeds("RIM", BAD), *seeds("SlotSSM", GOOD)], title="balls", command="slotbench compare runs/balls")


def table(*columns):
    """One metric, one row per list of values."""
    rows = [Row(f"row {n}", {}, [], {"m": summarise(values)}) for n, values in enumerate(columns)]
    return replace(compare(seeds("RIM", BAD)), metrics=[Metric("m", "m", True)], rows=rows, keys=[], notes=[])


def texts(*columns):
    return [(line.scores[0].mean, line.scores[0].spread) for line in make_sheet(table(*columns)).lines]


def test_digits_are_those_that_the_spread_justifies():
    assert texts([0.1234, 0.1454]) == [("0.134", "0.016")]
    assert texts([24.11, 25.93]) == [("25.0", "1.3")]
    assert texts([1000.0, 1300.0]) == [("1150", "212")]


def test_digits_are_alike_within_a_column():
    assert texts([0.123, 0.146], [0.5001, 0.5002], [0.21, 0.42]) == [
        ("0.135", "0.016"),
        ("0.500", "0.000"),
        ("0.315", "0.148"),
    ]


def test_digits_without_a_spread():
    assert texts([0.61234], [0.5]) == [("0.612", ""), ("0.500", "")]
    assert texts([24.13]) == [("24.1", "")]
    assert texts([0.0]) == [("0.000", "")]
    assert texts([0.00000041234]) == [("4.1e-07", "")]


def test_a_number_that_is_far_too_large_has_an_exponent():
    assert texts([1e20], [0.5], [0.6]) == [("1.0e20", ""), ("0.500", ""), ("0.600", "")]


def test_what_is_no_number_is_said():
    assert texts([math.nan, 0.5], [0.5, 0.7])[0] == ("NaN", "NaN")
    assert texts([math.inf])[0] == ("∞", "")
    assert texts([-0.0001, 0.0], [0.1, 0.4], [0.2, 0.5])[0] == ("0.00", "0.00")


def test_markdown(comparison):
    lines = to_markdown(comparison).splitlines()
    assert lines[:3] == ["### balls", "", "    slotbench compare runs/balls"]
    assert lines[4] == "| core | parameters | s per step | where: IoU ↑ | error ↓ | loss ↓ | seeds |"
    assert lines[5] == "|---|---:|---:|---:|---:|---:|---:|"
    assert lines[6] == "| *black* |  |  | 0.000 |  |  |  |"
    assert lines[7] == "| *copy* |  |  | 0.400 | 0.300 |  |  |"
    assert lines[8].startswith("| SlotSSM | 1,500 | 0.100 | **0.910 ± 0.010** | **0.090 ± 0.010** |")
    assert lines[9].startswith("| RIM | 1,500 | 0.100 | 0.400 ± 0.100 |")
    assert lines[9].endswith("| 3 |")
    assert any(line.startswith("- **bold**: the best") for line in lines)


def test_markdown_keeps_signs_of_its_own_apart():
    runs = [record(name, {"data.mask": name}, {"val/iou": 0.5}) for name in ("a|b", "*c*")]
    text = to_markdown(compare(runs))
    assert r"a\|b" in text
    assert r"\*c\*" in text


def test_latex(comparison):
    text = to_latex(comparison)
    assert text.count(r"\begin{tabular}{lrrrrrr}") == text.count(r"\end{tabular}") == 1
    assert text.count(r"\midrule") == 2
    assert r"\textit{copy} &  &  & 0.400 & 0.300 &  &  \\" in text
    assert r"SlotSSM & 1,500 & 0.100 & \textbf{0.910} $\pm$ 0.010 & \textbf{0.090} $\pm$ 0.010 &" in text
    assert r"where: IoU $\uparrow$ & error $\downarrow$" in text
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert {line.count("&") for line in body} == {6}


def test_latex_escapes():
    runs = [record(str(n), {"data.a_b": f"50% of #{n} & ~{{x}}^\\_$"}, {"val/psnr": -1.5}) for n in range(2)]
    text = to_latex(compare(runs, metrics=["psnr"]))
    assert r"a\_b" in text
    assert r"50\% of \#0 \& \textasciitilde{}\{x\}\textasciicircum{}\textbackslash{}\_\$" in text
    assert "$-$1.50" in text


def read(text):
    return list(csv.DictReader(StringIO(text)))


def test_csv_has_the_numbers_in_full(comparison):
    baselines, rows = read(to_csv(comparison))[:2], read(to_csv(comparison))[2:]
    assert [(baseline["kind"], baseline["label"], baseline["val/iou"]) for baseline in baselines] == [
        ("baseline", "black", "0.0"),
        ("baseline", "copy", "0.4"),
    ]
    assert [row["model.core"] for row in rows] == ["SlotSSM", "RIM"]
    cell = comparison.rows[0].cells["val/iou"]
    read_back = [float(rows[0][f"val/iou{end}"]) for end in ("", "_std", "_n", "_low", "_high")]
    assert read_back == [cell.mean, cell.std, 3.0, cell.low, cell.high]
    assert {row["runs"] for row in rows} == {"3"}


def test_oracles_are_lines_of_their_own_that_say_so():
    headline = {"metric": "val/iou", "label": "IoU", "higher_is_better": True, "baselines": {"black": 0.1}}
    runs = [record("a", {}, {"val/iou": 0.5}, headlines=[headline | {"oracles": {"true velocities": 0.9}}])]
    comparison = compare(runs)
    assert [(row["kind"], row["label"]) for row in read(to_csv(comparison))][:2] == [
        ("baseline", "black"),
        ("oracle", "true velocities"),
    ]
    assert "| *oracle: true velocities* |" in to_markdown(comparison)
    assert r"\textit{oracle: true velocities}" in to_latex(comparison)
    assert "oracle: true velocities" in plain_text(comparison)


def test_csv_of_runs_has_a_line_per_run():
    rows = read(runs_to_csv(compare([*seeds("RIM", BAD), *seeds("SlotSSM", GOOD)], apart=True)))
    assert [(row["model.core"], row["seed_everything"], float(row["val/iou"])) for row in rows][:2] == [
        ("SlotSSM", "2", 0.92),
        ("SlotSSM", "1", 0.91),
    ]
    assert len(rows) == 6
    assert {row["state"] for row in rows} == {"finished"}


def diverged(core, seed, **scores):
    return record(
        f"{core}-{seed}", {"model.core": core, "seed_everything": seed}, scores, "diverged", diverged_at=40 + seed
    )


def test_runs_that_diverged_are_counted_and_noted_and_have_no_part_in_means():
    runs = [*seeds("RIM", BAD), *seeds("SlotSSM", GOOD)]
    runs += [
        diverged("RIM", 3, **{"val/iou": math.nan, "val/mse": math.inf}),
        diverged("PSB", 0, **{"val/iou": math.nan}),
    ]
    comparison = compare(runs)
    rim = next(row for row in comparison.rows if row.label == "RIM")
    assert (rim.diverged, len(rim.runs), rim.cells["val/iou"].mean) == (1, 4, pytest.approx(0.4))
    lines = {row["label"]: row for row in read(to_csv(comparison))}
    assert (lines["RIM"]["diverged"], lines["RIM"]["runs"], lines["RIM"]["val/iou_n"]) == ("1", "4", "3")
    assert (lines["PSB"]["diverged"], lines["PSB"]["val/iou"]) == ("1", "")
    text = to_markdown(comparison)
    assert "4 (1 diverged)" in text
    assert "RIM: 1 of 4 seeds diverged (at step 43)" in text
    assert "NaN" not in text


def test_a_run_that_diverged_is_not_replaced_by_one_that_did_not():
    runs = [*seeds("RIM", BAD), diverged("RIM", 0)]
    (row,) = compare(runs).rows
    assert (len(row.runs), row.diverged) == (4, 1)


def test_a_missing_score_is_an_empty_cell():
    comparison = compare([*seeds("RIM", BAD), record("x", {"model.core": "PSB"}, {}, "running")])
    assert read(to_csv(comparison))[-1]["val/iou"] == ""
    assert "| PSB | 1,500 | 0.100 |  |  |  | 1 (1 running) |" in to_markdown(comparison)


NASTY = "=cmd|' /C calc'!A0\x1b[2J[/b]|\n<script>x</script>\\input{/etc/passwd}$x$\u202e"


def test_foreign_names_are_shown_and_never_obeyed():
    headline = {
        "metric": "val/iou",
        "label": NASTY,
        "higher_is_better": True,
        "baselines": {NASTY: 0.1},
        "oracles": {NASTY: 1},
    }
    runs = [
        record(
            f"{NASTY}{n}", {"model.core": f"{NASTY}{n}", NASTY: n}, {"val/iou": 0.1 * n}, NASTY, headlines=[headline]
        )
        for n in range(2)
    ]
    comparison = compare(runs, title=NASTY, command=NASTY, notes=[NASTY])
    for text in (
        plain_text(comparison),
        terminal(comparison, 100),
        *(f(comparison) for f in (to_markdown, to_latex, to_csv)),
    ):
        assert "\x1b" not in text
        assert "\u202e" not in text
    cells = [cell for row in csv.reader(StringIO(to_csv(comparison))) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "@", "\t"))]
    assert "'=cmd" in to_csv(comparison)
    markdown = to_markdown(comparison).replace("    " + one_line(NASTY), "")
    assert "<script>" not in markdown
    table = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) == 1
    body = [line for line in to_latex(comparison).splitlines() if not line.startswith("%")]
    assert not re.search(r"\\(input|write|def)", "\n".join(body))
    assert all("passwd" not in line or line.startswith("%") or "textbackslash" in line for line in body)
    assert "[/b]" in terminal(comparison, 100)


def terminal(comparison, width, is_terminal=True):
    out = StringIO()
    print_comparison(comparison, Console(file=out, width=width, force_terminal=is_terminal, color_system=None))
    return out.getvalue()


def wide(count):
    names = [f"val/score_number_{n:02d}" for n in range(count)]
    runs = [
        record(
            f"{core}{seed}",
            {"model.core": core, "seed_everything": seed},
            dict.fromkeys(names, 0.1 * seed + 0.5),
            headlines=[],
        )
        for core in ("SlotSSM", "RIM")
        for seed in range(3)
    ]
    return compare(runs, metrics=names, title="wide")


def test_a_terminal_is_not_overrun_and_what_is_left_out_is_named():
    text = terminal(wide(20), 100)
    assert max(map(len, text.splitlines())) <= 100
    assert "0.600 ± 0.100" not in text  # two digits of the spread
    assert "0.60 ± 0.10" in text
    assert "SlotSSM" in text
    assert "no room for" in text
    assert "val/score_number_19" in text.replace("\n", "")


def test_a_pipe_gets_everything():
    text = terminal(wide(20), 80, is_terminal=False)
    assert "no room" not in text
    assert all(f"score_number_{n:02d}" in text for n in range(20))
    assert len(text.splitlines()) == 4
    assert "\x1b" not in text


def test_plain_text_is_aligned(comparison):
    lines = plain_text(comparison).splitlines()
    assert lines[0] == "balls"
    assert lines[1].startswith("core")
    assert lines[4].index("0.910") == lines[5].index("0.400")
    assert "0.910 ± 0.010 *" in lines[4]
    assert "0.400 ± 0.100" in lines[5]
    assert lines[6].startswith("* the best")


def test_a_single_row_is_named_after_its_runs():
    runs = [replace(run, name="balls") for run in seeds("RIM", BAD)]
    assert "| balls |" in to_markdown(compare(runs))
    assert HEADLINES[0]["label"] in to_markdown(compare(runs))
