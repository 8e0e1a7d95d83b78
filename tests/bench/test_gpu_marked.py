"""The stage of the tests marked gpu: which files, what is kept of each test, and what a second run leaves out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from slotbench.bench.gpu.gpu_tests import RUNNING, counts, marked_files
from slotbench.bench.gpu.plan import Settings
from slotbench.bench.gpu.records import Items, problem_of

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
    command = [sys.executable, "-P", "-m", "slotbench.bench.gpu.stage_process", "gpu_tests"]
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
    (tmp_path / "tests" / "test_mamba2.py").write_text(slow)
    assert stage(tmp_path) == 11
    found = Items(tmp_path / "out", "gpu_tests").found
    assert found[RUNNING] == {"test": "tests/test_some.py::test_crashes"}
    assert counts(found) == {"passed": 1, "failed": 2, "skipped": 1}
    assert "off by one" in problem_of(found["tests/test_some.py::test_off"])
    assert "no_such_thing" in problem_of(found["tests/test_broken.py"])
    (tmp_path / "crash").unlink()
    assert stage(tmp_path) == 0
    found = Items(tmp_path / "out", "gpu_tests").found
    assert RUNNING not in found
    assert counts(found) == {"passed": 3, "failed": 2, "skipped": 1}
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
