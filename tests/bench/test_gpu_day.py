"""The stages of `slotbench bench gpu`: resumed, stopped by their time, failed; the machine; the tests marked gpu."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from slotbench.bench.gpu import day as driver
from slotbench.bench.gpu import plan
from slotbench.bench.gpu.day import marked_files
from slotbench.bench.gpu.plan import (
    DONE,
    FAILED,
    RUNNING,
    STAGES,
    Items,
    OutOfTimeError,
    Settings,
    limit_of,
    problem_of,
    run_command,
)
from slotbench.bench.gpu.report import outcomes
from slotbench.bench.gpu.training import CASES
from slotbench.bench.harness import OUT_OF_TIME
from slotbench.cli import run
from slotbench.errors import UserError
from slotbench.ops.dispatch import KERNELS

NAMES = [stage.name for stage in STAGES]
Stage = Callable[[Settings, Items], object]
FACTS = {"device": "Loom 9000", "torch": "2.99"}


@pytest.fixture
def day(tmp_path, monkeypatch) -> Callable[..., tuple[list[str], str]]:
    """Runs stages that put a piece of work on disk, and then do what a test asks of them."""
    monkeypatch.setattr(driver, "facts_of", lambda kind: FACTS)
    monkeypatch.setattr(driver, "_LEAST", 0.0)
    monkeypatch.setattr(plan, "_PATIENCE", 3.0)

    def run(names=NAMES, *, minutes: float = 40, restart: bool = False, **behaviours: Stage):
        def function(stage):
            def stand_in(settings: Settings, items: Items) -> str:
                items[f"piece {len(items)}"] = {"limit": items.left()}
                behaviours.get(stage.name, lambda settings, items: None)(settings, items)
                return f"{len(items)} pieces"

            return stand_in

        monkeypatch.setattr(driver, "_function", function)
        said: list[str] = []
        settings = Settings(tmp_path, "cuda", minutes=minutes, command="slotbench bench gpu --out here")
        left = driver.run_day(settings, names, said.append, restart=restart)
        return left, "".join(said)

    return run


def state(stage: str, out: Path) -> str:
    return Items(out, stage).result["state"]


def test_every_stage_is_done_once_and_has_a_line(day, tmp_path):
    left, said = day()
    assert left == []
    assert [line.split()[0] for line in said.splitlines()] == NAMES
    assert [state(name, tmp_path) for name in NAMES] == [DONE] * len(NAMES)
    kept = Items(tmp_path, "kernels").result
    assert kept["command"] == "slotbench bench gpu --out here"
    assert kept["commit"]
    assert kept["date"].startswith("20")
    before = (tmp_path / "kernels.json").read_bytes()
    left, said = day()
    assert left == []
    assert said.count("done before: 1 pieces") == len(NAMES)
    assert (tmp_path / "kernels.json").read_bytes() == before


def test_a_page_that_cannot_be_written_does_not_end_the_run(day, tmp_path, monkeypatch):
    def broken(settings):
        raise KeyError("commit")

    monkeypatch.setattr(driver, "write_report", broken)
    left, said = day(["kernels", "cores"])
    assert left == []
    assert "report.md cannot be written: KeyError: 'commit'" in said


def test_a_failure_is_a_result_and_the_next_stage_runs(day, tmp_path):
    def fails(settings, items):
        items["first"] = {"problem": "error", "message": "no"}
        raise ValueError("one\ntwo")

    left, said = day(["kernels", "cores", "training"], cores=fails)
    assert left == ["cores"]
    assert state("cores", tmp_path) == FAILED
    assert Items(tmp_path, "cores").summary("run") == "2 runs, 1 failed"
    assert "failed in 0 s: ValueError: one\n" in said
    assert "two" in (tmp_path / "cores.log").read_text()
    assert state("training", tmp_path) == DONE
    assert "cores      " in said
    day(["cores"])
    assert state("cores", tmp_path) == FAILED, "a failure is not tried again unless asked for"
    assert day(["cores"], restart=True)[0] == []


CHILD = """
import subprocess, sys, time
code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
child.stdout.readline()
open(sys.argv[1], "w").write(str(child.pid))
time.sleep(60)
"""


def test_a_stage_is_stopped_at_its_limit_with_all_that_it_has_started(day, tmp_path):
    def spawns(settings, items):
        command = [sys.executable, "-c", CHILD, str(tmp_path / "pid")]
        assert run_command(command, items.left(), items.log) is None
        raise OutOfTimeError("3 runs, 2 not begun")

    began = time.monotonic()
    left, _ = day(["kernels", "cores"], minutes=0.6, kernels=spawns)  # 5.4 s each
    assert time.monotonic() - began < 40
    assert left == ["kernels"]
    assert state("kernels", tmp_path) == OUT_OF_TIME
    assert state("cores", tmp_path) == DONE
    assert Items(tmp_path, "kernels").result["message"] == "3 runs, 2 not begun"
    assert not is_running(int((tmp_path / "pid").read_text()))
    assert day(["kernels"])[0] == []
    assert len(Items(tmp_path, "kernels")) == 2, "it resumes with what it had"


def is_running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" not in status.read_text()


def test_a_signal_ends_the_run_and_the_same_command_resumes(day, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        day(["cores", "training"], cores=lambda settings, items: os.kill(os.getpid(), signal.SIGTERM))
    assert state("cores", tmp_path) == ""
    assert len(Items(tmp_path, "cores")) == 1
    assert state("training", tmp_path) == ""
    assert day(["cores", "training"])[0] == []
    assert (len(Items(tmp_path, "cores")), len(Items(tmp_path, "training"))) == (2, 1)


def test_restart_drops_the_stages_that_are_named_and_no_others(day, tmp_path):
    day()
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "old").touch()
    others = {name: (tmp_path / f"{name}.json").read_bytes() for name in NAMES if name != "training"}
    assert day(["training"], restart=True)[0] == []
    assert not (tmp_path / "training").exists()
    assert {name: (tmp_path / f"{name}.json").read_bytes() for name in others} == others


def test_a_stage_that_the_time_does_not_reach_is_not_begun(day, tmp_path, monkeypatch):
    monkeypatch.setattr(driver, "_LEAST", 20.0)
    left, said = day(["experiment"], minutes=0.2)
    assert left == ["experiment"]
    assert "not begun" in said
    assert state("experiment", tmp_path) == ""


def test_limits_are_shares_of_the_time_and_the_last_stage_has_the_rest():
    shares = [limit_of(stage, 40, 60 * 40) for stage in STAGES[:-1]]
    assert shares == [60 * stage.minutes for stage in STAGES[:-1]]
    assert sum(shares) <= 60 * 30, "the experiment has ten minutes at least"
    assert [limit_of(stage, 20, 60 * 40) for stage in STAGES[:-1]] == [share / 2 for share in shares]
    assert limit_of(STAGES[-1], 40, 777) == 777
    assert limit_of(STAGES[0], 40, 5) == 5


def test_results_of_another_device_are_refused(day, tmp_path, monkeypatch):
    day(["machine"])
    monkeypatch.setattr(driver, "facts_of", lambda kind: {**FACTS, "device": "Loom 9001"})
    with pytest.raises(UserError, match="holds results of device Loom 9000 in place of Loom 9001"):
        day(["machine"])
    assert day(restart=True)[0] == []


def test_without_a_gpu_there_is_one_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert run(["bench", "gpu"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "finds no CUDA device here: run this where there is one, or try every stage with --device cpu" in said
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--stages", "kernel"], "no stage is called kernel; did you mean kernels?"),
        (["--device", "cpu"], "add --quick for tiny ones"),
        (["--minutes", "0"], "0 is too small"),
        (["--device", "tpu"], "invalid choice: 'tpu'"),
    ],
)
def test_mistakes_in_the_command_are_explained(arguments, message, capsys):
    assert run(["bench", "gpu", *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_the_driver_leaves_the_device_alone():
    code = "import sys, slotbench.bench.gpu.day; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", code], env=dict(os.environ)).returncode == 0


# --- the machine

TORCH = """
from types import SimpleNamespace
__version__ = "2.99+cu1"
version = SimpleNamespace(cuda="13.0")
backends = SimpleNamespace(
    cuda=SimpleNamespace(matmul=SimpleNamespace(allow_tf32=False)), cudnn=SimpleNamespace(allow_tf32=True)
)
card = SimpleNamespace(major=9, minor=0, total_memory=80 * 2**30, multi_processor_count=132)
cuda = SimpleNamespace(
    is_available=lambda: AVAILABLE,
    get_device_name=lambda index=0: "Loom 9000",
    get_device_properties=lambda index: card,
)
get_num_threads = lambda: 1
"""


@pytest.fixture
def a_torch(tmp_path, monkeypatch):
    """Puts a module in the place of torch, for processes that are started."""

    def put(text: str) -> None:
        (tmp_path / "torch.py").write_text(text)

    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return put


def test_the_device_is_asked_for_in_a_process_of_its_own(a_torch):
    a_torch(TORCH.replace("AVAILABLE", "True"))
    facts = driver.facts_of("cuda")
    assert (facts["device"], facts["torch"], facts["capability"]) == ("Loom 9000", "2.99+cu1", "9.0")
    assert (facts["memory, GiB"], facts["multiprocessors"], facts["TF32 in convolutions"]) == (80.0, 132, True)
    assert facts["processor"] == driver.processor()
    assert facts["environment"]["device"] == "Loom 9000"
    a_torch(TORCH.replace("AVAILABLE", "False"))
    assert driver.facts_of("cuda") == {"error": "torch 2.99+cu1 finds no CUDA device here"}
    assert driver.facts_of("cpu")["device"] == driver.processor()
    a_torch("raise OSError('libcudart.so not found\\nand so on')")
    assert driver.facts_of("cuda") == {"error": "torch does not start here: libcudart.so not found"}


# --- the tests marked gpu

MARKED = """
import os
from pathlib import Path
import pytest

