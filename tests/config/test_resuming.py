"""Several processes of one run: the first makes the folder, the others find it, and nobody finds an old one."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
import torch

from slotbench.config.options import RunOptions
from slotbench.config.resuming import RunPlace
from slotbench.errors import UserError
from slotbench.runs.folder import RunFolder
from slotbench.runs.launch import Launch

CONFIG = "# slotbench 0\nmodel: {class_path: A}\ntrainer: {max_steps: 4}\n"


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # entering sets it, for processes that Lightning starts
    monkeypatch.setenv("SLOTBENCH_RUN_DIR", "")
    monkeypatch.delenv("SLOTBENCH_RUN_DIR")


def process(rank: int, token: str = "t", job: str | None = None, **options: object) -> RunPlace:
    return RunPlace(RunOptions(**options), Launch(rank, together=True, job=job, token=token))  # type: ignore[arg-type]


def alone(**options: object) -> RunPlace:
    return RunPlace(RunOptions(**options), Launch(0))  # type: ignore[arg-type]


def entered(place: RunPlace) -> RunFolder:
    assert place.look(CONFIG)
    folder = place.enter()
    os.environ.pop("SLOTBENCH_RUN_DIR", None)
    return folder


def save(folder: RunFolder, step: int) -> None:
    parts = {"state_dict": {}, "loops": {}, "optimizer_states": [], "lr_schedulers": [], "callbacks": {}}
    torch.save({**parts, "global_step": step}, folder.checkpoints / "last.ckpt")


def test_the_others_wait_for_the_folder_of_the_first() -> None:
    first, second = process(0, run_dir=Path("run")), process(1, run_dir=Path("run"))
    assert second.look(CONFIG)
    found: list[RunFolder] = []
    waiting = threading.Thread(target=lambda: found.append(second.enter()))
    waiting.start()
    entered(first)
    waiting.join(timeout=20)
    assert [folder.path for folder in found] == [Path("run")]
    assert second.checkpoint is None
    second.finish()
    second.give_up()
    second.leave()
    assert RunFolder.open("run").is_locked()
    assert not RunFolder.open("run").is_done
    first.leave()


def test_the_others_go_on_from_the_checkpoint_of_the_first() -> None:
    made = alone(run_dir=Path("run"))
    save(entered(made), 3)
    made.leave()
    first, second = process(0, run_dir=Path("run")), process(1, run_dir=Path("run"))
    entered(first)
    assert second.look(CONFIG)
    second.enter()
    assert first.checkpoint is not None
    assert second.checkpoint is not None
    assert first.checkpoint.path == second.checkpoint.path == Path("run/checkpoints/last.ckpt")
    first.leave()


def test_a_folder_of_an_earlier_start_is_not_taken_for_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slotbench.runs.resuming._PATIENCE", 0.3)
    earlier = process(0, "old", run_dir=Path("run"))
    entered(earlier)
    second = process(1, "new", run_dir=Path("run"))
    assert second.look(CONFIG)
    with pytest.raises(UserError, match="has waited 0 s for the first process"):
        second.enter()
    earlier.leave()
    # of the same address, but nobody trains any more
    same = process(1, "old", run_dir=Path("run"))
    assert same.look(CONFIG)
    with pytest.raises(UserError, match="has waited"):
        same.enter()


def test_processes_that_do_not_know_one_another_need_a_folder_that_is_named() -> None:
    with pytest.raises(UserError, match="several processes were started from outside") as refused:
        process(0)
    assert "--run_dir DIR" in str(refused.value)


def test_a_job_gives_its_run_a_name_that_it_finds_again() -> None:
    first = process(0, job="slurm-7.0", name="balls")
    folder = entered(first)
    assert folder.path == Path("runs/balls/slurm-7.0")
    assert (folder.info["id"], folder.info["name"]) == ("slurm-7.0", "balls")
    save(folder, 2)
    first.leave()
    again = process(0, "after the job was queued again", job="slurm-7.0", name="balls")
    assert entered(again).path == folder.path
    assert again.checkpoint is not None
    assert again.checkpoint.step == 2
    again.leave()


def test_rows_beyond_the_checkpoint_are_dropped_when_a_run_goes_on() -> None:
    made = alone(run_dir=Path("run"))
    folder = entered(made)
    for step in range(6):
        folder.append(step, {"loss": float("inf") if step == 1 else 1 / (step + 1)})
    save(folder, 3)
    kept = folder.history()[:3]
    made.leave()
    again = alone(resume=Path("run"))
    assert entered(again).history() == kept
    assert folder.info["resumed"][0]["rows_dropped"] == 3
    again.leave()


def test_a_second_process_does_not_take_the_lock_file_away() -> None:
    first, second = alone(run_dir=Path("run")), alone(run_dir=Path("run"))
    assert first.look(CONFIG)
    with pytest.raises(UserError, match="being trained by another process"):
        second.look(CONFIG)
    second.leave()
    assert RunFolder(Path("run")).is_locked()
    first.leave()
    assert not Path("run").exists()  # nothing was recorded
