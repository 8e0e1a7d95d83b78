"""The environment of a run: versions, the state of the source, the machine and the command line."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["describe_environment", "git_state", "processor"]

# a checkout's own configuration may name programs that git starts when it only looks
_GIT_RUNS_NOTHING = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")
_PACKAGES = ("slotbench", "torch", "lightning", "numpy")


def describe_environment() -> dict[str, Any]:
    """The part of a run's record that does not depend on the run: versions, git, device, threads, command."""
    # only a process that is about to train asks, so torch is loaded already or about to be
    import torch

    here, ours = git_state(Path.cwd()), git_state(Path(__file__).parent)
    versions = {package: importlib.metadata.version(package) for package in _PACKAGES}
    return {
        "versions": {"python": platform.python_version(), **versions},
        # the user's project where there is one, and slotbench's own source when it is another checkout
        "git": here or ours,
        "git_slotbench": ours if here and ours and here["commit"] != ours["commit"] else None,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else processor(),
        "threads": torch.get_num_threads(),
        "platform": platform.platform(),
        "command": shlex.join([Path(sys.argv[0]).name.replace("__main__.py", "slotbench"), *sys.argv[1:]]),
    }


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit of the checkout that `folder` lies in, and whether tracked files differ from it; None outside of one."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(folder), *_GIT_RUNS_NOTHING, *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
            stdin=subprocess.DEVNULL,
            # reading must not take the index lock from a commit that is being made
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1"},
        ).stdout.strip()

    try:
        commit = git("rev-parse", "HEAD")
        return {"commit": commit, "dirty": bool(git("status", "--porcelain", "--untracked-files=no"))}
    except (OSError, subprocess.SubprocessError):
        return None


def processor() -> str:
    """The CPU's marketing name where the system tells, else its architecture."""
    cpus = Path("/proc/cpuinfo")
    names = [line for line in cpus.read_text().splitlines() if line.startswith("model name")] if cpus.exists() else []
    name = names[0].partition(":")[2].strip() if names else platform.processor() or platform.machine()
    return f"{name} x {os.cpu_count()}"
