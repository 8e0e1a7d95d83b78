"""What lies in the working folder is data: no Python file and no git configuration there is run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from slotbench import grids

HOSTILE = "import pathlib\npathlib.Path(__file__).with_name('owned').touch()\nraise SystemExit(3)\n"


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("wandb/__init__.py", "wandb/__main__.py", "yaml.py", "random.py", "torch.py", "json.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(HOSTILE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def owned(folder: Path) -> list[Path]:
    return list(folder.rglob("owned"))


@pytest.mark.parametrize("arguments", [["--version"], ["plugins", "cores"], ["grid", "status", "x.yaml"]])
def test_slotbench_as_a_module_imports_nothing_from_there(hostile, arguments):
    done = subprocess.run([sys.executable, "-m", "slotbench", *arguments], capture_output=True, text=True)
    assert done.returncode == (2 if "grid" in arguments else 0), done.stderr
    assert not owned(hostile)


def test_processes_that_slotbench_starts_leave_it_out():
    """Each of them, as the source has it: `-P` stands before `-m`."""
    for file in Path(grids.__file__).parent.parent.rglob("*.py"):
        for line in file.read_text().splitlines():
            if "sys.executable" in line and '"-m"' in line:
                assert '"-P", "-m"' in line, f"{file}: {line}"
