"""Points that start from one another: what they are, in which order they run, and what becomes of those that wait."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import stand_in_grid

from slotbench.cli import run
from slotbench.comparison.run_folders import read_run_folder
from slotbench.comparison.sources import open_sources
from slotbench.errors import UserError
from slotbench.grids.expansion import expand
from slotbench.grids.grid_file import read_grid_file
from slotbench.grids.grid_folder import GridFolder
from slotbench.grids.protocol import choices, staged

CHAIN = """
base: base.yaml
product:
  model.core.dim: [{widths}]
chain: {{along: model.core.dim}}
seeds: {seeds}
"""
CHOSEN = """
base: base.yaml
product:
  model.core: [A, B]
zip:
  model.core.dim: [1, 2]
  trainer.max_steps: [10, 20]
chain: {along: trainer.max_steps}
protocol: {values: [0.1, 0.2], by: val/loss}
metrics: [val/loss]
"""


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory in which the stand-in trains."""
    monkeypatch.chdir(tmp_path)
    stand_in_grid.stand_in(monkeypatch)
    stand_in_grid.write_grid(tmp_path)
    return tmp_path


def grid_of(text: str = CHAIN, widths: str = "1, 2, 3", seeds: int = 1):
    file = Path("chain.yaml")
    file.write_text(text.format(widths=widths, seeds=seeds) if "{widths}" in text else text)
    return expand(read_grid_file(file))


def order(folder: Path) -> list[str]:
    """The points that were started, in that order, by what their ledgers say."""
    begun = {}
    for attempts in folder.glob("*/attempts.jsonl"):
        begun[attempts.parent.name.rpartition("-")[0]] = attempts.stat().st_mtime_ns
    return sorted(begun, key=begun.__getitem__)


def test_each_point_but_the_first_starts_from_the_one_before_with_its_own_seed():
    points = grid_of(seeds=2).points
    by_id = {point.id: point for point in points}
    assert [point.after for point in points if point.settings["model.core.dim"] == 1] == ["", ""]
    for point in points:
        if point.after:
            before = by_id[point.after]
            assert before.settings["model.core.dim"] == point.settings["model.core.dim"] - 1
            assert before.settings["seed_everything"] == point.settings["seed_everything"]
            assert point.into == "model.init_from"


def test_a_protocol_may_choose_at_the_first_of_a_chain(capsys):
    grid = grid_of(CHOSEN.replace("by: val/loss", "by: val/loss, at: {trainer.max_steps: 10}") + "seeds: 2\n")
    first = [point for point in grid.candidates if point.stage == "choose"]
    assert [point.settings["trainer.max_steps"] for point in first] == [10] * 4
    assert not any(point.after for point in first)
    assert run(["grid", "status", "chain.yaml"]) == 1
    assert "8 points of reported seeds will follow from 2 variants" in capsys.readouterr().out
    assert run(["grid", "run", "chain.yaml"]) == 0
    folder = GridFolder(Path("runs/chain"))
    assert [choice.label for choice in choices(grid, folder)] == ["A", "B"]
    reported = [point for point in staged(grid, folder).points if point.stage == "report"]
    assert len(reported) == 8
    assert sum(bool(point.after) for point in reported) == 4


def test_all_points_start_from_the_first_of_their_seed_where_the_chain_says_so():
    points = grid_of(CHAIN.replace("dim}}", "dim, start: first}}"), seeds=2).points
    firsts = {point.settings["seed_everything"]: point.id for point in points if not point.after}
    assert len(firsts) == 2
    assert len(points) == 6
    assert all(point.after in ("", firsts[point.settings["seed_everything"]]) for point in points)
    # the second place is the same run either way, the third one is another
    same = [point.id == other.id for point, other in zip(points[:3], grid_of().points, strict=True)]
    assert same == [True, True, False]


def test_points_that_start_from_the_first_all_run_after_it(workspace):
    grid_of(CHAIN.replace("dim}}", "dim, start: first}}"))
    assert run(["grid", "run", "chain.yaml", "--jobs", "1"]) == 0
    assert order(workspace / "runs/chain")[0] == "dim=1,seed=0"
    for folder in (workspace / "runs/chain").glob("dim=[23]*"):
        assert f"--model.init_from {next((workspace / 'runs/chain').glob('dim=1*')).relative_to(workspace)}" in (
            shlex.join(json.loads((folder / "point.json").read_text())["command"]).replace("'", "")
        )


def test_what_all_start_from_is_no_row_of_the_comparison(workspace):
    grid_of(CHAIN.replace("dim}}", "dim, start: first}}"), seeds=2)
    assert run(["grid", "run", "chain.yaml"]) == 0
    found = open_sources(["chain.yaml"])
    assert sorted(Path(run.source).name.partition(",")[0] for run in found.runs) == ["dim=2"] * 2 + ["dim=3"] * 2
    assert "2 points of chain that the others start from are no rows" in found.notes


def test_another_start_is_another_point_and_without_a_chain_nothing_changes():
    ids = {point.name: point.id for point in grid_of(widths="1, 2").points}
    other = {point.name: point.id for point in grid_of(widths="3, 2").points}
    alone = {point.name: point.id for point in grid_of(CHAIN.replace("chain:", "#"), widths="1, 2").points}
    assert ids["dim=2,seed=0"] != other["dim=2,seed=0"] != alone["dim=2,seed=0"]
    assert ids["dim=1,seed=0"] == alone["dim=1,seed=0"]


