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

from slotbench.grids.driver import Driver, Listener
from slotbench.grids.engines import EngineOptions, base, make_engine
from slotbench.grids.engines.base import EngineError, Job, TimeLimit
from slotbench.grids.engines.local import LocalEngine
from slotbench.grids.grid_folder import GridFolder
from slotbench.grids.jobs import make_job
from slotbench.grids.ledger import PointFolder, state_after
from slotbench.grids.progress import Remaining, remaining_seconds
from slotbench.locks import Lock, is_locked


@pytest.fixture
def point(tmp_path: Path) -> PointFolder:
    return PointFolder(tmp_path / "p")


def job(folder: PointFolder, *command: str) -> Job:
    folder.path.mkdir(parents=True, exist_ok=True)
    return Job(folder.id, folder.path, command, {"WORD": "set"}, folder.log)


def drained(engine: LocalEngine) -> dict[str, int | None]:
    outcomes = {}

    def is_over() -> bool:
        outcomes.update({outcome.id: outcome.exit_code for outcome in engine.poll()})
        return not engine.running() and not engine._queue

    stand_in_grid.wait_until(is_over)
    return outcomes


class TestPointFolder:
    def test_a_point_that_nobody_has_touched_is_waiting(self, point):
        assert point.state() == "waiting"
        assert point.status().step is None

    def test_only_a_result_makes_it_done(self, point):
        point.path.mkdir()
        point.end(point.begin("local", "pid 1"), 0)
        assert point.state() == "failed"
        (point.path / "result.json").write_text('{"step": 3, ')
        assert point.state() == "failed"  # half-written
        (point.path / "result.json").write_text('{"step": 3}')
        assert point.state() == "done"

    @pytest.mark.parametrize(
        ("code", "reason", "state"),
        [
            (1, "", "failed"),
            (2, "", "failed"),
            (0, "", "failed"),
            (-signal.SIGSEGV, "", "failed"),
            (-signal.SIGKILL, "", "killed"),
            (137, "", "killed"),
            (143, "", "interrupted"),
            (130, "", "interrupted"),
            (-signal.SIGTERM, "", "interrupted"),
            (None, "", "killed"),
            (None, "preempted", "interrupted"),
        ],
    )
    def test_the_end_of_an_attempt_says_whether_it_failed(self, code, reason, state):
        assert state_after(code, reason) == state

    @pytest.mark.parametrize(
        ("said", "state"), [("running", "killed"), ("failed", "failed"), ("interrupted", "interrupted")]
    )
    def test_a_run_whose_end_nobody_saw_is_judged_by_its_own_record(self, point, said, state):
        point.path.mkdir()
        point.begin("local", "pid 1")
        (point.path / "run.json").write_text(json.dumps({"state": said, "step": 7}))
        assert point.state() == state
        assert point.status().step == 7

    def test_a_lock_means_running_until_its_holder_is_gone(self, point):
        point.path.mkdir()
        with Lock(point.lock):
            assert point.state() == "running"
            assert point.state(over=True) == "waiting"
        assert point.state() == "waiting"

    def test_the_ledger_survives_a_line_that_was_cut_off(self, point):
        point.path.mkdir()
        point.end(point.begin("local", "pid 1"), 1)
        with open(point.path / "attempts.jsonl", "a") as file:
            file.write('{"attempt": 2, "star')
        assert point.begin("local", "pid 2") == 2
        assert [attempt.ended is None for attempt in point.attempts()] == [False, True]

    def test_an_attempt_whose_driver_is_gone_is_settled_once(self, point):
        point.path.mkdir()
        point.begin("local", "pid 1")
        point.settle()
        point.settle()
        (attempt,) = point.attempts()
        assert (attempt.exit_code, attempt.reason) == (None, "ended after its driver was gone")
        assert len((point.path / "attempts.jsonl").read_text().splitlines()) == 2

    def test_the_headline_is_the_first_metric_that_the_grid_names_and_the_run_has(self, point):
        point.path.mkdir()
        record = {"metrics": {"a": 1, "b": "NaN", "c": 3}, "headlines": [{"metric": "c"}]}
        (point.path / "run.json").write_text(json.dumps(record))
        assert point.status(["x", "a"]).headline == ("a", 1.0)
        assert point.status(["x"]).headline == ("c", 3.0)
        name, value = point.status(["b"]).headline
        assert name == "b"
        assert value != value

    def test_the_last_lines_of_the_log_are_those_of_the_last_attempt_as_a_terminal_shows_them(self, point):
        point.path.mkdir()
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

    def test_a_job_holds_the_lock_of_its_folder_as_long_as_it_runs(self, point):
        engine = LocalEngine(1)
        engine.submit([job(point, "sleep", "60")])
        assert point.is_running()
        engine.kill()
        assert not point.is_running()
        assert drained(engine) == {"p": -signal.SIGKILL}

    def test_a_job_that_another_process_runs_is_not_started(self, point):
        other = LocalEngine(1)
        other.submit([job(point, "sleep", "60")])
        engine = LocalEngine(1)
        engine.submit([job(point, "touch", str(point.path / "twice"))])
        assert drained(engine) == {"p": None}
        assert not (point.path / "twice").exists()
        other.kill()

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

    @pytest.mark.parametrize(("at_a_time", "seen"), [(2, ["5", "7"]), (1, ["5, 7", "5, 7"])])
    def test_several_jobs_at_a_time_see_a_card_each(self, tmp_path, monkeypatch, at_a_time, seen):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5, 7")
        folders = [PointFolder(tmp_path / name) for name in "ab"]
        engine = LocalEngine(at_a_time)
        engine.submit([job(folder, "sh", "-c", "sleep 0.1; echo $CUDA_VISIBLE_DEVICES") for folder in folders])
        assert drained(engine) == {"a": 0, "b": 0}
        assert sorted(folder.last_lines()[0] for folder in folders) == seen

    def test_cancelled_jobs_end_as_they_like_and_queued_ones_never_begin(self, tmp_path):
        engine = LocalEngine(1)
        one, two = PointFolder(tmp_path / "1"), PointFolder(tmp_path / "2")
        program = "trap 'echo saved; exit 143' TERM; echo ready; while true; do sleep 0.02; done"
        engine.submit([job(one, "sh", "-c", program), job(two, "true")])
        stand_in_grid.wait_until(lambda: one.last_lines() == ["ready"])
        engine.cancel()
        assert drained(engine) == {"1": 143}
        assert one.last_lines(1) == ["saved"]
        assert not two.log.exists()


