"""The slices of `slotbench bench gpu`: resumed, stopped by their time, failed; the machine; the tests marked gpu."""

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
    SLICES,
    Items,
    OutOfTimeError,
    Settings,
    next_slice,
    problem_of,
    run_command,
    slices_named,
)
from slotbench.bench.gpu.report import outcomes
from slotbench.bench.gpu.training import CASES
from slotbench.bench.harness import OUT_OF_TIME
from slotbench.cli import run
from slotbench.errors import UserError
from slotbench.ops.dispatch import KERNELS

ROOT = Path(__file__).parents[2]
NAMES = [one.name for one in SLICES]
Stage = Callable[[Settings, Items], object]
FACTS = {"device": "Loom 9000", "torch": "2.99"}


@pytest.fixture
def day(tmp_path, monkeypatch) -> Callable[..., tuple[list[str], str]]:
    """Runs slices that put a piece of work on disk, and then do what a test asks of them."""
    monkeypatch.setattr(driver, "facts_of", lambda kind: FACTS)
    monkeypatch.setattr(plan, "PATIENCE", 3.0)

    def run(names="a1,b1,c1", *, minutes: float = 8, restart: bool = False, **behaviours: Stage):
        def function(one):
            def stand_in(settings: Settings, items: Items, **arguments) -> str:
                assert arguments == one.arguments
                items[f"piece {len(items)}"] = {"limit": items.left()}
                behaviours.get(one.name, lambda settings, items: None)(settings, items)
                return f"{len(items)} pieces"

            return stand_in

        monkeypatch.setattr(driver, "_function", function)
        said: list[str] = []
        settings = Settings(tmp_path, "cuda", minutes=minutes, command="slotbench bench gpu --out here")
        left = driver.run_slices(settings, slices_named(names), said.append, restart=restart)
        return left, "".join(said)

    return run


def state(name: str, out: Path) -> str:
    return Items(out, name).result["state"]


def test_every_slice_is_done_once_and_has_a_line(day, tmp_path):
    left, said = day(",".join(NAMES))
    assert left == []
    assert [line.split()[0] for line in said.splitlines()] == NAMES
    assert [state(name, tmp_path) for name in NAMES] == [DONE] * len(NAMES)
    kept = Items(tmp_path, "b1").result
    assert kept["command"] == "slotbench bench gpu --out here"
    assert kept["commit"]
    assert kept["date"].startswith("20")
    assert kept["facts"] == FACTS
    before = (tmp_path / "b1.json").read_bytes()
    left, said = day()
    assert left == []
    assert said.count("done before: 1 pieces") == 3
    assert (tmp_path / "b1.json").read_bytes() == before


def test_the_next_slice_is_the_first_that_is_not_measured(day, tmp_path, monkeypatch):
    assert next_slice(tmp_path).name == "a1"
    day("a1,b2")
    assert next_slice(tmp_path).name == "b1"

    def stops(settings, items):
        raise OutOfTimeError("3 runs, 2 not begun")

    day("b1", b1=stops)
    assert next_slice(tmp_path).name == "b1", "it is continued"
    monkeypatch.setattr(plan, "SLICES", tuple(one for one in SLICES if one.measured or one.name in ("a1", "b2")))
    assert next_slice(tmp_path) is None


def test_the_list_says_what_is_measured_and_what_comes_next(day, tmp_path, capsys):
    day("a1")
    assert run(["bench", "gpu", "--list", "--out", str(tmp_path)]) == 0
    *rows, _, last = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == NAMES
    assert rows[0].split()[1] == "done"
    assert "still to be measured" in rows[1]
    assert "NVIDIA H200, 2026-11-26" in rows[NAMES.index("e4")]
    starts = {row.index(one.what) for row, one in zip(rows, SLICES, strict=True)}
    assert len(starts) == 1, "one column"
    assert last == "next: b1"