pytestmark = pytest.mark.gpu
Path("begun").write_text(str(int(Path("begun").read_text()) + 1) if Path("begun").exists() else "1")

def test_fine():
    with open("ran", "a") as log: log.write("fine ")

def test_off():
    with open("ran", "a") as log: log.write("off ")
    assert 1 == 2, "off by one"

@pytest.mark.skip(reason="not today")
def test_left_out(): ...

def test_crashes():
    with open("ran", "a") as log: log.write("crashes ")
    if Path("crash").exists(): os._exit(11)
"""


def test_outcomes_are_kept_one_by_one_and_a_second_run_leaves_them_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").mkdir()
    (tmp_path / "crash").touch()
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = gpu: needs one\naddopts = --not-an-option\n")
    (tmp_path / "tests" / "test_this.py").write_text(MARKED)
    (tmp_path / "tests" / "test_others.py").write_text("import a_package_that_is_not_there")
    (tmp_path / "tests" / "test_broken.py").write_text("import no_such_thing  # mark.gpu")
    slow = "import pytest\n@pytest.mark.gpu\ndef test_tunes():\n    with open('ran', 'a') as log: log.write('slow ')"
    (tmp_path / "tests" / "test_ssm_blocks.py").write_text(slow)
    settings, items = Settings(tmp_path), Items(tmp_path, "gpu_tests", 60.0)
    with pytest.raises(RuntimeError, match="pytest ended with code 11"):
        driver.gpu_tests(settings, items)
    assert items[RUNNING] == {"test": "tests/test_this.py::test_crashes"}
    assert outcomes(items) == "1 passed, 1 failed, 1 skipped"
    (tmp_path / "crash").unlink()
    assert driver.gpu_tests(settings, items) == "3 passed, 2 failed, 1 skipped"
    assert RUNNING not in items
    assert "no_such_thing" in problem_of(items["tests/test_broken.py"])
    assert problem_of(items["tests/test_this.py::test_off"]) == "failed"
    assert (tmp_path / "ran").read_text().split() == ["fine", "off", "crashes", "crashes", "slow"]


def test_a_failure_is_kept_with_its_message():
    log = (
        "tests/a.py::test_x[1 2] PASSED\n"
        "tests/a.py::test_y FAILED\n"
        "tests/a.py::test_z Fatal Python error: Segmentation fault\n"
        "FAILED tests/a.py::test_y - AssertionError: off by one\n"
    )
    assert driver.test_outcomes(log) == {
        "tests/a.py::test_x[1 2]": {"outcome": "passed"},
        "tests/a.py::test_y": {"outcome": "failed", "problem": "failed", "message": "AssertionError: off by one"},
        RUNNING: {"test": "tests/a.py::test_z"},
    }
    assert RUNNING not in driver.test_outcomes(log + "tests/a.py::test_z PASSED\n"), "a second run has its outcome"


def test_files_with_the_mark_are_found_and_no_others(tmp_path):
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "test_a.py").write_text("@pytest.mark.gpu\ndef test_it(): ...")
    (tmp_path / "test_b.py").write_text("import a_package_that_is_not_there")
    (tmp_path / "test_c.py").write_text("pytestmark = pytest.mark.gpu")
    assert marked_files(tmp_path) == [str(tmp_path / "ops" / "test_a.py"), str(tmp_path / "test_c.py")]


def test_without_a_checkout_there_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RuntimeError, match="run the command in a checkout of slotbench"):
        driver.gpu_tests(Settings(tmp_path), Items(tmp_path, "gpu_tests"))


# --- every stage


@pytest.mark.slow
def test_every_stage_runs_on_a_cpu(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(Path(__file__).parents[2])
    command = ["bench", "gpu", "--device", "cpu", "--quick", "--minutes", "240", "--out", str(tmp_path)]
    assert run(command) == 0, capsys.readouterr().out
    results = {name: Items(tmp_path, name) for name in NAMES}
    assert {items.result["state"] for items in results.values()} == {"done"}
    problems = [(name, problem_of(item)) for name, items in results.items() for item in items.values()]
    assert [problem for problem in problems if problem[1]] == []
    kernels = results["kernels"].values()
    assert {item["op"] for item in kernels} == set(KERNELS)
    for item in kernels:
        ran = {name: one for name, one in item["kernels"].items() if one.get("problem") != "not available"}
        assert {"reference", "torch"} <= ran.keys()
        assert max(one["error"] for one in ran.values()) < 1e-4
    training = results["training"]
    assert len(training) == 2 * len(CASES)
    assert all(item["steps"] == 2 and item["steps_per_second"] > 0 for item in training.values())
    experiment = results["experiment"]["run"]
    first = experiment["headlines"][0]
    assert first["metric"] in experiment["metrics"]
    assert first["baselines"]
    page = (tmp_path / "report.md").read_text()
    assert "no result" not in page
    assert "cannot be shown" not in page
    assert "Training step, ms" in page
