"""The stages of `slotbench bench gpu`: resumed, stopped by their time, failed; what is said without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slotbench.bench.gpu import driver
from slotbench.bench.gpu.plan import STAGES, Settings, limit_of
from slotbench.bench.gpu.records import DONE, FAILED, OUT_OF_TIME, Items, OutOfTimeError, read_result
from slotbench.bench.gpu.stage_process import WORK_LEFT, run_stage
from slotbench.cli import run
from slotbench.errors import UserError

NAMES = [stage.name for stage in STAGES]
START = """
import os, signal, subprocess, sys, time
from slotbench.bench.gpu.plan import Settings
from slotbench.bench.gpu.records import Items
settings = Settings.from_json(sys.stdin.read())
name = sys.argv[1]
items = Items(settings.out, name)
items[f"piece {len(items.found)}"] = {"pid": os.getpid(), "limit": settings.seconds}
items.message = f"{len(items.found)} pieces"
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
    return len(result["items"]) if result else len(Items(out, stage).found)


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
    assert Items(tmp_path, "a").found == {"first": {"problem": "error", "message": "no"}}
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
    code = "import sys, slotbench.bench.gpu.driver; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", code], env=dict(os.environ)).returncode == 0
