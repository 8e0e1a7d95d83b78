"""Processors, memory and disk, as far as this process may use them, and what torch can compute with."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

from slotbench.health.findings import Finding, broken, first_line, note, ok

__all__ = [
    "bfloat16",
    "cache_folder",
    "cores",
    "cuda",
    "free_memory",
    "runs_folder",
    "shared_memory",
    "temporary_folder",
    "torch_build",
    "torch_threads",
]

_BFLOAT16_UNITS = ("amx_bf16", "avx512_bf16", "sve_bf16", "bf16")  # as torch names what a CPU can do
_PATIENCE = 10.0  # seconds that the driver's own tool may take

_GIB = 1 << 30
_LITTLE_DISK = 5 * _GIB
_LITTLE_MEMORY = 2 * _GIB
_LITTLE_SHARED = _GIB // 2
_CGROUPS = Path("/sys/fs/cgroup")
# files of a control group, in its second version and in its first
_CPU_FILES = (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
_MEMORY_FILES = (("memory.max",), ("memory.limit_in_bytes",))
_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def cores() -> Finding:
    """Processors that this process may use."""
    usable, total = _usable_cores(), os.cpu_count() or 1
    return ok(f"{f'{usable:g} of {total}' if usable < total else total} for this process")


def torch_threads() -> Finding:
    """Threads that torch runs on these cores."""
    import torch

    used, fitting = torch.get_num_threads(), math.ceil(_usable_cores())
    named = ", ".join(f"{name}={os.environ[name]}" for name in _VARIABLES if name in os.environ)
    text = f"torch uses {used}{'; ' if named else ''}{named}"
    if used <= fitting:
        return ok(text)
    return note(
        f"{text}: more than there are cores, which is slower", f"--threads {fitting}, or OMP_NUM_THREADS={fitting}"
    )


def free_memory() -> Finding:
    """Free memory, within the limit of the control group."""
    known, limit = _meminfo(), _granted("memory", _MEMORY_FILES)
    if (free := known.get("MemAvailable")) is None:
        return note("this system does not say how much is free")
    within = f", and this process may have {_size(limit)} in all" if limit < known["MemTotal"] else ""
    text = f"{_size(free)} free{within}"
    fix = "smaller batches (--data.loader.batch_size), fewer --data.loader.num_workers"
    return note(text, fix) if min(free, limit) < _LITTLE_MEMORY else ok(text)


def shared_memory() -> Finding:
    """Memory through which the workers of a data loader pass batches on."""
    shared = Path("/dev/shm")
    if not shared.is_dir():
        return ok(f"this system has no {shared}")
    size = shutil.disk_usage(shared).total
    text = f"{_size(size)} in {shared}, for batches of data.loader.num_workers"
    fix = "docker run --shm-size 8g, or --data.loader.num_workers 0"
    return note(text, fix) if size < _LITTLE_SHARED else ok(text)


def runs_folder(runs: Path) -> Finding:
    """Free space where runs are recorded."""
    return _space(lambda: runs, "--runs_dir DIR")


def cache_folder() -> Finding:
    """Free space where data sets are cached."""
    from slotbench.files import cache_home

    return _space(cache_home, "SLOTBENCH_CACHE=DIR")


def temporary_folder() -> Finding:
    """Free space for temporary files."""
    return _space(lambda: Path(tempfile.gettempdir()), "TMPDIR=DIR")


def torch_build() -> Finding:
    """The device that torch was built for."""
    import torch

    return ok(f"{torch.__version__}, built for {_built_for()}")


def bfloat16() -> Finding:
    """Whether the CPU multiplies bfloat16."""
    import torch

    # torch says it from some version on
    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    units = [name for name in _BFLOAT16_UNITS if capabilities.get(name)]
    if not capabilities:
        return ok("this version of torch does not say whether the CPU multiplies it")
    if units:
        return ok(
            f"this CPU multiplies it ({', '.join(units)}): --trainer.precision bf16-mixed may shorten a step on it"
        )
    return ok("this CPU has no unit that multiplies it: --trainer.precision bf16-mixed works on it and takes longer")


def cuda() -> Iterator[Finding]:
    """Every card with memory, capability and driver, or why torch can use none."""
    import torch

    cards = _cards_of_driver()
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        yield _card(index, cards)
    if torch.cuda.is_available():
        return
    if not cards:
        fix = "none needed for the experiments of experiments/*.yaml; --require cuda makes this an error"
        yield note("no card that torch could use: everything runs on the CPU", fix)
    elif not torch.version.cuda:
        fix = "install a CUDA build of torch: docs/install_cuda.md"
        yield note(f"{'; '.join(cards)}, and this torch is built for the CPU", fix)
    else:
        text = f"{'; '.join(cards)}, and torch, built for {_built_for()}, cannot use it: the driver may be too old"
        yield broken(text, "a newer driver, or a torch built for an older CUDA; CUDA_VISIBLE_DEVICES must not be empty")


def _usable_cores() -> float:
    """Processors that this process may use, by its affinity and by the quota of its control group."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(float(allowed), _granted("cpu", _CPU_FILES))