def test_points_run_in_order_whatever_the_number_of_jobs_and_are_told_where_to_start(workspace):
    grid = grid_of(widths="3, 1, 2")
    assert run(["grid", "run", "chain.yaml", "--jobs", "3"]) == 0
    folder = workspace / "runs/chain"
    assert order(folder) == ["dim=3,seed=0", "dim=1,seed=0", "dim=2,seed=0"]
    first, second, _ = grid.points
    words = shlex.join(json.loads((folder / second.id / "point.json").read_text())["command"])
    assert f"--model.init_from runs/chain/{first.id}" in words.replace("'", "")
    assert "init_from" not in (folder / first.id / "point.json").read_text()
    assert run(["grid", "run", "chain.yaml"]) == 0


def test_what_starts_from_a_failed_point_waits_until_that_is_done(workspace, capsys):
    grid_of()
    fault = stand_in_grid.fault(workspace, 2, 0, "raise")
    assert run(["grid", "run", "chain.yaml", "--jobs", "2"]) == 1
    assert "3 points, 1 done, 1 failed, 1 waiting" in capsys.readouterr().out
    assert run(["grid", "run", "chain.yaml"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "dim=3,seed=0 waits: it starts from dim=2,seed=0-" in said
    assert "which is failed" in said
    fault.unlink()
    assert run(["grid", "retry", "chain.yaml"]) == 0
    assert order(workspace / "runs/chain")[-1] == "dim=3,seed=0"


def test_one_point_by_hand_needs_the_one_before(capsys):
    grid = grid_of(widths="1, 2")
    assert run(["grid", "point", "chain.yaml", "2"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"{grid.points[1].id} starts from {grid.points[0].id}, which is waiting" in said
    assert f"slotbench grid point chain.yaml {grid.points[0].id}, first" in said


def test_with_a_protocol_the_last_point_of_a_chain_chooses_for_all_of_it(workspace):
    grid = grid_of(CHOSEN)
    folder = GridFolder(workspace / "runs/chain")
    losses = {("A", 0.1): 0.5, ("A", 0.2): 0.4, ("B", 0.1): 0.1, ("B", 0.2): 0.2}
    for point in grid.points:
        rate, last = point.settings["model.optimizer.lr"], point.settings["model.core.dim"] == 2
        # the first points of a chain say the contrary
        loss = losses[point.settings["model.core"], rate] * (1 if last else -1)
        folder.point(point.id).path.mkdir(parents=True)
        (folder.point(point.id).path / "result.json").write_text(json.dumps({"metrics": {"val/loss": loss}}))
    found = choices(grid, folder)
    assert [(choice.label, choice.chosen) for choice in found] == [("A", 1), ("B", 0)]
    reported = [point for point in staged(grid, folder).points if point.stage == "report"]
    assert {(point.settings["model.core"], point.settings["model.optimizer.lr"]) for point in reported} == {
        ("A", 0.2),
        ("B", 0.1),
    }
    assert len(reported) == 4
    assert {point.after for point in reported if point.after} == {point.id for point in reported if not point.after}


def test_a_chain_that_diverges_early_counts_as_diverged(workspace):
    grid = grid_of(CHOSEN)
    folder = GridFolder(workspace / "runs/chain")
    for point in grid.points:
        folder.point(point.id).path.mkdir(parents=True)
        result = {"state": "diverged"} if point.settings["model.optimizer.lr"] == 0.2 else {"metrics": {"val/loss": 1}}
        if not (point.after and result.get("state")):
            (folder.point(point.id).path / "result.json").write_text(json.dumps(result))
    assert [(choice.scores, choice.chosen) for choice in choices(grid, folder)] == [((1.0, "diverged"), 0)] * 2


def test_runs_of_a_chain_compare_as_seeds_of_one_row(workspace):
    grid_of(widths="1, 2", seeds=2)
    run(["grid", "run", "chain.yaml"])
    for folder in (workspace / "runs/chain").glob("dim=2*"):
        model = {"class_path": "T", "init_args": {"init_from": folder.name, "a": 1}}
        (folder / "config.yaml").write_text(json.dumps({"model": model}))
        assert read_run_folder(folder).settings == {"model": "T", "model.a": 1}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("chain: model.core.dim", "chain holds model.core.dim"),
        ("chain: {along: model.core.dmi}", "model.core.dmi is no axis"),
        ("chain: {along: model.core.dim, form: x}", "chain has no key form"),
        ("chain: {along: model.core.dim, start: last}", "start is last"),
        (
            "chain: {along: model.core.dim, start: first}\nprotocol: {values: [1, 2], by: val/loss}",
            "a protocol chooses by the last",
        ),
        ("chain: {along: model.core.dim, into: seed_everything}", "seed_everything is not a setting"),
        ("chain: {along: model.core.dim}\nsettings: {model.init_from: x}", "model.init_from is given twice"),
        ("chain: {along: model.core.dim}\nexclude: [{dim: 1}]", "leaves out a point that another one starts from"),
    ],
)
def test_what_cannot_be_a_chain_is_refused(text, words):
    with pytest.raises(UserError, match=words):
        grid_of(f"base: base.yaml\nproduct: {{model.core.dim: [1, 2]}}\n{text}\n")
