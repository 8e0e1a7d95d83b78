"""The comparison of a grid with a protocol: what was chosen, success, interval and budget."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import made_up_runs
import pytest
from made_up_runs import record, seeds

from slotbench.comparison.formats.terminal import plain_text
from slotbench.comparison.formats.text_formats import to_csv, to_latex, to_markdown
from slotbench.comparison.page.page import describe
from slotbench.comparison.protocol import GridProtocol, read_protocol
from slotbench.comparison.sources import open_sources
from slotbench.comparison.table import compare
from slotbench.records import valid_part
from slotbench.runs.grid_record import GridRecord

KEY = "model.optimizer.lr"
PROTOCOL = GridProtocol(
    key=KEY,
    values=(0.0003, 0.0007, 0.002),
    seeds=(1000,),
    metric="val/iou",
    variants=(
        {"label": "SlotSSM", "chosen": 0.0007, "diverged": False},
        {"label": "RIM", "chosen": 0.002, "diverged": False},
        {"label": "PSB", "chosen": None, "diverged": True},
        {"label": "SlotRNN", "chosen": None, "diverged": False},
    ),
)


def rows(values=(0.5, 0.6, 0.41), **info):
    """A core at a rate, and another one that is never above the best baseline, 0.4."""
    good, bad = seeds("SlotSSM", values, **{KEY: 0.0007}), seeds("RIM", (0.39, 0.40, 0.1), **{KEY: 0.0007})
    known = {"seconds": 1200.0, "step": 5000, **info}
    return [replace(run, info={**run.info, **known}) for run in (*good, *bad)]


def test_the_chosen_value_stands_in_the_table_even_where_all_rows_have_the_same():
    assert compare(rows()).keys == ["model.core"]
    assert compare(rows(), protocol=PROTOCOL).keys == ["model.core", KEY]


def test_success_is_the_share_of_seeds_that_beat_the_best_baseline():
    good, bad = compare(rows(), protocol=PROTOCOL).rows
    assert (good.success, bad.success) == ((3, 3), (0, 3))
    lower = compare(rows(), metrics=["mse"], protocol=PROTOCOL).rows
    # val/mse is one minus val/iou, and its best baseline 0.3
    assert {row.label: row.success for row in lower} == {"SlotSSM": (0, 3), "RIM": (0, 3)}


def test_a_seed_that_diverged_is_no_success_and_one_that_runs_does_not_count():
    first, second, third, *rest = rows((0.9, 0.9, 0.9))
    runs = [replace(first, state="diverged"), replace(second, state="running"), third, *rest]
    assert compare(runs, protocol=PROTOCOL).rows[0].success == (1, 2)


def test_without_baselines_there_is_no_success():
    runs = [replace(run, info={**run.info, "headlines": []}) for run in rows()]
    comparison = compare(runs, metrics=["iou"], protocol=PROTOCOL)
    assert [row.success for row in comparison.rows] == [None, None]
    assert "interval (t)" in plain_text(comparison)


def test_the_table_says_rate_interval_success_and_budget_and_keeps_oracles_apart():
    known = [{**headline, "oracles": {"simulator": 1.0}} for headline in made_up_runs.HEADLINES]
    said = plain_text(compare(rows(headlines=known), protocol=PROTOCOL))
    lines = said.splitlines()
    heading = "95 % interval (t) success steps minutes seeds"
    assert lines[0].split()[-len(heading.split()) :] == heading.split()
    (row,) = (line for line in lines if line.startswith("SlotSSM"))
    assert "0.0007" in row
    # mean 0.5033, deviation 0.0950, t(0.975, 2) = 4.303: half of the interval is 0.236
    assert "0.27 to 0.74" in row
    assert row.split()[-4:] == ["3/3", "5,000", "20", "3"]
    assert said.index("copy") < said.index("oracle: simulator") < said.index("SlotSSM")


def test_the_notes_say_what_was_chosen_how_and_what_was_not():
    notes = "\n".join(compare(rows(), protocol=PROTOCOL).notes)
    assert f"{KEY} was chosen for each row from 0.0003, 0.0007, 0.002 by val/iou" in notes
    assert "seed 1000, which is not reported" in notes
    assert "beat the best baseline of val/iou, copy (0.4)" in notes
    assert f"diverged at every {KEY}, and so in no row: PSB" in notes
    assert f"{KEY} is not chosen yet: SlotRNN" in notes
    assert "at an end of the range, so that the best may lie beyond it: RIM (0.002)" in notes


def test_a_choice_at_one_value_says_so():
    notes = "\n".join(compare(rows(), protocol=replace(PROTOCOL, at={"data.num_frames": 6, "data.level": "a"})).notes)
    assert f"{KEY} was chosen at data.num_frames 6 and data.level a, for rows of other values too, from 0.0003" in notes
    for given, known in (({"data.num_frames": 6}, {"data.num_frames": 6}), ([6], {}), (None, {})):
        protocol = read_protocol(valid_part({"protocol": {"choose": KEY, "at": given}}, GridRecord))
        assert protocol is not None
        assert protocol.at == known


def test_every_format_has_as_many_cells_in_each_row():
    comparison = compare(rows(), protocol=PROTOCOL)
    table = list(csv.DictReader(StringIO(to_csv(comparison))))
    assert {len(row) for row in csv.reader(StringIO(to_csv(comparison)))} == {len(table[0])}
    good = next(row for row in table if row["label"] == "SlotSSM")
    assert (good["success"], good["steps"], good["seconds"]) == ("1.0", "5000", "1200.0")
    lines = [line for line in to_markdown(comparison).splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in lines}) == 1
    assert "| 3/3 | 5,000 | 20 | 3 |" in "\n".join(lines)
    lines = [line for line in to_latex(comparison).splitlines() if line.endswith(r"\\")]
    assert len({line.count("&") for line in lines}) == 1


def test_other_tables_stay_as_they_are():
    comparison = compare(rows())
    assert "success" not in plain_text(comparison) + to_csv(comparison) + to_markdown(comparison)


def grid_with_a_protocol(folder: Path) -> Path:
    """A grid of one core, two candidates and two seeds."""
    points = []
    for name, stage, seed, iou in (
        ("a", "choose", 1000, 0.99),
        ("b", "choose", 1000, 0.98),
        ("c", "report", 0, 0.5),
        ("d", "report", 1, 0.6),
    ):
        made_up_runs.make_run(folder / name, made_up_runs.config(seed=seed), {"val/iou": iou}, seconds=60.0)
        points.append({"id": name, "stage": stage})
    protocol = {"choose": KEY, "values": [0.001, 0.002], "seed": 1000, "by": "val/iou", "higher_is_better": True}
    protocol["variants"] = [{"label": "SlotSSM", "chosen": 0.001, "diverged": False}]
    (folder / "grid.json").write_text(json.dumps({"points": points, "protocol": protocol}))
    (folder / "grid.yaml").write_text("base: x.yaml\nmetrics: [val/iou]\n")
    return folder


def test_runs_that_chose_are_not_reported(tmp_path):
    sources = open_sources([str(grid_with_a_protocol(tmp_path / "grid"))])
    assert sorted(run.id for run in sources.runs) == ["c", "d"]
    assert sources.notes == []
    assert sources.protocol is not None
    (row,) = compare(sources.runs, protocol=sources.protocol).rows
    assert row.cells["val/iou"].mean == pytest.approx(0.55)
    assert row.success == (2, 2)


def test_a_grid_file_may_name_the_folder_of_its_runs(tmp_path):
    grid_with_a_protocol(tmp_path / "runs" / "study")
    file = tmp_path / "balls.yaml"
    file.write_text("name: study\nbase: base.yaml\nmetrics: [val/iou]\n")
    sources = open_sources([str(file)], tmp_path / "runs")
    assert (sources.title, len(sources.runs)) == ("study", 2)


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"protocol": []},
        {"protocol": {"choose": 3}},
        {"protocol": {"choose": KEY}},
        {"protocol": {"choose": KEY, "values": 3, "variants": [3, {"chosen": "x"}]}, "points": [3]},
    ],
)
def test_a_damaged_protocol_does_no_harm(broken):
    protocol = read_protocol(valid_part(broken, GridRecord))
    runs = [record("a", {"model.core": "S"}, {"val/iou": 0.5}), record("b", {"model.core": "T"}, {"val/iou": 0.6})]
    assert plain_text(compare(runs, protocol=protocol))


def test_the_page_is_given_success_and_budget_where_there_is_a_protocol_alone():
    asked = ("success", "steps", "minutes")
    held = [{key: row[key] for key in asked} for row in describe(compare(rows(), protocol=PROTOCOL), 100)["rows"]]
    assert held == [
        {"success": [3, 3], "steps": 5000, "minutes": 20.0},
        {"success": [0, 3], "steps": 5000, "minutes": 20.0},
    ]
    assert all(row[key] is None for row in describe(compare(rows()), 100)["rows"] for key in asked)