def test_a_lock_that_is_asked_about_is_neither_taken_nor_made(tmp_path):
    assert not is_locked(tmp_path / "lock")
    assert not (tmp_path / "lock").exists()


def test_a_point_that_another_process_runs_takes_one_of_the_places(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    grid = stand_in_grid.write_grid(tmp_path, (1, 2))
    folder, engine = GridFolder(tmp_path / "grid"), LocalEngine(1)
    first, second = grid.points
    for point in grid.points:
        folder.point(point.id).prepare(point, ["true"])
    elsewhere = Lock(folder.point(first.id).lock)
    elsewhere.acquire()
    begun, at_first = [], []

    class Watch(Listener):
        def began(self, point, where):
            begun.append(point.id)

        def ended(self, point, state, outcome):
            pass

        def tick(self, progress):
            if not at_first:
                at_first.append([*begun, *engine.running()])
                elsewhere.release()

    made = [make_job(point, folder, ["true"], 1) for point in grid.points]
    Driver(folder, engine, "local", Watch()).run(grid.points, made, {first.id: "running", second.id: "waiting"})
    assert at_first == [[]]
    assert sorted(begun) == sorted([first.id, second.id])


class Quiet(Listener):
    def began(self, point, where): ...
    def ended(self, point, state, outcome): ...
    def tick(self, progress): ...


def test_a_resumed_point_counts_with_the_time_of_all_its_attempts(tmp_path):
    grid = stand_in_grid.write_grid(tmp_path, widths=[1])
    (point,) = grid.points
    folder = GridFolder(tmp_path / "grid")
    folder.point(point.id).prepare(point, ["sh"])
    result = folder.point(point.id).path / "result.json"
    write = f'echo \'{{"step": 3, "seconds": 900.0}}\' > "{result}"'
    driver = Driver(folder, LocalEngine(1), "local", Quiet())
    driver.run([point], [make_job(point, folder, ["sh", "-c", write], 1)], {point.id: "interrupted"})
    assert driver.progress.durations == [900.0]


def test_a_grid_is_run_by_one_driver_at_a_time(tmp_path):
    from slotbench.errors import UserError

    folder = GridFolder(tmp_path / "grid")
    with (
        folder.driven(),
        pytest.raises(UserError, match=rf"is being run already, by process {os.getpid()}"),
        folder.driven(),
    ):
        pass
    with folder.driven():
        assert (tmp_path / "grid").is_dir()


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("cloud", EngineOptions(), "no engine cloud; there are local, slurm, ray"),
        ("local", EngineOptions(jobs=0), "--jobs is 0"),
        (
            "slurm",
            EngineOptions(limit=TimeLimit()),
            r"--minutes is for --engine local; the engine is slurm; --slurm\.time",
        ),
        ("ray", EngineOptions(limit=TimeLimit()), "--minutes is for --engine local; the engine is ray$"),
        ("local", EngineOptions(slurm=[("partition", "gpu")]), "--slurm.partition is for --engine slurm"),
    ],
)
def test_an_engine_that_cannot_be_is_refused(name, options, words):
    with pytest.raises(EngineError, match=words):
        make_engine(name, options)


