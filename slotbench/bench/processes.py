"""A command as a process of its own, timed."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

from slotbench.bench.contest import Seconds

__all__ = ["run_process"]


# On Linux a process begins with the memory of the one that starts it as its highest: a small one starts the command.
_STARTER = """
import json, os, subprocess, sys, time
began = time.perf_counter()
process = subprocess.Popen(sys.argv[2:])
_, status, usage = os.wait4(process.pid, 0)
seconds, code = time.perf_counter() - began, os.waitstatus_to_exitcode(status)
with open(sys.argv[1], "w") as file:
    json.dump({"seconds": seconds, "code": code, "kilobytes": usage.ru_maxrss}, file)
"""


def run_process(command: Sequence[str], folder: Path | None = None, codes: Collection[int] = (0,)) -> Seconds:
    """Seconds of the wall clock from start to end, and the most resident memory.

    Args:
        command: program and arguments.
        folder: where it runs.
        codes: the exit codes that are right.

    Raises:
        RuntimeError: it ended with another code; with the end of what it said.
    """
    with tempfile.TemporaryDirectory() as scratch:
        record = Path(scratch) / "record.json"
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _STARTER, str(record), *command],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        found = json.loads(record.read_text()) if record.is_file() else {"code": done.returncode}
    if found["code"] not in codes:
        said = done.stdout[-2000:].decode(errors="replace")
        raise RuntimeError(f"exit code {found['code']} of {' '.join(command)[:300]}\n{said}")
    return Seconds(found["seconds"], found["kilobytes"] / 1024)
