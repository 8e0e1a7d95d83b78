"""What wandb has logged without a network is read back as it was logged."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

from slotbench.callbacks.loggers import wandb_logger
from slotbench.comparison.records import ComparisonError, RunRecord
from slotbench.comparison.run_folders import read_run_folder
from slotbench.comparison.wandb.offline import find_logs, printed_log, read_log, read_wandb_offline
from slotbench.runs.folder import RunFolder
from slotbench.runs.wandb_compat import PART

CONFIG = {
    "seed_everything": 1,
    "model": {
        "class_path": "LongContextReasoning",
        "init_args": {
            "core": {"class_path": "RIM", "init_args": {"num_slots": 8, "dropout": 1.0, "kernel": None}},
            "optimizer": {"class_path": "torch.optim.AdamW", "init_args": {"lr": 2e-3, "betas": [0.9, 1.0]}},
        },
    },
    "data": {"class_path": "BouncingBalls", "init_args": {"rule": "earliest", "gap": float("inf")}},
    "trainer": {"max_steps": 10, "precision": None},
}


def log(folder: RunFolder, rows: list[tuple[int, dict[str, float]]], state: str, status: str) -> None:
    """One process's share of a run."""
    logger = wandb_logger(folder, "offline", "tests", CONFIG)
    for step, values in rows:
        logger.log_metrics(values, step=step)
    folder.update(state=state)
    logger.finalize(status)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two runs, one of which was stopped at step 7 and went on from a checkpoint of step 5."""
    root = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("WANDB_MODE", raising=False)
        resumed = RunFolder.create(root, "balls", group="cores")
        resumed.write_config(yaml.safe_dump(CONFIG))
        first = [(step, {"train/loss": 1.0, "epoch": 0}) for step in range(8)]
        early = [(3, {"val/score": 0.3, "val/baseline/score/mean": 0.1}), (7, {"val/late": 1.0})]
        log(resumed, sorted(first + early, key=lambda row: row[0]), "interrupted", "failed")
        log(resumed, [(step, {"train/loss": 2.0}) for step in range(5, 10)], "running", "success")
        failed = RunFolder.create(root, "balls")
        log(failed, [(0, {"val/score": float("nan")})], "failed", "failed")
    return root


@pytest.fixture(scope="module")
def read(runs: Path) -> dict[str, RunRecord]:
    return {record.state: record for record in read_wandb_offline(runs)}


def test_a_resumed_run_is_one_record_without_what_lies_beyond_the_checkpoint(read: dict[str, RunRecord]) -> None:
    assert set(read) == {"finished", "failed"}
    run = read["finished"]
    steps, values = run.curves(100)["train/loss"]
    assert steps.tolist() == list(range(10))
    assert values.tolist() == [1.0] * 5 + [2.0] * 5
    assert run.summary == {"train/loss": 2.0, "val/score": 0.3, "val/baseline/score/mean": 0.1}
    assert set(run.curves(100)) == {"train/loss", "val/score"}
    assert run.info["step"] == 9


def _copied(log: Path, folder: Path, hours: int) -> Path:
    """A log as if it had been written so many hours ago; a copy, which no process of wandb's touches any more.

    wandb's own process may still be writing when the logger has returned: the last record is awaited.
    """
    until = time.monotonic() + 120
    while all(kind != "exit" for kind, _ in read_log(log)) and time.monotonic() < until:
        time.sleep(0.1)
    copy = folder / f"offline-run-2026010{9 - hours // 24}_000000-copied" / log.name
    copy.parent.mkdir(parents=True)
    shutil.copyfile(log, copy)
    os.utime(copy, (time.time() - 3600 * hours,) * 2)
    return copy


@pytest.mark.parametrize("parts_are_told", [True, False])
def test_a_run_that_went_on_after_the_clock_was_set_back_is_where_its_last_part_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts_are_told: bool
) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    folder, copies = RunFolder.create(tmp_path, "balls"), tmp_path / "copies"
    log(folder, [(step, {"train/loss": 1.0}) for step in range(8)], "running", "success")
    (first,) = find_logs(folder.path)
    log(folder, [(step, {"train/loss": 2.0}) for step in range(5, 12)], "running", "success")
    (second,) = set(find_logs(folder.path)) - {first}
    # the killed part is newer by every time stamp
    killed = _copied(first, copies, 0)
    _copied(second, copies, 24)

    def as_killed(path: Path) -> list:
        records = list(read_log(path))
        if not parts_are_told:
            records = [(kind, {k: v for k, v in said.items() if k != PART}) for kind, said in records]
        starts = "2026-01-02T00:00:00Z" if path == killed else "2026-01-01T00:00:00Z"
        records = [(kind, said | {"start_time": starts} if kind == "run" else said) for kind, said in records]
        return [(kind, said) for kind, said in records if kind != "exit" or path != killed]

    monkeypatch.setattr("slotbench.comparison.wandb.offline.read_log", as_killed)
    (run,) = read_wandb_offline(copies)
    assert (run.state, run.info["step"], run.summary["train/loss"]) == ("finished", 11, 2.0)
    assert run.curves(100)["train/loss"][1].tolist() == [1.0] * 5 + [2.0] * 7


def test_parts_that_go_on_from_ever_earlier_checkpoints_keep_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    folder = RunFolder.create(tmp_path, "balls")
    for number, steps in enumerate(((0, 9), (6, 9), (3, 8)), 1):
        log(folder, [(step, {"train/loss": float(number)}) for step in range(*steps)], "running", "success")
    for path in find_logs(folder.path):
        os.utime(path, (1, 1))
    (run,) = read_wandb_offline(folder.path)
    assert run.curves(100)["train/loss"][1].tolist() == [1.0] * 3 + [3.0] * 5
    assert PART not in run.summary


def test_a_log_from_the_future_is_not_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    folder = RunFolder.create(tmp_path, "balls")
    log(folder, [(0, {"train/loss": 1.0})], "running", "success")
    (path,) = find_logs(folder.path)
    records = [record for record in read_log(path) if record[0] != "exit"]
    monkeypatch.setattr("slotbench.comparison.wandb.offline.read_log", lambda path: records)
    (run,) = read_wandb_offline(folder.path)
    assert run.state == "running"
    os.utime(path, (path.stat().st_mtime + 86_400,) * 2)
    (run,) = read_wandb_offline(folder.path)
    assert run.state == "killed"


def test_curves_are_thinned_and_keep_their_ends(read: dict[str, RunRecord]) -> None:
    steps, values = read["finished"].curves(3)["train/loss"]
    assert len(steps) == len(values) == 3
    assert (steps[0], steps[-1]) == (0, 9)


def test_settings_are_those_of_the_run_folder(runs: Path, read: dict[str, RunRecord]) -> None:
    run = read["finished"]
    folder = read_run_folder(Path(run.source).parents[1])
    assert run.settings == folder.settings
    assert run.settings["model.core"] == "RIM"
    assert run.settings["data.gap"] == "Infinity"
    assert run.id == folder.info["wandb_id"]


def test_group_tags_and_job_type_tell_runs_apart(read: dict[str, RunRecord]) -> None:
    info = read["finished"].info
    assert (info["group"], info["job_type"], info["project"]) == ("cores", "train", "tests")
    assert info["tags"] == ["balls", "RIM", "BouncingBalls", "LongContextReasoning", "cores"]
    assert "group" not in read["failed"].info
    assert np.isnan(read["failed"].summary["val/score"])


def test_the_link_to_the_newest_log_doubles_nothing(runs: Path, read: dict[str, RunRecord]) -> None:
    wandb = Path(read["finished"].source).parent
    assert (wandb / "latest-run").exists()
    names = [path.parent.name for path in find_logs(wandb)]
    assert len(names) == 2
    assert all(name.startswith("offline-run-") for name in names)


def test_one_folder_of_a_resumed_run_is_read_alone(read: dict[str, RunRecord], monkeypatch: pytest.MonkeyPatch) -> None:
    first = min(find_logs(Path(read["finished"].source).parent), key=lambda path: path.stat().st_mtime)
    (run,) = read_wandb_offline(first.parent)
    assert run.state == "interrupted"
    assert run.summary["val/late"] == 1.0


@pytest.mark.parametrize("lost", [1, 40, 300])
def test_a_torn_log_is_read_as_far_as_it_goes(read: dict[str, RunRecord], tmp_path: Path, lost: int) -> None:
    whole = next(find_logs(Path(read["finished"].source)))
    torn = tmp_path / whole.name
    torn.write_bytes(whole.read_bytes()[:-lost])
    before = list(read_log(whole))
    after = list(read_log(torn))
    assert 0 < len(after) < len(before)
    assert after == before[: len(after)]


@pytest.mark.parametrize("written", [b"", b":W&B\xe1\xbe\x00"])
def test_a_run_killed_as_it_started_is_there_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: bytes
) -> None:
    file = tmp_path / "wandb" / "offline-run-20260101_000000-abcd" / "run-abcd.wandb"
    file.parent.mkdir(parents=True)
    file.write_bytes(written)
    os.utime(file, (0, 0))
    (run,) = read_wandb_offline(tmp_path)
    assert (run.id, run.state, run.summary) == ("abcd", "killed", {})
    assert "killed as it started" in run.info["problem"]


def test_a_log_without_an_end_is_running_until_it_is_silent(
    read: dict[str, RunRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = next(find_logs(Path(read["finished"].source)))
    torn = tmp_path / whole.name
    torn.write_bytes(whole.read_bytes()[:-1])
    assert read_wandb_offline(tmp_path)[0].state == "running"
    os.utime(torn, (0, 0))
    assert read_wandb_offline(tmp_path)[0].state == "killed"


def test_the_run_folder_around_a_log_tells_more(
    read: dict[str, RunRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Path(read["finished"].source)
    run = tmp_path / "run"
    shutil.copytree(source.parents[1], run, symlinks=True)
    RunFolder.open(run).update(
        parameters={"total": 12}, best={"val/score": {"value": 0.5, "step": 3}}, headlines=[{"metric": "val/score"}, 7]
    )
    (record,) = read_wandb_offline(run)
    assert record.info["parameters"] == {"total": 12}
    assert [headline["metric"] for headline in record.info["headlines"]] == ["val/score"]
    assert record.best == {"val/score": 0.5}
    record_of_run = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**record_of_run, "wandb_id": "another"}))
    (record,) = read_wandb_offline(run)
    assert record.best == {}


def test_pictures_are_no_metrics() -> None:
    row = {"a._type": "image-file", "a.width": 4, "ab": 1.0, "_runtime": 3, "trainer/global_step": 2, "on": True}
    from slotbench.comparison.wandb.rows import metrics_of

    assert metrics_of(row) == {"ab": 1.0}


def test_what_is_no_log_is_said(tmp_path: Path) -> None:
    with pytest.raises(ComparisonError, match="there is no such folder"):
        read_wandb_offline(tmp_path / "none")
    with pytest.raises(ComparisonError, match="--wandb offline` writes one"):
        read_wandb_offline(tmp_path)
    (tmp_path / "run-x.wandb").write_text("text")
    with pytest.raises(ComparisonError, match="is no log of wandb's: it does not begin with :W&B"):
        read_wandb_offline(tmp_path)


def test_what_wandb_refuses_is_said_in_its_words(tmp_path: Path) -> None:
    (tmp_path / "run-x.wandb").write_bytes(b":W&B\x01\x02\x00")
    with pytest.raises(ComparisonError, match=r"wandb cannot read .*run-x\.wandb: Error: .*header"):
        list(printed_log(tmp_path / "run-x.wandb"))


def test_a_broken_log_does_not_hide_the_others(
    read: dict[str, RunRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(next(find_logs(Path(read["finished"].source))), tmp_path)
    (tmp_path / "run-x.wandb").write_text("text")
    records = {record.id: record for record in read_wandb_offline(tmp_path)}
    assert records.pop("x").info["problem"].endswith("run-x.wandb is no log of wandb's: it does not begin with :W&B")
    assert [record.state for record in records.values()] == ["finished"]
