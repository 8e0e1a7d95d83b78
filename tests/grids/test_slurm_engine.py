"""The SLURM engine with commands of SLURM that are made up: what it asks for, and what it makes of the answers."""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm

from slotbench.grids.engines import EngineError, Job, Outcome
from slotbench.grids.engines.slurm import SUBMISSION_FILE, SlurmEngine, SlurmTask, slurm_options

pytest.importorskip("submitit")


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    return FakeSlurm(tmp_path / "slurm", monkeypatch)


@pytest.fixture
def jobs(tmp_path: Path) -> list[Job]:
    return [make_job(tmp_path / "my grid" / name, "pass") for name in ("a", "b", "c")]


def make_job(folder: Path, script: str) -> Job:
    folder.mkdir(parents=True, exist_ok=True)
    return Job(folder.name, folder, [sys.executable, "-c", script])


def engine(jobs: int | None = None, *options: tuple[str, str]) -> SlurmEngine:
    return SlurmEngine(slurm_options([("ask_seconds", "0"), *options]), jobs)


def number(job: Job) -> str:
    return str(json.loads((job.folder / SUBMISSION_FILE).read_text())["job"])


def row(job: Job, state: str, nodes: str = "node1") -> str:
    return f"{number(job)}|{state}|{nodes}"


def end(job: Job, code: int) -> None:
    """What submitit leaves once the job's function has returned."""
    scripts = job.folder.parent / ".slurm"
    (scripts / f"{number(job)}_0_result.pkl").write_bytes(pickle.dumps(("success", code)))


def test_points_are_one_array_with_what_was_asked_for(slurm: FakeSlurm, jobs: list[Job]) -> None:
    pairs = [("partition", "gpu"), ("time", "1-02:00:00"), ("gpus-per-node", "1"), ("cpus_per_task", "4")]
    pairs += [("mem_gb", "1.5"), ("setup", "module load cuda"), ("sbatch", "--reservation=lab"), ("sbatch", "hold")]
    made = engine(2, *pairs, ("save_seconds", "30"))
    made.submit(jobs)
    (script,) = slurm.scripts
    flags = {line.removeprefix("#SBATCH --") for line in script.splitlines() if line.startswith("#SBATCH")}
    assert {"array=0-2%2", "requeue", "partition=gpu", "time=1-02:00:00", "gpus-per-node=1", "mem=1536M"} <= flags
    assert {"cpus-per-task=4", "reservation=lab", "hold", "signal=USR2@30"} <= flags
    assert script.index("module load cuda\n") < script.index("srun")
    assert "--kill-on-bad-exit=0 --wait=300 --cpus-per-task=4" in script
    assert made.threads == 4


@pytest.mark.parametrize(
    ("key", "said"), [("partitoin", "did you mean --slurm.partition?"), ("reservation", '--slurm.sbatch "reservation=')]
)
def test_an_unknown_option_says_what_to_type(key: str, said: str) -> None:
    with pytest.raises(EngineError) as refusal:
        slurm_options([(key, "lab")])
    assert said in str(refusal.value)


def test_a_refusal_of_sbatch_is_passed_on_and_leaves_nothing(slurm: FakeSlurm, jobs: list[Job]) -> None:
    slurm.refuses("sbatch: error: invalid partition specified: gpux\nsbatch: error: Batch job submission failed")
    with pytest.raises(EngineError, match=r"sbatch refuses the points: .*invalid partition specified: gpux"):
        engine().submit(jobs)
    assert not any((job.folder / SUBMISSION_FILE).exists() for job in jobs)


def test_a_new_driver_finds_the_jobs_of_the_one_before(slurm: FakeSlurm, jobs: list[Job]) -> None:
    engine().submit(jobs)
    slurm.queue(row(jobs[0], "RUNNING"), row(jobs[1], "PENDING", ""), row(jobs[2], "CANCELLED", ""))
    second = engine()
    second.submit(jobs)
    assert len(slurm.scripts) == 2
    assert "--array" not in slurm.scripts[1]  # one job alone: the cancelled one
    assert second.running() == {"a": "slurm job 7_0 on node1"}
    end(jobs[1], 0)
    assert Outcome("b", 0) in second.poll()


