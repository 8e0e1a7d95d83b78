"""Slices that go on from where they were stopped: what is kept of runs, and what a later call does with it."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import pytest

from slotbench.bench.gpu import long
from slotbench.bench.gpu.plan import Items, OutOfTimeError, Settings
from slotbench.errors import FileError
from slotbench.yaml_files import read_yaml

ROOT = Path(__file__).parents[2]
PAPER = "experiments/paper/blinking_balls_earliest_t6_p4.yaml"


class FakeCommand:
    """Stands in for `run_command`: a training that makes ten of `total` steps a part, and remembers its calls."""

    def __init__(self, total: int = 30) -> None:
        self.total, self.called = total, []

    def __call__(self, command, seconds, log) -> int | None:
        self.called.append((command[4:], seconds))
        if "pack" in command:
            log.write_text("records of 3 points of 40\n")
            return 0
        grid = "grid" in command
        folder = Path(command[command.index("--runs_dir" if grid else "--run_dir") + 1])
        checkpoint = folder / "checkpoints" / "last.ckpt"
        step = 10 + (int(checkpoint.read_text()) if checkpoint.exists() else 0)
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        for name in ("last", "best", "previous"):
            (checkpoint.parent / f"{name}.ckpt").write_text(str(step))
        record = {"step": step, "total_steps": self.total, "seconds_per_step": 0.5, "metrics": {}, "headlines": []}
        (folder / "run.json").write_text(json.dumps(record))
        return 0 if step == self.total else 124 if grid else None


@pytest.fixture
def fake(monkeypatch) -> FakeCommand:
    monkeypatch.chdir(ROOT)
    made = FakeCommand()
    monkeypatch.setattr(long, "run_command", made)
    return made


def in_time(out: Path, name: str, *parts: float) -> Items:
    """The items of a slice that has as many seconds left, at each question in turn."""
    items, left = Items(out, name), iter(parts)
    items.left = lambda: next(left)
    return items


def test_an_experiment_goes_on_from_its_archive_to_its_end(fake, tmp_path):
    with pytest.raises(OutOfTimeError, match=r"20 of 30 steps; goes on from g1\.zip"):
        long.experiment(Settings(tmp_path), in_time(tmp_path, "g1", 540.0, 250.0, 40.0), PAPER)
    assert [seconds for _, seconds in fake.called] == [200.0, 205.0], "no part is all start"
    assert sorted(zipfile.ZipFile(tmp_path / "g1.zip").namelist()) == ["run/checkpoints/last.ckpt", "run/run.json"]
    items = in_time(tmp_path, "g1", 540.0)
    assert items["run"]["step"] == 20
    assert long.experiment(Settings(tmp_path), items, PAPER) == "30 of 30 steps"
    assert items["run"]["steps_per_second"] == 2.0
    assert "--allow-changes" in fake.called[-1][0]


def test_the_experiment_is_the_papers(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    configs = []

    def reads(command, seconds, log):
        configs.append(read_yaml(command[command.index("--config") + 1]))
        return 0

    monkeypatch.setattr(long, "run_command", reads)
    for quick in (False, True):
        long.experiment(Settings(tmp_path, quick=quick), in_time(tmp_path, "g1", 540.0), PAPER)
    paper, small = read_yaml(PAPER), configs[1]
    assert configs[0] == {**paper, "trainer": {**paper["trainer"], "accelerator": "gpu", "devices": 1}}
    assert small["model"] == paper["model"]
    assert small["trainer"]["max_steps"] == 4
    assert small["data"]["init_args"]["loader"]["batch_size"] == 2


def test_points_are_run_and_their_records_packed(fake, tmp_path):
    with pytest.raises(OutOfTimeError, match=r"3 of 40 points done; goes on from f1\.zip"):
        long.study(Settings(tmp_path), in_time(tmp_path, "f1", 100.0, 40.0), "a.yaml")
    (grid, seconds), (pack, _) = fake.called
    assert (grid[-2:], seconds) == (["--minutes", "1.4167"], 85.0), "55 s, and half a minute in which points save"
    assert grid[:3] == ["grid", "run", "a.yaml"]
    assert pack[:4] == ["grid", "pack", "a.yaml", str(tmp_path / "f1.records.zip")]
    assert pack[4:] == grid[3:5], "of the same folder"


def test_a_command_that_fails_is_a_failure_with_what_was_done(fake, tmp_path, monkeypatch):
    monkeypatch.setattr(long, "run_command", lambda *arguments: fake(*arguments) or 2)
    with pytest.raises(RuntimeError, match=r"slotbench fit ended with code 2 after 10 of 30 steps; g1\.log says more"):
        long.experiment(Settings(tmp_path), in_time(tmp_path, "g1", 540.0), PAPER)


def test_what_has_ended_is_kept_without_its_checkpoint_and_nothing_is_kept_of_images(tmp_path, monkeypatch):
    for name in ("done", "running"):
        for file in ("run.json", "checkpoints/last.ckpt", "checkpoints/best.ckpt", "media/a.png"):
            path = tmp_path / "runs" / "grid" / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text('{"step": 1}' if file == "run.json" else name)
    (tmp_path / "runs" / "grid" / "done" / "result.json").write_text("{}")
    long.keep(tmp_path / "runs", tmp_path / "g1.zip", weights=True)
    assert "grid/done/checkpoints/last.ckpt" in zipfile.ZipFile(tmp_path / "g1.zip").namelist()
    long.keep(tmp_path / "runs", tmp_path / "f1.zip")
    long.unpack(tmp_path / "f1.zip", tmp_path / "again")
    found = {path.relative_to(tmp_path / "again" / "grid").as_posix() for path in (tmp_path / "again").rglob("*.*")}
    assert found == {"done/run.json", "done/result.json", "running/run.json", "running/checkpoints/last.ckpt"}
    (tmp_path / "runs" / "grid" / "later").mkdir()
    (tmp_path / "runs" / "grid" / "later" / "run.json").write_text('{"step": 20}')
    shutil.copytree(tmp_path / "runs/grid/running/checkpoints", tmp_path / "runs/grid/later/checkpoints")
    monkeypatch.setattr(long, "_ROOM", len("running"))
    long.keep(tmp_path / "runs", tmp_path / "f1.zip")
    kept = zipfile.ZipFile(tmp_path / "f1.zip").namelist()
    assert [name for name in kept if "done" not in name] == ["grid/later/checkpoints/last.ckpt", "grid/later/run.json"]
    shutil.rmtree(tmp_path / "runs" / "grid" / "later")
    monkeypatch.setattr(long, "_ROOM", 3)
    long.keep(tmp_path / "runs", tmp_path / "f1.zip")
    assert zipfile.ZipFile(tmp_path / "f1.zip").namelist() == ["grid/done/result.json", "grid/done/run.json"]


def test_an_archive_of_a_stranger_stays_in_its_folder_and_is_bounded(tmp_path, monkeypatch):
    archive = tmp_path / "g1.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("../../out.txt", "x" * 100)
    long.unpack(archive, tmp_path / "runs" / "here")
    assert [path.name for path in tmp_path.iterdir()] == ["g1.zip", "runs"] or not (tmp_path / "out.txt").exists()
    monkeypatch.setattr(long, "_MOST_BYTES", 99)
    with pytest.raises(FileError, match="larger than the 99 bytes"):
        long.unpack(archive, tmp_path / "runs")
    archive.write_bytes(b"PK no zip")
    with pytest.raises(FileError, match="is no zip file, or damaged"):
        long.unpack(archive, tmp_path / "runs")


@pytest.mark.slow
def test_a_training_goes_on_where_another_call_was_stopped(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(long, "_QUICK_STEPS", 1_000_000)
    steps = []
    for _ in range(2):
        items = Items(tmp_path, "g1", long._KEEPING + 60.0)
        with pytest.raises(OutOfTimeError, match="of 1,000,000 steps"):
            long.experiment(Settings(tmp_path, "cpu", quick=True), items, PAPER)
        assert items["run"]["state"] == "interrupted"
        steps.append(items["run"]["step"])
    assert 0 < steps[0] < steps[1]
