"""What the driver and the engine of this machine do with points, seen in their files."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import stand_in_grid
import torch

from slotbench.grids import engines
from slotbench.grids.driver import Driver
from slotbench.grids.engines import Job, TimeLimit
from slotbench.grids.engines.local import LocalEngine
from slotbench.grids.grid_folder import GridFolder
from slotbench.grids.ledger import PointFolder, state_after
from slotbench.io import lock


@pytest.fixture
def point(tmp_path: Path) -> PointFolder:
    (tmp_path / "p").mkdir()
    return PointFolder(tmp_path / "p")


def job(folder: PointFolder, *command: str) -> Job:
    folder.path.mkdir(parents=True, exist_ok=True)
    return Job(folder.path.name, folder.path, command, {"WORD": "set"})


def drained(engine: LocalEngine) -> dict[str, int | None]:
    outcomes = {}

    def is_over() -> bool:
        outcomes.update({outcome.id: outcome.exit_code for outcome in engine.poll()})
        return not engine.running() and not engine._queue

    stand_in_grid.wait_until(is_over)
    return outcomes


class Quiet:
    def began(self, point, where): ...
    def ended(self, point, state, outcome, seconds): ...
    def tick(self, progress): ...


class TestPointFolder:
    def test_only_a_result_makes_it_done(self, point):
        assert point.state() == "waiting"
        point.end(point.begin("local", "pid 1"), 0)
        assert point.state() == "failed"
        (point.path / "result.json").write_text('{"step": 3, ')
        assert point.state() == "failed"  # half-written
        (point.path / "result.json").write_text('{"step": 3}')
        assert point.state() == "done"

    @pytest.mark.parametrize(
        ("codes", "reason", "state"),
        [
            ((0, 1, -signal.SIGSEGV), "", "failed"),
            ((137, -signal.SIGKILL, None), "", "killed"),
            ((143, -signal.SIGTERM), "", "interrupted"),
            ((None,), "preempted", "interrupted"),
            ((None,), "failed", "failed"),
        ],
    )
    def test_the_end_of_an_attempt_says_whether_it_failed(self, codes, reason, state):
        assert {state_after(code, reason) for code in codes} == {state}

    @pytest.mark.parametrize(
        ("said", "state"), [("running", "killed"), ("failed", "failed"), ("interrupted", "interrupted")]
    )
    def test_a_run_whose_end_nobody_saw_is_judged_by_its_own_record(self, point, said, state):
        point.end(point.begin("local", "pid 1"), 1)
        point.begin("local", "pid 2")
        (point.path / "run.json").write_text(json.dumps({"state": said, "step": 7}))
        assert point.state() == state
        assert point.status().step == 7

    def test_a_lock_means_running_until_its_holder_is_gone(self, point):
        with lock(point.path / ".lock"):
            assert point.state() == "running"
        assert point.state() == "waiting"

    def test_the_ledger_survives_a_line_that_was_cut_off(self, point):
        point.end(point.begin("local", "pid 1"), 1)
        with open(point.path / "attempts.jsonl", "a") as file:
            file.write('{"attempt": 2, "star')
        assert point.begin("local", "pid 2") == 2
        assert ["ended" in attempt for attempt in point.attempts()] == [True, False]

    def test_the_last_lines_of_the_log_are_those_of_the_last_attempt_as_a_terminal_shows_them(self, point):
        point.log.write_bytes(b"=== one\nold\n=== two\n 10%\r 20%\r100%\n\nValueError: no\n")
        assert point.last_lines() == ["100%", "ValueError: no"]
        assert point.last_lines(1) == ["ValueError: no"]


class TestLocalEngine:
    def test_it_runs_so_many_at_a_time_and_all_in_the_end(self, tmp_path):
        engine = LocalEngine(2)
        folders = [PointFolder(tmp_path / str(index)) for index in range(5)]
        engine.submit([job(folder, "sh", "-c", "sleep 0.1; echo $WORD; exit 3") for folder in folders])
        assert sorted(engine.running()) == ["0", "1"]
        assert drained(engine) == {str(index): 3 for index in range(5)}
        assert all(folder.last_lines() == ["set"] for folder in folders)

    def test_a_program_that_is_not_there_is_a_failure_of_that_job(self, tmp_path):
        engine = LocalEngine(1)
        folders = [PointFolder(tmp_path / name) for name in "ab"]
        engine.submit([job(folders[0], "no-such-program"), job(folders[1], "true")])
        assert drained(engine) == {"a": 1, "b": 0}

    def test_a_job_is_in_a_session_of_its_own_and_sees_no_scheduler(self, point, monkeypatch):
        monkeypatch.setenv("SLURM_JOB_ID", "7")
        engine = LocalEngine(1)
        engine.submit([job(point, "sh", "-c", "echo $(ps -o sid= -p $$) $$ [$SLURM_JOB_ID]")])
        drained(engine)
        session, pid, slurm = point.last_lines(1)[0].split()
        assert session == pid
        assert int(session) != os.getsid(0)
        assert slurm == "[]"


def test_a_point_that_another_process_runs_takes_one_of_the_places(tmp_path):
    grid = stand_in_grid.write_grid(tmp_path, (1, 2))
    folder, engine = GridFolder(tmp_path / "grid"), LocalEngine(1)
    first, second = grid.points
    for point in grid.points:
        folder.point(point.id).prepare(point, ["true"])
    elsewhere = lock(folder.point(first.id).path / ".lock")
    begun, at_first = [], []

    class Watch(Quiet):
        def began(self, point, where):
            begun.append(point.id)

        def tick(self, progress):
            if not at_first:
                at_first.append([*begun, *engine.running()])
                elsewhere.release()

    made = [job(folder.point(point.id), "true") for point in grid.points]
    Driver(folder, engine, Watch()).run(grid.points, made, {first.id: "running", second.id: "waiting"})
    assert at_first == [[]]
    assert sorted(begun) == sorted([first.id, second.id])


def test_a_point_that_another_process_has_started_first_is_waited_for(tmp_path):
    (point,) = stand_in_grid.write_grid(tmp_path, (1,)).points
    folder = GridFolder(tmp_path / "grid")
    folder.point(point.id).prepare(point, ["false"])
    elsewhere = lock(folder.point(point.id).path / ".lock")
    ticks = []

    class Watch(Quiet):
        def tick(self, progress):
            ticks.append(progress.states[point.id])
            if len(ticks) == 3:
                (folder.point(point.id).path / "result.json").write_text("{}")
                elsewhere.release()

    driver = Driver(folder, LocalEngine(1), Watch())
    states = driver.run([point], [job(folder.point(point.id), "false")], {point.id: "waiting"}).states
    assert states == {point.id: "done"}
    assert len(folder.point(point.id).attempts()) == 1


class TestTimeLimit:
    """Of the engine of this machine, by the clock of its processes."""

    SAVES = "trap 'echo saved; exit 143' TERM; echo ready; while true; do sleep 0.02; done"
    GOES_ON = "trap '' TERM; echo ready; while true; do sleep 0.02; done"

    def test_it_is_kept_for_saving_and_for_a_start_at_its_end(self, monkeypatch):
        monkeypatch.setattr(engines.time, "monotonic", lambda: 1000.0)
        assert TimeLimit.after(8) == TimeLimit(1420.0, 1450.0, 1480.0)
        assert TimeLimit.after(0.2) == TimeLimit(1006.0, 1009.0, 1012.0)
        assert TimeLimit.after(None) == TimeLimit()

    def test_jobs_save_or_are_killed_and_those_for_which_it_is_too_late_stay_in_the_queue(self, tmp_path):
        grid = stand_in_grid.write_grid(tmp_path, (1, 2, 3))
        folder, now = GridFolder(tmp_path / "grid"), time.monotonic()
        limit = TimeLimit(now + 0.5, now + 1.0, now + 1.5)
        made = []
        for point, program in zip(grid.points, (self.SAVES, self.GOES_ON, self.SAVES), strict=True):
            folder.point(point.id).prepare(point, ["sh"])
            made.append(job(folder.point(point.id), "sh", "-c", program))
        driver = Driver(folder, LocalEngine(2, limit), Quiet(), limit)
        states = driver.run(grid.points, made, dict.fromkeys((point.id for point in grid.points), "waiting")).states
        assert time.monotonic() - now >= 1.5
        assert [*states.values()] == ["interrupted", "killed", "waiting"]
        assert driver.progress.out_of_time
        assert [folder.point(point.id).state() for point in grid.points] == ["interrupted", "killed", "waiting"]
        assert not folder.point(grid.points[2].id).log.exists()


@pytest.mark.parametrize(
    ("at_a_time", "seen"), [(5, ["[5] [3]", "[7] [3]"]), (2, ["[5] [1]", "[7] [1]"]), (1, ["[5, 7] []"] * 2)]
)
def test_jobs_at_the_same_time_see_a_device_each_and_how_many_share_it(tmp_path, monkeypatch, at_a_time, seen):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5, 7")
    folders = [PointFolder(tmp_path / name) for name in "ab"]
    engine = LocalEngine(at_a_time)
    program = "sleep 0.1; echo [$CUDA_VISIBLE_DEVICES] [$SLOTBENCH_DEVICE_SHARE]"
    engine.submit([job(folder, "sh", "-c", program) for folder in folders])
    assert drained(engine) == {"a": 0, "b": 0}
    assert sorted(folder.last_lines()[0] for folder in folders) == seen


def test_a_run_that_shares_a_device_takes_its_part_of_the_memory(monkeypatch):
    from slotbench.config import running

    fractions = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=10**10))
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", fractions.append)
    for share in (None, "1", "4", "99", "no number"):
        monkeypatch.delenv("SLOTBENCH_DEVICE_SHARE", raising=False)
        if share is not None:
            monkeypatch.setenv("SLOTBENCH_DEVICE_SHARE", share)
        running._share_device()
    assert fractions == [0.25 - 0.05, 0.0]