def test_nothing_is_submitted_while_nobody_knows_what_is_in_the_queue(slurm: FakeSlurm, jobs: list[Job]) -> None:
    slurm.is_down()
    with pytest.raises(EngineError, match="squeue does not answer"):
        engine().submit(jobs)
    assert not slurm.scripts


def test_jobs_end_by_the_file_they_leave_or_when_squeue_is_sure(slurm: FakeSlurm, jobs: list[Job]) -> None:
    running = engine()
    running.submit(jobs)
    slurm.queue(row(jobs[0], "RUNNING"), row(jobs[1], "RUNNING"), row(jobs[2], "NODE_FAIL"))
    end(jobs[0], 3)
    assert running.poll() == [Outcome("a", 3)]
    assert list(running.running()) == ["b"]
    slurm.is_down()  # what was known stays
    assert [*running.poll(), *running.poll()] == []
    slurm.is_down(False)
    assert running.poll() == [Outcome("c", None, "node fail")]
    slurm.queue()
    assert [*running.poll(), *running.poll()] == [Outcome("b", None, "ended without a word")]


def test_cancelling_takes_back_all_that_have_not_ended(slurm: FakeSlurm, jobs: list[Job]) -> None:
    running = engine()
    running.submit(jobs)
    slurm.queue(row(jobs[1], "RUNNING"), row(jobs[2], "PENDING", ""))
    end(jobs[0], 0)
    running.poll()
    running.cancel()
    assert slurm.cancelled == ["7_1", "7_2"]
    assert [outcome.id for outcome in running.poll()] == ["b", "c"]


SAVES = """
import signal, sys, time
def stop(*_): print("saved", flush=True); sys.exit(143)
signal.signal(signal.SIGTERM, stop)
print("began", flush=True)
time.sleep(60)
"""


@pytest.fixture
def on_node(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("slotbench.grids.engines.slurm._SIGNAL_SECONDS", 0.0)
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "3")
    monkeypatch.setenv("SLURM_NTASKS", "1")
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR2)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def when_begun(job: Job, then: Callable[[], None]) -> None:
    def wait() -> None:
        until = time.monotonic() + 30
        while "began\n" not in (job.log.read_text() if job.log.exists() else "") and time.monotonic() < until:
            time.sleep(0.02)
        then()

    threading.Thread(target=wait).start()


@pytest.mark.usefixtures("on_node")
def test_a_command_of_one_process_does_not_see_slurm_and_has_its_cores(tmp_path: Path) -> None:
    job = make_job(tmp_path / "a", "import os; print(os.environ['OMP_NUM_THREADS'], 'SLURM_NTASKS' in os.environ)")
    for num_tasks, said in ((1, "3 False"), (2, "3 True")):
        assert SlurmTask(job, num_tasks, save_seconds=20)() == 0
        assert job.log.read_text().splitlines()[-1] == said


@pytest.mark.usefixtures("on_node")
def test_cancelled_it_lets_the_command_save(tmp_path: Path) -> None:
    job = make_job(tmp_path / "a", SAVES)
    when_begun(job, lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert SlurmTask(job, 1, 20)() == 143
    assert job.log.read_text().splitlines()[-2:] == ["began", "saved"]


@pytest.mark.usefixtures("on_node")
def test_told_to_make_room_it_lets_the_command_save_and_is_submitted_again(tmp_path: Path) -> None:
    job = make_job(tmp_path / "a", SAVES)
    task, again = SlurmTask(job, 1, 60), []

    def requeue(*_: object) -> None:  # submitit's handler
        again.append(task.checkpoint())
        raise SystemExit(-1)

    signal.signal(signal.SIGUSR2, requeue)
    when_begun(job, lambda: os.kill(os.getpid(), signal.SIGUSR2))
    with pytest.raises(SystemExit):
        task()
    assert job.log.read_text().splitlines()[-1] == "saved"
    (delayed,) = again
    assert delayed.function.job == job
