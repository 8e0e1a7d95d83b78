"""The stages of `slotbench bench gpu`: resumed, stopped by their time, failed; the machine; the tests marked gpu."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from slotbench.bench.gpu import day as driver
from slotbench.bench.gpu.day import DONE, FAILED, WORK_LEFT, marked_files, run_stage
from slotbench.bench.gpu.plan import RUNNING, STAGES, Items, OutOfTimeError, Settings, limit_of, problem_of, read_result
from slotbench.bench.gpu.report import outcomes
from slotbench.bench.gpu.training import CASES
from slotbench.bench.harness import OUT_OF_TIME
from slotbench.cli import run
from slotbench.errors import UserError
from slotbench.ops.dispatch import KERNELS

NAMES = [stage.name for stage in STAGES]
START = """
import os, signal, subprocess, sys, time
from slotbench.bench.gpu.plan import Items, Settings
settings = Settings.from_json(sys.stdin.read())
name = sys.argv[1]
items = Items(settings.out, name)
items[f"piece {len(items)}"] = {"pid": os.getpid(), "limit": settings.seconds}
items.message = f"{len(items)} pieces"
items.write()
"""


@pytest.fixture
def a_device(monkeypatch) -> None:
    monkeypatch.setattr(driver, "device_of", lambda kind: ("Loom 9000", "2.99"))
    monkeypatch.setattr(driver, "_LEAST", 0.0)
    monkeypatch.setattr(driver, "_PATIENCE", 3.0)


def commands(**behaviours: str):
    """Stages that put a piece of work on disk, and then do what is said of them, or end well."""
    return lambda name: [sys.executable, "-P", "-c", START + behaviours.get(name, ""), name]


def day(out: Path, names=NAMES, *, minutes: float = 40, restart: bool = False, **behaviours: str):
    said: list[str] = []
    settings = Settings(out, "cuda", minutes=minutes, command="slotbench bench gpu --out here")
    left = driver.run_day(settings, names, said.append, restart=restart, command=commands(**behaviours))
    return left, "".join(said)


def pieces(out: Path, stage: str) -> int:
    result = read_result(out, stage)
    return len(result["items"]) if result else len(Items(out, stage))


def test_every_stage_is_done_once_and_has_a_line(a_device, tmp_path):
    left, said = day(tmp_path)
    assert left == []
    assert [line.split()[0] for line in said.splitlines()] == NAMES
    assert [read_result(tmp_path, name)["state"] for name in NAMES] == [DONE] * len(NAMES)
    assert not list(tmp_path.glob("*.part.json"))
    kept = read_result(tmp_path, "kernels")
    assert kept["command"] == "slotbench bench gpu --out here"
    assert kept["commit"]
    assert kept["date"].startswith("20")
    before = (tmp_path / "kernels.json").read_bytes()
    left, said = day(tmp_path)
    assert left == []
    assert said.count("done before: 1 pieces") == len(NAMES)
    assert (tmp_path / "kernels.json").read_bytes() == before


def test_a_page_that_cannot_be_written_does_not_end_the_run(a_device, tmp_path, monkeypatch):
    def broken(settings):
        raise KeyError("commit")

    monkeypatch.setattr(driver, "write_report", broken)
    left, said = day(tmp_path, ["kernels", "cores"])
    assert left == []
    assert "report.md cannot be written: KeyError: 'commit'" in said


def test_a_failure_is_a_result_and_the_next_stage_runs(a_device, tmp_path):
    left, said = day(tmp_path, ["kernels", "cores", "training"], cores="os.kill(os.getpid(), signal.SIGSEGV)")
    assert left == ["cores"]
    result = read_result(tmp_path, "cores")
    assert result["state"] == FAILED
    assert len(result["items"]) == 1
    assert read_result(tmp_path, "training")["state"] == DONE
    assert "cores      " in said
    day(tmp_path, ["cores"])
    assert read_result(tmp_path, "cores")["state"] == FAILED, "a failure is not tried again unless asked for"
    assert day(tmp_path, ["cores"], restart=True)[0] == []


def test_a_stage_is_stopped_at_its_limit_with_all_that_it_has_started(a_device, tmp_path):
    child = "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
    child += "items['child'] = {'pid': child.pid}\ntime.sleep(60)"
    began = time.monotonic()
    left, _ = day(tmp_path, ["kernels", "cores"], minutes=0.6, kernels=child)  # 5.4 s each
    assert time.monotonic() - began < 40
    assert left == ["kernels"]
    result = read_result(tmp_path, "kernels")
    assert result["state"] == OUT_OF_TIME
    assert read_result(tmp_path, "cores")["state"] == DONE
    assert not is_running(result["items"]["child"]["pid"])
    left, _ = day(tmp_path, ["kernels"])
    assert left == []
    assert pieces(tmp_path, "kernels") == 3, "it resumes with what it had"


def is_running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" not in status.read_text()


def test_a_signal_ends_the_run_and_the_same_command_resumes(a_device, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        day(tmp_path, ["cores", "training"], cores="os.kill(os.getppid(), signal.SIGTERM); time.sleep(60)")
    assert read_result(tmp_path, "cores") is None
    assert pieces(tmp_path, "cores") == 1
    assert read_result(tmp_path, "training") is None
    assert day(tmp_path, ["cores", "training"])[0] == []
    assert (pieces(tmp_path, "cores"), pieces(tmp_path, "training")) == (2, 1)


def test_restart_drops_the_stages_that_are_named_and_no_others(a_device, tmp_path):
    day(tmp_path)
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "old").touch()
    others = {name: (tmp_path / f"{name}.json").read_bytes() for name in NAMES if name != "training"}
    assert day(tmp_path, ["training"], restart=True)[0] == []
    assert not (tmp_path / "training").exists()
    assert {name: (tmp_path / f"{name}.json").read_bytes() for name in others} == others


def test_a_stage_that_the_time_does_not_reach_is_not_begun(a_device, tmp_path, monkeypatch):
    monkeypatch.setattr(driver, "_LEAST", 20.0)
    left, said = day(tmp_path, ["experiment"], minutes=0.2)
    assert left == ["experiment"]
    assert "not begun" in said
    assert read_result(tmp_path, "experiment") is None


def test_limits_are_shares_of_the_time_and_the_last_stage_has_the_rest():
    shares = [limit_of(stage, 40, 60 * 40) for stage in STAGES[:-1]]
    assert shares == [60 * stage.minutes for stage in STAGES[:-1]]
    assert sum(shares) <= 60 * 30, "the experiment has ten minutes at least"
    assert [limit_of(stage, 20, 60 * 40) for stage in STAGES[:-1]] == [share / 2 for share in shares]
    assert limit_of(STAGES[-1], 40, 777) == 777
    assert limit_of(STAGES[0], 40, 5) == 5


def test_results_of_another_device_are_refused(a_device, tmp_path, monkeypatch):
    day(tmp_path, ["machine"])
    monkeypatch.setattr(driver, "device_of", lambda kind: ("Loom 9001", "2.99"))
    with pytest.raises(UserError, match="holds results of device Loom 9000 in place of Loom 9001"):
        day(tmp_path, ["machine"])
    assert day(tmp_path, restart=True)[0] == []


def test_a_stage_says_how_it_ended(tmp_path):
    settings = Settings(tmp_path)

    def fails(settings, items):
        items["first"] = {"problem": "error", "message": "no"}
        raise ValueError("one\ntwo")

    def has_work_left(settings, items):
        raise OutOfTimeError("3 runs, 2 not begun")

    assert run_stage(fails, settings, Items(tmp_path, "a")) == 1
    assert Items(tmp_path, "a") == {"first": {"problem": "error", "message": "no"}}
    assert "ValueError: one" in (tmp_path / "a.part.json").read_text()
    assert run_stage(has_work_left, settings, Items(tmp_path, "b")) == WORK_LEFT
    assert run_stage(lambda settings, items: items.summary("run"), settings, Items(tmp_path, "a")) == 0
    assert "1 run, 1 failed" in (tmp_path / "a.part.json").read_text()


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
__version__ = "2.99+cu1"
class cuda:
    is_available = staticmethod(lambda: {available})
    get_device_name = staticmethod(lambda: "Loom 9000")
"""