class TestEstimate:
    def test_nothing_is_said_as_long_as_nothing_is_known(self):
        assert remaining_seconds([], [Remaining(5.0, None, None, None)], 3, 1) is None

    def test_waiting_points_take_as_long_as_finished_ones_did(self):
        assert remaining_seconds([10.0, 30.0], [], 4, 2) == pytest.approx(40.0)

    def test_a_running_point_goes_on_at_its_own_speed(self):
        assert remaining_seconds([], [Remaining(50.0, 25, 100, 2.0)], 0, 1) == pytest.approx(150.0)

    def test_the_first_points_say_how_long_the_others_will_take(self):
        assert remaining_seconds([], [Remaining(50.0, 25, 100, 2.0)], 1, 1) == pytest.approx(150 + 200)

    def test_a_resumed_point_says_how_long_a_whole_one_takes(self):
        resumed = Remaining(10.0, 95, 100, 2.0)
        assert remaining_seconds([], [resumed], 1, 1) == pytest.approx(10 + 200)

    def test_the_last_point_ends_no_sooner_than_it_can(self):
        slow = Remaining(0.0, 10, 100, 1.0)
        assert remaining_seconds([1.0], [slow], 0, 8) == pytest.approx(90.0)

    def test_the_first_steps_say_nothing_about_the_speed(self):
        assert remaining_seconds([], [Remaining(50.0, 1, 100, 40.0)], 1, 1) is None
        assert remaining_seconds([], [Remaining(4.0, 1, 2, 2.0)], 0, 1) == pytest.approx(2.0)


class TestTimeLimit:
    """Of the engine of this machine, by the clock of its processes."""

    SAVES = "trap 'echo saved; exit 143' TERM; echo ready; while true; do sleep 0.02; done"
    GOES_ON = "trap '' TERM; echo ready; while true; do sleep 0.02; done"

    def test_it_is_kept_for_saving_and_for_a_start_at_its_end(self, monkeypatch):
        monkeypatch.setattr(base.time, "monotonic", lambda: 1000.0)
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
            made.append(make_job(point, folder, ["sh", "-c", program], 1))
        driver = Driver(folder, LocalEngine(2, limit), "local", Quiet(), limit=limit)
        states = driver.run(grid.points, made, dict.fromkeys((point.id for point in grid.points), "waiting")).states
        assert time.monotonic() - now >= 1.5
        assert [*states.values()] == ["interrupted", "killed", "waiting"]
        assert driver.progress.out_of_time
        assert [folder.point(point.id).state() for point in grid.points] == ["interrupted", "killed", "waiting"]
        assert not folder.point(grid.points[2].id).log.exists()

    def test_a_place_that_is_free_too_late_stays_free_and_nothing_is_waited_for(self, tmp_path):
        grid = stand_in_grid.write_grid(tmp_path, (1, 2))
        folder, now = GridFolder(tmp_path / "grid"), time.monotonic()
        limit = TimeLimit(now + 0.3, now + 60, now + 90)
        made = []
        for point in grid.points:
            folder.point(point.id).prepare(point, ["sh"])
            write = f"sleep 0.5; echo '{{}}' > \"{folder.point(point.id).path / 'result.json'}\""
            made.append(make_job(point, folder, ["sh", "-c", write], 1))
        driver = Driver(folder, LocalEngine(1, limit), "local", Quiet(), limit=limit)
        states = driver.run(grid.points, made, dict.fromkeys((point.id for point in grid.points), "waiting")).states
        assert [*states.values()] == ["done", "waiting"]
        assert driver.progress.out_of_time
        assert time.monotonic() - now < 20


@pytest.mark.parametrize(
    ("at_a_time", "devices", "share"), [(5, "5,7", "3"), (2, "5,7", "1"), (1, "5", ""), (2, "", "")]
)
def test_jobs_on_one_device_are_told_with_how_many_they_share_it(point, monkeypatch, at_a_time, devices, share):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", devices)
    engine = LocalEngine(at_a_time)
    engine.submit([job(point, "sh", "-c", "echo [$SLOTBENCH_DEVICE_SHARE]")])
    drained(engine)
    assert point.last_lines() == [f"[{share}]"]


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
