"""The SLURM engine with commands of SLURM that are made up: what it asks for, and what it makes of the answers."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm

from slotbench.grids.engines import slurm as slurm_module
from slotbench.grids.engines.base import EngineError, Job, Outcome
from slotbench.grids.engines.slurm import SUBMISSION_FILE, SlurmEngine
from slotbench.grids.engines.slurm_options import SlurmOptions
from slotbench.grids.engines.slurm_task import END_FILE, SlurmTask
from slotbench.grids.ledger import PointFolder
from slotbench.locks import Lock

pytest.importorskip("submitit")


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    monkeypatch.setattr(slurm_module, "_LOOK_SECONDS", 0.0)
    return FakeSlurm(tmp_path / "slurm", monkeypatch)


@pytest.fixture
def jobs(tmp_path: Path) -> list[Job]:
    folders = [tmp_path / "my grid" / name for name in ("a", "b", "c")]
    return [make_job(folder, "pass") for folder in folders]


def make_job(folder: Path, script: str) -> Job:
    folder.mkdir(parents=True, exist_ok=True)
    return Job(folder.name, folder, [sys.executable, "-c", script], {}, folder / "log.txt")


def engine(jobs: int | None = None, **options: object) -> SlurmEngine:
    return SlurmEngine(SlurmOptions(ask_seconds=0.0, **options), jobs=jobs)  # type: ignore[arg-type]


def token(job: Job) -> str:
    return str(json.loads((job.folder / SUBMISSION_FILE).read_text())["token"])


def row(job: Job, state: str, nodes: str = "node1") -> str:
    name, _, index = token(job).partition("/")
    return f"7_{index}|{name}|{state}|{nodes}|None"


def end(job: Job, code: int | None, final: bool = True, reason: str = "", of: str | None = None) -> None:
    record = {"token": of or token(job), "exit_code": code, "reason": reason, "final": final, "restarts": 0}
    (job.folder / END_FILE).write_text(json.dumps(record))


# what is asked of SLURM


def test_points_are_one_array_with_so_many_at_once(slurm: FakeSlurm, jobs: list[Job]) -> None:
    engine(jobs=2).submit(jobs)
    (script,) = slurm.scripts
    assert "#SBATCH --array=0-2%2\n" in script
    assert "#SBATCH --requeue\n" in script
    assert "--kill-on-bad-exit=0 --wait=300" in script


def test_options_reach_the_script(slurm: FakeSlurm, jobs: list[Job]) -> None:
    pairs = [
        ("partition", "gpu"),
        ("time", "1-02:00:00"),
        ("gpus-per-node", "1"),
        ("cpus_per_task", "4"),
        ("mem_gb", "1.5"),
        ("setup", "module load cuda"),
        ("setup", "export A=1"),
        ("sbatch", "--reservation=lab"),
        ("sbatch", "hold"),
        ("save_seconds", "30"),
    ]
    SlurmEngine(SlurmOptions.from_settings(pairs)).submit(jobs)
    (script,) = slurm.scripts
    flags = [line.removeprefix("#SBATCH --") for line in script.splitlines() if line.startswith("#SBATCH")]
    assert {"partition=gpu", "time=1560", "gpus-per-node=1", "cpus-per-task=4", "mem=1536M"} <= set(flags)
    assert "--cpus-per-task=4" in script.partition("srun ")[2]
    assert {"reservation=lab", "hold", "signal=USR2@30"} <= set(flags)
    assert script.index("module load cuda\nexport A=1\n") < script.index("srun")


@pytest.mark.parametrize(
    ("text", "minutes"),
    [("90", 90), ("1:30", 2), ("1:30:00", 90), ("2-12", 3600), ("1-00:00:30", 1441), ("0-01:30", 90)],
)
def test_time_is_read_as_slurm_writes_it(text: str, minutes: int) -> None:
    assert SlurmOptions.from_settings([("time", text)]).time == minutes


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("partitoin", "gpu", "did you mean --slurm.partition?"),
        ("mem", "8", "did you mean --slurm.mem_gb?"),
        ("reservation", "lab", '--slurm.sbatch "reservation=VALUE"'),
        ("time", "soon", "expected minutes, H:MM:SS or D-HH:MM:SS"),
        ("nodes", "two", "--slurm.nodes two: expected a number"),
        ("nodes", "0", "expected at least 1"),
        ("time", "1", "not less than the limit of 60 seconds"),
    ],
)
def test_wrong_options_are_refused_with_what_to_type(key: str, value: str, said: str) -> None:
    with pytest.raises(EngineError, match=r"--slurm\.") as refusal:
        SlurmOptions.from_settings([(key, value)])
    assert said in str(refusal.value)


def test_without_slurm_it_says_what_to_type_instead(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match=r"no sbatch, srun, squeue.* here.*--engine local"):
        SlurmEngine()


def test_without_submitit_it_says_what_to_install(slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EngineError, match=r'pip install "slotbench\[grid\]"'):
        SlurmEngine()


def test_a_refusal_of_sbatch_is_passed_on_and_leaves_nothing(slurm: FakeSlurm, jobs: list[Job]) -> None:
    slurm.refuses("sbatch: error: invalid partition specified: gpux\nsbatch: error: Batch job submission failed")
    with pytest.raises(EngineError, match=r"sbatch refuses the points: .*invalid partition specified: gpux"):
        engine().submit(jobs)
    assert not any((job.folder / SUBMISSION_FILE).exists() for job in jobs)


# a driver that is started again


def test_a_new_driver_finds_the_jobs_of_the_one_before(slurm: FakeSlurm, jobs: list[Job]) -> None:
    engine().submit(jobs)
    slurm.queue(row(jobs[0], "RUNNING"), row(jobs[1], "PENDING", ""), row(jobs[2], "CANCELLED", ""))
    tokens = [token(job) for job in jobs]
    second = engine()
    second.submit(jobs)
    assert len(slurm.scripts) == 2
    assert "--array" not in slurm.scripts[1]  # one job alone: the cancelled one
    assert [token(job) for job in jobs[:2]] == tokens[:2]
    assert token(jobs[2]) != tokens[2]
    assert second.running() == {"a": "slurm job 7_0 on node1"}
    end(jobs[1], 0)
    assert Outcome("b", 0) in second.poll()


def test_a_new_driver_learns_of_a_failure_that_nobody_saw(slurm: FakeSlurm, jobs: list[Job]) -> None:
    (job, *_) = jobs
    engine().submit([job])
    attempt = PointFolder(job.folder).begin("slurm", "slurm job 7 on node1")
    end(job, 3)
    second = engine()
    second.submit([job])
    assert second.poll() == [Outcome("a", 3)]
    assert len(slurm.scripts) == 1
    # once it is in the ledger, whoever submits the point wants it run again
    PointFolder(job.folder).end(attempt, 3)
    second.submit([job])
    assert second.poll() == []
    assert len(slurm.scripts) == 2


def test_nothing_is_submitted_while_nobody_knows_what_is_in_the_queue(slurm: FakeSlurm, jobs: list[Job]) -> None:
    slurm.is_down()
    with pytest.raises(EngineError, match="squeue does not answer"):
        engine().submit(jobs)
    assert not slurm.scripts


# how jobs end


def test_the_end_that_a_job_leaves_counts_before_what_squeue_says(slurm: FakeSlurm, jobs: list[Job]) -> None:
    running = engine()
    running.submit(jobs)
    slurm.queue(*(row(job, "RUNNING") for job in jobs))
    end(jobs[0], 0)
    end(jobs[1], 3)
    end(jobs[2], 0, of="slotbench-earlier/2")
    assert running.poll() == [Outcome("a", 0), Outcome("b", 3)]
    assert list(running.running()) == ["c"]


def test_a_job_that_was_stopped_has_ended_only_when_squeue_says_so(slurm: FakeSlurm, jobs: list[Job]) -> None:
    running = engine()
    running.submit(jobs[:1])
    end(jobs[0], 143, final=False)
    for state in ("COMPLETING", "PENDING", "RUNNING"):
        slurm.queue(row(jobs[0], state))
        assert running.poll() == []
    assert running.running() == {"a": "slurm job 7_0 on node1"}
    slurm.queue(row(jobs[0], "CANCELLED"))
    assert [*running.poll(), *running.poll()] == [Outcome("a", 143, "cancelled")]


@pytest.mark.parametrize(
    ("state", "reason"),
    [("TIMEOUT", "time limit"), ("NODE_FAIL", "node failed"), ("", "ended without a word")],
)
def test_a_job_that_leaves_no_end_is_given_up_when_squeue_is_sure(
    slurm: FakeSlurm, jobs: list[Job], state: str, reason: str
) -> None:
    running = engine()
    running.submit(jobs[:1])
    slurm.queue(*([row(jobs[0], state)] if state else []))
    assert running.poll() == []
    assert running.poll() == [Outcome("a", None, reason)]
    assert running.poll() == []


def test_what_was_known_stays_while_squeue_does_not_answer(slurm: FakeSlurm, jobs: list[Job]) -> None:
    running = engine()
    running.submit(jobs[:1])
    slurm.queue(row(jobs[0], "RUNNING"))
    running.poll()
    slurm.is_down()
    assert [*running.poll(), *running.poll(), *running.poll()] == []
    assert list(running.running()) == ["a"]


def test_cancelling_takes_back_all_that_have_not_ended(slurm: FakeSlurm, jobs: list[Job]) -> None:
    running = engine()
    running.submit(jobs)
    slurm.queue(row(jobs[0], "RUNNING"), row(jobs[1], "PENDING", ""), row(jobs[2], "PENDING", ""))
    end(jobs[0], 0)
    running.poll()
    running.cancel()
    assert slurm.cancelled == ["7_1", "7_2"]
    assert [outcome.id for outcome in running.poll()] == ["b", "c"]


# on the node

SAVES = """
import signal, sys, time
def stop(*_): print("saved", flush=True); sys.exit(143)
signal.signal(signal.SIGTERM, stop)
print("began", flush=True)
time.sleep(60)
"""


@pytest.fixture
def on_node(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("slotbench.grids.engines.slurm_task._SIGNAL_SECONDS", 0.0)
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "3")
    monkeypatch.setenv("SLURM_NTASKS", "1")
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def when_begun(job: Job, then: object) -> None:
    def wait() -> None:
        until = time.monotonic() + 30
        while "began\n" not in (job.log.read_text() if job.log.exists() else "") and time.monotonic() < until:
            time.sleep(0.02)
        assert callable(then)
        then()

    threading.Thread(target=wait).start()


def read_end(job: Job) -> dict[str, object]:
    return dict(json.loads((job.folder / END_FILE).read_text()))


@pytest.mark.usefixtures("on_node")
def test_a_command_of_one_process_does_not_see_slurm_and_has_its_cores(tmp_path: Path) -> None:
    job = make_job(tmp_path / "a", "import os; print(os.environ['OMP_NUM_THREADS'], 'SLURM_NTASKS' in os.environ)")
    SlurmTask(job, "name/0", num_tasks=1, save_seconds=20)()
    assert job.log.read_text().splitlines()[-1] == "3 False"
    SlurmTask(job, "name/1", num_tasks=2, save_seconds=20)()
    assert job.log.read_text().splitlines()[-1] == "3 True"
    assert read_end(job) == {"token": "name/1", "exit_code": 0, "reason": "", "final": True, "restarts": 0}


@pytest.mark.usefixtures("on_node")
def test_a_command_that_fails_fails_the_job_and_says_with_which_code(tmp_path: Path) -> None:
    job = make_job(tmp_path / "a", "import sys; sys.exit(5)")
    with pytest.raises(RuntimeError, match=r"ended with 5; its output is in .*log\.txt"):
        SlurmTask(job, "name/0", 1, 20)()
    assert read_end(job)["exit_code"] == 5
    assert read_end(job)["final"] is True


@pytest.mark.usefixtures("on_node")
def test_cancelled_it_lets_the_command_save(tmp_path: Path) -> None:
    job = make_job(tmp_path / "a", SAVES)
    when_begun(job, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(RuntimeError, match="ended with 143"):
        SlurmTask(job, "name/0", 1, 20)()
    assert job.log.read_text().splitlines()[-2:] == ["began", "saved"]
    assert read_end(job)["exit_code"] == 143
    assert read_end(job)["final"] is False


@pytest.mark.usefixtures("on_node")
def test_told_to_make_room_it_lets_the_command_save_and_is_submitted_again(tmp_path: Path) -> None:
    job = make_job(tmp_path / "a", SAVES)
    task = SlurmTask(job, "name/0", 1, 20)
    again = []

    def requeue(*_: object) -> None:  # submitit's handler
        again.append(task.checkpoint())
        raise SystemExit(-1)

    before = signal.signal(signal.SIGUSR2, requeue)
    try:
        when_begun(job, lambda: os.kill(os.getpid(), signal.SIGUSR2))
        with pytest.raises(SystemExit):
            task()
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert job.log.read_text().splitlines()[-1] == "saved"
    assert not (job.folder / END_FILE).exists()
    (delayed,) = again
    assert delayed.function.job == job
    assert delayed.function.token == "name/0"


@pytest.mark.usefixtures("on_node")
def test_a_command_that_has_just_ended_is_not_submitted_again(tmp_path: Path) -> None:
    task = SlurmTask(make_job(tmp_path / "a", "pass"), "name/0", 1, 20)
    task()
    assert task.checkpoint() is None


@pytest.mark.usefixtures("on_node")
def test_a_point_that_another_process_runs_is_left_to_it(tmp_path: Path) -> None:
    job = make_job(tmp_path / "a", "print('ran')")
    with Lock(PointFolder(job.folder).lock), pytest.raises(Exception, match="another process runs it"):
        SlurmTask(job, "name/0", 1, 20)()
    assert not job.log.exists()
    assert read_end(job)["reason"] == "another process runs it"