@pytest.fixture
def a_torch(tmp_path, monkeypatch):
    """Puts a module in the place of torch, for processes that are started."""

    def put(text: str) -> None:
        (tmp_path / "torch.py").write_text(text)

    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return put


def test_the_device_is_asked_for_in_a_process_of_its_own(a_torch):
    a_torch(TORCH.format(available=True))
    assert driver.device_of("cuda") == ("Loom 9000", "2.99+cu1")
    a_torch(TORCH.format(available=False))
    assert driver.device_of("cuda") == ("", "torch 2.99+cu1 finds no CUDA device here")
    assert driver.device_of("cpu") == (driver.processor(), "2.99+cu1")
    a_torch("raise OSError('libcudart.so not found\\nand so on')")
    assert driver.device_of("cuda") == ("", "torch does not start here: libcudart.so not found")


def test_the_facts_of_a_card_are_recorded(monkeypatch):
    card = SimpleNamespace(major=9, minor=0, total_memory=80 * 2**30, multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: card)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "Loom 9000")
    monkeypatch.setattr(driver, "_driver", lambda: "580.1")
    facts = driver._facts("cuda")
    assert (facts["device"], facts["driver"], facts["capability"]) == ("Loom 9000", "580.1", "9.0")
    assert (facts["memory, GiB"], facts["multiprocessors"]) == (80.0, 132)
    assert facts["torch"] == torch.__version__
    assert facts["processor"] == driver.processor()


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


