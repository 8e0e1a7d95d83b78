"""Processors, memory and disk, as far as this process may use them."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from slotbench.health.findings import Finding

__all__ = ["DISK_NAMES", "MEMORY_NAMES", "THREAD_NAMES", "disk", "memory", "threads", "usable_cores"]

THREAD_NAMES = ("cores", "torch threads")
MEMORY_NAMES = ("free memory", "shared memory")
DISK_NAMES = ("runs folder", "cache folder", "temporary folder")

_GIB = 1 << 30
_LITTLE_DISK = 5 * _GIB
_LITTLE_MEMORY = 2 * _GIB
_LITTLE_SHARED = _GIB // 2
_CGROUPS = Path("/sys/fs/cgroup")
_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def usable_cores() -> float:
    """Processors that this process may use, by its affinity and by the quota of its control group."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(float(allowed), _quota())


def threads() -> Iterator[Finding]:
    """The cores, and how many threads are going to run on them."""
    import torch

    cores = usable_cores()
    total = os.cpu_count() or 1
    text = f"{cores:g} of {total}" if cores < total else f"{total}"
    yield Finding("threads", "cores", "ok", f"{text} for this process")
    named = [f"{name}={os.environ[name]}" for name in _VARIABLES if name in os.environ]
    used = torch.get_num_threads()
    text = f"torch uses {used}{'; ' if named else ''}{', '.join(named)}"
    if used > math.ceil(cores):
        fewer = math.ceil(cores)
        mend = f"--threads {fewer}, or OMP_NUM_THREADS={fewer}"
        yield Finding("threads", "torch threads", "note", f"{text}: more than there are cores, which is slower", mend)
    else:
        yield Finding("threads", "torch threads", "ok", text)


def memory() -> Iterator[Finding]:
    """What is free, within the limit of the control group, and what processes can share."""
    free, limit = _meminfo().get("MemAvailable"), _memory_limit()
    if free is None:
        yield Finding("memory", "free memory", "note", "this system does not say how much is free")
    else:
        within = f", and this process may have {_size(limit)} in all" if limit < _meminfo()["MemTotal"] else ""
        text = f"{_size(free)} free{within}"
        if min(free, limit) < _LITTLE_MEMORY:
            mend = "smaller batches (--data.batch_size), fewer --data.num_workers"
            yield Finding("memory", "free memory", "note", text, mend)
        else:
            yield Finding("memory", "free memory", "ok", text)
    shared = Path("/dev/shm")
    if not shared.is_dir():
        yield Finding("memory", "shared memory", "ok", f"this system has no {shared}")
        return
    size = shutil.disk_usage(shared).total
    text = f"{_size(size)} in {shared}, for what data.num_workers hand over"
    if size < _LITTLE_SHARED:
        mend = "docker run --shm-size 8g, or --data.num_workers 0"
        yield Finding("memory", "shared memory", "note", text, mend)
    else:
        yield Finding("memory", "shared memory", "ok", text)


def disk(runs: Path) -> Iterator[Finding]:
    """Free space where runs, caches and temporary files go.

    Args:
        runs: the folder of all runs.
    """
    from slotbench.data.files import cache_home

    places = {
        "runs folder": (lambda: runs, "--runs_dir DIR"),
        "cache folder": (cache_home, "SLOTBENCH_CACHE=DIR"),
        "temporary folder": (lambda: Path(tempfile.gettempdir()), "TMPDIR=DIR"),
    }
    for name, (where, elsewhere) in places.items():
        try:
            folder = where()
        except OSError as error:
            yield Finding("disk", name, "broken", str(error), elsewhere)
            continue
        yield _space(name, folder, elsewhere)


def _space(name: str, folder: Path, elsewhere: str) -> Finding:
    report = partial(Finding, "disk", name)
    there = next((parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists()), Path("/"))
    if not there.is_dir():
        return report("broken", f"{folder}: {there} is a file", elsewhere)
    free = shutil.disk_usage(there).free
    text = f"{_size(free)} free at {folder}"
    if not os.access(there, os.W_OK | os.X_OK):
        return report("broken", f"{folder} cannot be written", elsewhere)
    if free < _LITTLE_DISK:
        return report("note", text, f"make room, or {elsewhere}")
    return report("ok", text)


def _quota() -> float:
    """Processors that the control group grants; infinite without a limit."""
    for folder in _group_folders("cpu"):
        try:
            if (folder / "cpu.max").is_file():
                quota, period = (folder / "cpu.max").read_text().split()
            else:
                quota = (folder / "cpu.cfs_quota_us").read_text()
                period = (folder / "cpu.cfs_period_us").read_text()
            if quota.strip() not in ("max", "-1"):
                return int(quota) / int(period)
        except (OSError, ValueError):
            continue
    return math.inf


def _memory_limit() -> float:
    """Bytes that the control group grants; infinite without a limit."""
    for folder in _group_folders("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            try:
                return float((folder / name).read_text())
            except (OSError, ValueError):
                continue
    return math.inf


def _group_folders(controller: str) -> list[Path]:
    """Where a controller's files may be, the process's own group first; in a container it is the root."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            found += [_CGROUPS / path.lstrip("/"), _CGROUPS]
        elif controller in controllers.split(","):
            found += [_CGROUPS / controller / path.lstrip("/"), _CGROUPS / controller]
    return found


def _meminfo() -> dict[str, int]:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return {}
    return {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}


def _size(size: float | int) -> str:
    return f"{size / _GIB:.1f} GiB" if size < 100 * _GIB else f"{size / _GIB:,.0f} GiB"