def test_slices_are_short_and_cover_what_there_is_to_measure():
    assert len(set(NAMES)) == len(NAMES)
    assert all(0 < one.planned <= plan.MINUTES for one in SLICES)
    assert plan.MINUTES < 9, "a command of ten minutes has the installation, too"
    assert {op for one in SLICES for op in one.arguments.get("ops", ())} >= set(KERNELS)
    families = [family for one in SLICES for family in one.arguments.get("families", ())]
    assert {*families} == {case.family for case in CASES}
    for one in SLICES:
        assert callable(driver._function(one))
        assert all((ROOT / one.arguments[name]).is_file() for name in ("grid", "config") if name in one.arguments)


def test_the_page_of_the_documentation_has_the_list():
    page = (ROOT / "docs" / "gpu_day.md").read_text(encoding="utf-8")
    rows = [
        f"| `{one.name}` | {one.what} | {one.planned:g} | {one.measured or 'still to be measured'} |" for one in SLICES
    ]
    assert "\n".join(rows) in page


def test_a_page_that_cannot_be_written_does_not_end_the_run(day, monkeypatch):
    def broken(one, items):
        raise KeyError("commit")

    monkeypatch.setattr(driver, "write_report", broken)
    left, said = day("b1,c1")
    assert left == []
    assert "b1.md cannot be written: KeyError: 'commit'" in said


def test_a_failure_is_a_result_and_the_next_slice_runs(day, tmp_path):
    def fails(settings, items):
        items["first"] = {"problem": "error", "message": "no"}
        raise ValueError("one\ntwo")

    left, said = day(b1=fails)
    assert left == ["b1"]
    assert state("b1", tmp_path) == FAILED
    assert Items(tmp_path, "b1").summary("run") == "2 runs, 1 failed"
    assert "failed in 0 s: ValueError: one\n" in said
    assert "two" in (tmp_path / "b1.log").read_text()
    assert state("c1", tmp_path) == DONE
    day("b1")
    assert state("b1", tmp_path) == FAILED, "a failure is not tried again unless asked for"
    assert day("b1", restart=True)[0] == []


CHILD = """
import subprocess, sys, time
code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
child.stdout.readline()
open(sys.argv[1], "w").write(str(child.pid))
time.sleep(60)
"""


def test_a_slice_is_stopped_at_its_limit_with_all_that_it_has_started(day, tmp_path):
    def spawns(settings, items):
        command = [sys.executable, "-c", CHILD, str(tmp_path / "pid")]
        assert run_command(command, items.left(), items.log) is None
        raise OutOfTimeError("3 runs, 2 not begun")

    began = time.monotonic()
    left, _ = day("b1,c1", minutes=0.09, b1=spawns)  # 5.4 s
    assert time.monotonic() - began < 40
    assert left == ["b1"]
    assert state("b1", tmp_path) == OUT_OF_TIME
    assert state("c1", tmp_path) == DONE
    assert Items(tmp_path, "b1").result["message"] == "3 runs, 2 not begun"
    assert not is_running(int((tmp_path / "pid").read_text()))
    assert day("b1")[0] == []
    assert len(Items(tmp_path, "b1")) == 2, "it resumes with what it had"


def is_running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" not in status.read_text()


