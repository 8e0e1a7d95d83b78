"""Processors, memory and disk, as far as this process may use them, and what torch can compute with."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from slotbench.health.findings import Finding, first_line

__all__ = [
    "DEVICE_NAMES",
    "DISK_NAMES",
    "MEMORY_NAMES",
    "THREAD_NAMES",
    "devices",
    "disk",
    "memory",
    "threads",
    "usable_cores",
]

THREAD_NAMES = ("cores", "torch threads")
MEMORY_NAMES = ("free memory", "shared memory")
DISK_NAMES = ("runs folder", "cache folder", "temporary folder")
DEVICE_NAMES = ("torch build", "bfloat16", "cuda")
_BFLOAT16_UNITS = ("amx_bf16", "avx512_bf16", "sve_bf16", "bf16")  # as torch names what a CPU can do
_PATIENCE = 10.0  # seconds that the driver's own tool may take

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
        fix = f"--threads {fewer}, or OMP_NUM_THREADS={fewer}"
        yield Finding("threads", "torch threads", "note", f"{text}: more than there are cores, which is slower", fix)
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
            fix = "smaller batches (--data.loader.batch_size), fewer --data.loader.num_workers"
            yield Finding("memory", "free memory", "note", text, fix)
        else:
            yield Finding("memory", "free memory", "ok", text)
    shared = Path("/dev/shm")
    if not shared.is_dir():
        yield Finding("memory", "shared memory", "ok", f"this system has no {shared}")
        return
    size = shutil.disk_usage(shared).total
    text = f"{_size(size)} in {shared}, for what data.loader.num_workers hand over"
    if size < _LITTLE_SHARED:
        fix = "docker run --shm-size 8g, or --data.loader.num_workers 0"
        yield Finding("memory", "shared memory", "note", text, fix)
    else:
        yield Finding("memory", "shared memory", "ok", text)


def disk(runs: Path) -> Iterator[Finding]:
    """Free space where runs, caches and temporary files go.

    Args:
        runs: the folder of all runs.
    """
    from slotbench.files import cache_home

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


def devices() -> Iterator[Finding]:
    """What torch was built for, whether the CPU multiplies bfloat16, every card with memory, capability and driver."""
    import torch

    built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "the CPU"
    if hip := getattr(torch.version, "hip", None):
        built = f"ROCm {hip}"
    yield Finding("devices", "torch build", "ok", f"{torch.__version__}, built for {built}")
    # torch says it from some version on
    yield _bfloat16(getattr(torch.cpu, "get_capabilities", dict)())
    cards = _driver_says()
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            yield _card(index, cards)
    elif not cards:
        fix = "none needed for the experiments of experiments/*.yaml; --require cuda makes this an error"
        yield Finding("devices", "cuda", "note", "no card that torch could use: everything runs on the CPU", fix)
    elif not torch.version.cuda:
        fix = "install a CUDA build of torch: docs/install_cuda.md"
        yield Finding("devices", "cuda", "note", f"{'; '.join(cards)}, and this torch is built for the CPU", fix)
    else:
        text = f"{'; '.join(cards)}, and torch, built for {built}, cannot use it: the driver may be too old"
        fix = "a newer driver, or a torch built for an older CUDA; CUDA_VISIBLE_DEVICES must not be empty"
        yield Finding("devices", "cuda", "broken", text, fix)


def _bfloat16(capabilities: Mapping[str, object]) -> Finding:
    units = [name for name in _BFLOAT16_UNITS if capabilities.get(name)]
    if not capabilities:
        text = "this version of torch does not say whether the CPU multiplies it"
    elif units:
        text = f"this CPU multiplies it ({', '.join(units)}): --trainer.precision bf16-mixed may shorten a step on it"
    else:
        text = "this CPU has no unit that multiplies it: --trainer.precision bf16-mixed works on it and takes longer"
    return Finding("devices", "bfloat16", "ok", text)


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


def _card(index: int, cards: list[str]) -> Finding:
    import torch

    name = "cuda" if index == 0 else f"cuda:{index}"
    properties = torch.cuda.get_device_properties(index)
    capability = f"{properties.major}.{properties.minor}"
    driver = cards[index].rpartition(", driver ")[2] if index < len(cards) else "unknown"
    try:
        free, _ = torch.cuda.mem_get_info(index)
        product = torch.ones(64, 64, device=f"cuda:{index}") @ torch.ones(64, 64, device=f"cuda:{index}")
        wrong = "" if bool((product == 64).all()) else "a product of matrices came out wrong"
    except Exception as error:
        free, wrong = 0, first_line(error)
    text = (
        f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB ({free / 2**30:.0f} free), "
        f"capability {capability}, driver {driver}"
    )
    if wrong:
        known = ", ".join(torch.cuda.get_arch_list())
        fix = f"this torch is compiled for {known}: another build of torch, docs/install_cuda.md"
        return Finding("devices", name, "broken", f"{text}: {wrong}", fix)
    return Finding("devices", name, "ok", text)


def _driver_says() -> list[str]:
    """The cards that the driver knows, whatever torch makes of them."""
    if shutil.which("nvidia-smi") is None:
        return []
    asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, timeout=_PATIENCE, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip().replace(", ", ", driver ") for line in said.splitlines() if line.strip()]
