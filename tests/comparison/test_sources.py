"""What can be typed as a source, and what is said when it is none."""

from __future__ import annotations

import json

import pytest
import yaml
from made_up_runs import config, make_run

from slotbench.comparison.records import ComparisonError
from slotbench.comparison.sources import open_sources, read_sources


def test_folders_of_runs_and_single_runs_are_read_once(tmp_path):
    first = make_run(tmp_path / "balls" / "1", config(seed=0))
    make_run(tmp_path / "balls" / "2", config(seed=1))
    sources = open_sources([str(tmp_path / "balls"), str(first)])
    assert [run.id for run in sources.runs] == ["1", "2"]
    assert sources.title == "balls"
    assert [run.id for run in read_sources([str(tmp_path)])] == ["1", "2"]


def test_equal_ids_are_told_apart(tmp_path):
    make_run(tmp_path / "a" / "1")
    make_run(tmp_path / "b" / "1")
    assert [run.id for run in read_sources([str(tmp_path)])] == ["1", "1~2"]


@pytest.mark.parametrize(
    ("groups", "title"), [((None, None), "balls"), (("sweep", "sweep"), "sweep"), (("sweep", None), "balls")]
)
def test_a_title_for_several_sources(tmp_path, groups, title):
    for index, group in enumerate(groups):
        make_run(tmp_path / f"balls-seed{index}" / "1", group=group)
    sources = open_sources([str(tmp_path / "balls-seed0"), str(tmp_path / "balls-seed1")])
    assert sources.title.removesuffix("-seed") == title


def grid(tmp_path, name="cores", **content):
    path = tmp_path / f"{name}.yaml"
    path.write_text(yaml.safe_dump({"base": "x.yaml", "metrics": ["val/iou"], **content}))
    return path


def test_a_grid_file_stands_for_its_folder(tmp_path):
    make_run(tmp_path / "runs" / "cores" / "core=RIM-1")
    sources = open_sources([str(grid(tmp_path))], tmp_path / "runs")
    assert [run.id for run in sources.runs] == ["core=RIM-1"]
    assert sources.metrics == ["val/iou"]
    assert sources.title == "cores"


def test_the_folder_of_a_grid_knows_the_metrics_and_what_has_not_run(tmp_path):
    folder = tmp_path / "runs" / "cores"
    make_run(folder / "a")
    make_run(folder / "old")
    (folder / "b").mkdir()
    (folder / "b" / "point.json").write_text("{}")
    (folder / "grid.yaml").write_text(grid(tmp_path).read_text())
    (folder / "grid.json").write_text(json.dumps({"points": [{"id": name} for name in "abc"]}))
    sources = open_sources([str(folder)])
    assert [run.id for run in sources.runs] == ["a"]
    assert sources.metrics == ["val/iou"]
    assert any("2 of the 3 points" in note for note in sources.notes)
    assert any("such as old" in note for note in sources.notes)


def test_a_grid_that_has_not_run(tmp_path):
    with pytest.raises(ComparisonError, match=r"slotbench grid run .*cores\.yaml"):
        open_sources([str(grid(tmp_path))], tmp_path / "runs")
    folder = tmp_path / "runs" / "cores" / "a"
    folder.mkdir(parents=True)
    (folder / "point.json").write_text("{}")
    with pytest.raises(ComparisonError, match="1 of the 1 points"):
        open_sources([str(grid(tmp_path))], tmp_path / "runs")


def test_a_half_written_run_is_a_note_among_others_and_an_error_alone(tmp_path):
    make_run(tmp_path / "balls" / "1")
    half = make_run(tmp_path / "balls" / "2")
    (half / "run.json").write_text('{"id": ')
    sources = open_sources([str(tmp_path / "balls")])
    assert [run.id for run in sources.runs] == ["1"]
    assert any("2 is a half-written run" in note and "left out" in note for note in sources.notes)
    with pytest.raises(ComparisonError, match="half-written run"):
        open_sources([str(half)])


def test_what_is_no_source(tmp_path):
    make_run(tmp_path / "balls" / "1")
    with pytest.raises(ComparisonError, match=r"no such path; did you mean .*balls\?"):
        open_sources([str(tmp_path / "bals")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ComparisonError, match="no runs in"):
        open_sources([str(tmp_path / "empty")])
    (tmp_path / "balls.yaml").write_text("model: {}")
    with pytest.raises(ComparisonError, match=r"without `base`.*did you mean .*balls\?"):
        open_sources([str(tmp_path / "balls.yaml")], tmp_path)
    (tmp_path / "broken.yaml").write_text("a: [")
    with pytest.raises(ComparisonError, match="is not valid YAML"):
        open_sources([str(tmp_path / "broken.yaml")])
    with pytest.raises(ComparisonError, match="wandb:ENTITY/PROJECT"):
        open_sources(["wandb:"])