def stage(folder: Path) -> int:
    command = [sys.executable, "-P", "-m", "slotbench.bench.gpu.day", "gpu_tests"]
    settings = Settings(folder / "out", seconds=60.0).to_json()
    return subprocess.run(command, input=settings, text=True, cwd=folder, capture_output=True).returncode


def test_outcomes_are_kept_one_by_one_and_a_second_run_leaves_them_out(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "crash").touch()
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = gpu: needs one\naddopts = --not-an-option\n")
    (tmp_path / "tests" / "test_some.py").write_text(MARKED)
    (tmp_path / "tests" / "test_others.py").write_text("import a_package_that_is_not_there")
    (tmp_path / "tests" / "test_broken.py").write_text("import no_such_thing  # mark.gpu")
    slow = "import pytest\n@pytest.mark.gpu\ndef test_tunes():\n    with open('ran', 'a') as log: log.write('slow ')"
    (tmp_path / "tests" / "test_ssm_blocks.py").write_text(slow)
    assert stage(tmp_path) == 11
    found = Items(tmp_path / "out", "gpu_tests")
    assert found[RUNNING] == {"test": "tests/test_some.py::test_crashes"}
    assert outcomes(found) == "1 passed, 2 failed, 1 skipped"
    assert "off by one" in problem_of(found["tests/test_some.py::test_off"])
    assert "no_such_thing" in problem_of(found["tests/test_broken.py"])
    (tmp_path / "crash").unlink()
    assert stage(tmp_path) == 0
    found = Items(tmp_path / "out", "gpu_tests")
    assert RUNNING not in found
    assert outcomes(found) == "3 passed, 2 failed, 1 skipped"
    assert (tmp_path / "ran").read_text().split() == ["fine", "off", "crashes", "crashes", "slow"]
    said = json.loads((tmp_path / "out" / "gpu_tests.part.json").read_text())["message"]
    assert said == "3 passed, 2 failed, 1 skipped"


def test_files_with_the_mark_are_found_and_no_others(tmp_path):
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "test_a.py").write_text("@pytest.mark.gpu\ndef test_it(): ...")
    (tmp_path / "test_b.py").write_text("import a_package_that_is_not_there")
    (tmp_path / "test_c.py").write_text("pytestmark = pytest.mark.gpu")
    assert marked_files(tmp_path) == [str(tmp_path / "ops" / "test_a.py"), str(tmp_path / "test_c.py")]


def test_without_a_checkout_there_is_a_sentence(tmp_path):
    (tmp_path / "out").mkdir()
    assert stage(tmp_path) == 1
    said = json.loads((tmp_path / "out" / "gpu_tests.part.json").read_text())["message"]
    assert said.endswith("run the command in a checkout of slotbench")


# --- every stage


@pytest.mark.slow
def test_every_stage_runs_on_a_cpu(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(Path(__file__).parents[2])
    command = ["bench", "gpu", "--device", "cpu", "--quick", "--minutes", "240", "--out", str(tmp_path)]
    assert run(command) == 0, capsys.readouterr().out
    results = {stage.name: read_result(tmp_path, stage.name) for stage in STAGES}
    assert {result["state"] for result in results.values()} == {"done"}
    problems = [(name, problem_of(item)) for name, result in results.items() for item in result["items"].values()]
    assert [problem for problem in problems if problem[1]] == []
    kernels = results["kernels"]["items"].values()
    assert {item["op"] for item in kernels} == set(KERNELS)
    for item in kernels:
        ran = {name: one for name, one in item["kernels"].items() if one.get("problem") != "not available"}
        assert {"reference", "torch"} <= ran.keys()
        assert max(one["error"] for one in ran.values()) < 1e-4
    training = results["training"]["items"]
    assert len(training) == 2 * len(CASES)
    assert all(item["steps"] == 2 and item["steps_per_second"] > 0 for item in training.values())
    experiment = results["experiment"]["items"]["run"]
    first = experiment["headlines"][0]
    assert first["metric"] in experiment["metrics"]
    assert first["baselines"]
    page = (tmp_path / "report.md").read_text()
    assert "no result" not in page
    assert "cannot be shown" not in page
    assert "Training step, ms" in page