def test_a_signal_ends_the_run_and_the_same_command_resumes(day, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        day("b1,c1", b1=lambda settings, items: os.kill(os.getpid(), signal.SIGTERM))
    assert state("b1", tmp_path) == ""
    assert len(Items(tmp_path, "b1")) == 1
    assert "b1: a training step" in (tmp_path / "b1.md").read_text(), "what it has by then can be read"
    assert state("c1", tmp_path) == ""
    assert day("b1,c1")[0] == []
    assert (len(Items(tmp_path, "b1")), len(Items(tmp_path, "c1"))) == (2, 1)


def test_restart_drops_the_slices_that_are_named_and_no_others(day, tmp_path):
    day()
    (tmp_path / "c1.cores").mkdir()
    (tmp_path / "c1.cores" / "old").touch()
    others = {name: (tmp_path / f"{name}.json").read_bytes() for name in ("a1", "b1")}
    assert day("c1", restart=True)[0] == []
    assert not (tmp_path / "c1.cores").exists()
    assert {name: (tmp_path / f"{name}.json").read_bytes() for name in others} == others


def test_results_of_another_device_are_refused_and_a_training_goes_on_anywhere(day, tmp_path, monkeypatch):
    def stops(settings, items):
        items.archive.touch()
        raise OutOfTimeError("7 of 300,000 steps")

    day("a1,g1", g1=stops)
    monkeypatch.setattr(driver, "facts_of", lambda kind: {**FACTS, "device": "Loom 9001"})
    with pytest.raises(UserError, match=r"a1\.json holds results of device Loom 9000 in place of Loom 9001"):
        day("a1")
    assert day("a1", restart=True)[0] == []
    assert day("g1")[0] == []


def test_without_a_gpu_there_is_one_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert run(["bench", "gpu"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "finds no CUDA device here: run this where there is one, or try a slice with --device cpu" in said
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--slice", "b1,z1"], "no slice is called z1"),
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
    settings, items = Settings(tmp_path), Items(tmp_path, "a1", 60.0)
    monkeypatch.setattr(driver, "_doctor", lambda seconds: {"findings": [], "failing": [], "exit_code": 0})
    with pytest.raises(RuntimeError, match=r"pytest ended with code 11; a1\.log"):
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
    items = Items(tmp_path, "a1")
    items.result["doctor"] = {}
    with pytest.raises(RuntimeError, match="run the command in a checkout of slotbench"):
        driver.gpu_tests(Settings(tmp_path), items)


# --- every slice


def quick(names: str, out: Path, monkeypatch, capsys) -> list[Items]:
    """Runs slices in tiny sizes on the CPU by the command; what they have come to, which is no failure."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    command = ["bench", "gpu", "--device", "cpu", "--quick", "--minutes", "60", "--out", str(out), "--slice", names]
    assert run(command) == 0, capsys.readouterr().out
    found = [Items(out, name) for name in names.split(",")]
    for items in found:
        assert [problem for item in items.values() if (problem := problem_of(item))] == []
        assert "cannot be shown" not in items.path.with_suffix(".md").read_text()
    assert len([*out.iterdir()]) <= 8 * len(found), "few files come home"
    return found


def test_inverted_attention_is_measured_on_a_cpu(tmp_path, monkeypatch, capsys):
    (items,) = quick("d1", tmp_path, monkeypatch, capsys)
    assert {item["op"] for item in items.values()} == {"inverted_attention", "inverted_attention, 4 heads"}
    for item in items.values():
        ran = {name: one for name, one in item["kernels"].items() if one.get("problem") != "not available"}
        assert {"reference", "streamed"} <= ran.keys()
        assert max(one["error"] for one in ran.values()) < 1e-4


@pytest.mark.slow
def test_kernels_and_cores_run_on_a_cpu(tmp_path, monkeypatch, capsys):
    *kernels, cores = quick("e1,e2,e3,e4,c1", tmp_path, monkeypatch, capsys)
    assert {item["op"] for items in kernels for item in items.values()} == set(KERNELS) - {"inverted_attention"}
    assert "Training step, ms" in cores.path.with_suffix(".md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["b1", "b2", "b3"])
def test_trainings_run_on_a_cpu(name, tmp_path, monkeypatch, capsys):
    (items,) = quick(name, tmp_path, monkeypatch, capsys)
    assert len(items) == 6
    for item in items.values():
        assert item["steps"] == 2
        assert item["steps_per_second"] > 0
        assert item["profile"]["busy_seconds"] > 0
        assert len(item["profile"]["longest"]) == 5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["b4", "b5"])
def test_compiled_trainings_run_on_a_cpu(name, tmp_path, monkeypatch, capsys):
    (items,) = quick(name, tmp_path, monkeypatch, capsys)
    assert [item["compile"] for item in items.values()] == ["off", "graphs", "on"]
    assert all(item["steps"] == 2 for item in items.values())


@pytest.mark.slow
def test_tests_and_long_trainings_run_on_a_cpu(tmp_path, monkeypatch, capsys):
    tests, *studies, experiment = quick("a1,f1,f2,g1", tmp_path, monkeypatch, capsys)
    assert tests.result["doctor"]["findings"]
    assert [items["points"]["done"] for items in studies] == [1, 1]
    assert experiment["run"]["step"] == 4
    assert experiment["run"]["headlines"][0]["metric"] in experiment["run"]["metrics"]