def _granted(controller: str, choices: tuple[tuple[str, ...], ...]) -> float:
    """The limit of a control group, a number or the ratio of two; infinite if there is none."""
    for folder, names in product(_group_folders(controller), choices):
        try:
            limit, *period = (int(word) for name in names for word in (folder / name).read_text().split())
        except (OSError, ValueError):  # absent, or "max"
            continue
        if limit > 0:
            return limit / period[0] if period else limit
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


def _space(where: Callable[[], Path], elsewhere: str) -> Finding:
    try:
        folder = where()
    except OSError as error:
        return broken(str(error), elsewhere)
    there = next((parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists()), Path("/"))
    if not there.is_dir():
        return broken(f"{folder}: {there} is a file", elsewhere)
    free = shutil.disk_usage(there).free
    if not os.access(there, os.W_OK | os.X_OK):
        return broken(f"{folder} cannot be written", elsewhere)
    text = f"{_size(free)} free at {folder}"
    return note(text, f"make room, or {elsewhere}") if free < _LITTLE_DISK else ok(text)


def _size(size: float | int) -> str:
    return f"{size / _GIB:.1f} GiB" if size < 100 * _GIB else f"{size / _GIB:,.0f} GiB"


def _built_for() -> str:
    import torch

    if hip := getattr(torch.version, "hip", None):
        return f"ROCm {hip}"
    return f"CUDA {torch.version.cuda}" if torch.version.cuda else "the CPU"


def _card(index: int, cards: list[str]) -> Finding:
    import torch

    name = "cuda" if index == 0 else f"cuda:{index}"
    properties = torch.cuda.get_device_properties(index)
    driver = cards[index].rpartition(", driver ")[2] if index < len(cards) else "unknown"
    try:
        free, _ = torch.cuda.mem_get_info(index)
        product = torch.ones(64, 64, device=f"cuda:{index}") @ torch.ones(64, 64, device=f"cuda:{index}")
        wrong = "" if bool((product == 64).all()) else "a product of matrices came out wrong"
    except Exception as error:
        free, wrong = 0, first_line(error)
    text = (
        f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB ({free / 2**30:.0f} free), "
        f"capability {properties.major}.{properties.minor}, driver {driver}"
    )
    if wrong:
        known = ", ".join(torch.cuda.get_arch_list())
        fix = f"this torch is compiled for {known}: another build of torch, docs/install_cuda.md"
        return broken(f"{text}: {wrong}", fix, name)
    return ok(text, name)


def _cards_of_driver() -> list[str]:
    """The cards that the driver lists, whether torch can use them or not."""
    if shutil.which("nvidia-smi") is None:
        return []
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip().replace(", ", ", driver ") for line in listed.splitlines() if line.strip()]
