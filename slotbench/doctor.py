"""Checks of an installation: versions, components, kernels, devices, memory, disk and tools."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement

from slotbench import registry
from slotbench.errors import first_line

__all__ = ["GROUPS", "Finding", "findings"]

_COMPROMISED = {("lightning", "2.6.2"), ("lightning", "2.6.3")}
_LITTLE_DISK, _LITTLE_SHARED = 5 << 30, 512 << 20
_TOLERANCE = 2e-3  # relative; mamba-ssm multiplies in TF32


class Finding(NamedTuple):
    """One line of the report: "ok", "note" (what is absent and stops nothing) or "broken", and what to type."""

    name: str
    state: str
    text: str


def findings(runs: Path, groups: list[str] | None = None) -> Iterator[tuple[str, Finding]]:
    """Every finding with its group, of some `GROUPS` or of all; `runs` is the folder of runs."""
    for group in groups or GROUPS:
        try:
            for finding in GROUPS[group](runs):
                yield group, finding
        except Exception as error:
            yield group, Finding(group, "broken", f"this check failed with {first_line(error)}")


def _versions(runs: Path) -> Iterator[Finding]:
    yield Finding("python", "ok", f"{platform.python_version()} on {platform.platform()}")
    yield Finding("slotbench", "ok", importlib.metadata.version("slotbench"))
    for needed in _requirements(""):
        if (needed.name, _installed(needed.name)) in _COMPROMISED:
            yield Finding(needed.name, "broken", f"a compromised release: pip install '{needed}', and change secrets")
        elif problem := _unmet(needed):
            yield Finding(needed.name, "broken", f"{problem}: pip install '{needed}'")
        else:
            yield Finding(needed.name, "ok", str(_installed(needed.name)))


def _extras(runs: Path) -> Iterator[Finding]:
    for extra in importlib.metadata.metadata("slotbench").get_all("Provides-Extra") or []:
        missing = [problem for needed in _requirements(extra) if (problem := _unmet(needed))]
        fix = "docs/install_cuda.md says how" if extra == "cuda" else f"pip install 'slotbench[{extra}]'"
        text = f"{'; '.join(missing)}: {fix}" if missing else "complete"
        yield Finding(extra, "note" if missing else "ok", text)


def _components(runs: Path) -> Iterator[Finding]:
    for kind in registry.KINDS:
        loaded = []
        for name in registry.names(kind):
            try:
                registry.load(kind, name)
                loaded.append(name)
            except registry.RegistryError as error:
                yield Finding(name, "broken", f"{kind}: {first_line(error.__cause__ or error)}")
        yield Finding(kind, "ok", ", ".join(loaded))


def _kernels(runs: Path) -> Iterator[Finding]:
    import torch

    from slotbench.bench.ops import error_of
    from slotbench.ops import available_kernels
    from slotbench.ops.dispatch import KERNELS, automatic_kernel

    for device in ("cpu", *(["cuda"] if torch.cuda.is_available() else [])):
        for op in KERNELS:
            ran = []
            for kernel, refusal in available_kernels(op, device).items():
                name = f"{op}/{kernel}"
                if refusal is not None:
                    if not refusal.startswith("runs on"):  # another device than this one
                        yield Finding(name, "note", f"{device}: {refusal}")
                    continue
                error = error_of(op, kernel, device)
                if error > _TOLERANCE:
                    yield Finding(name, "broken", f"{device}: off the reference by {error:.0e}; name another kernel")
                else:
                    ran.append(f"{kernel} {error:.0e}")
            chosen, _ = automatic_kernel(op, device)
            yield Finding(op, "ok", f"{device}: auto is {chosen}; errors against float64: {', '.join(ran)}")


def _machine(runs: Path) -> Iterator[Finding]:
    import torch

    from slotbench.io import cache_home

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = torch.get_num_threads()
    yield Finding("threads", "note" if threads > cores else "ok", f"{threads} of torch on {cores} cores (--threads N)")
    for name, folder in (("runs", runs), ("cache", cache_home()), ("temporary", Path(tempfile.gettempdir()))):
        there = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
        free = shutil.disk_usage(there).free
        state = "note" if free < _LITTLE_DISK else "ok"
        writable = os.access(there, os.W_OK)
        text = f"{free / 2**30:.1f} GiB free at {folder}" if writable else f"{folder} cannot be written"
        yield Finding(name, state if writable else "broken", text)
    if (shared := Path("/dev/shm")).is_dir():
        size = shutil.disk_usage(shared).total
        text = f"{size / 2**30:.1f} GiB in {shared}, for batches of workers (docker run --shm-size 8g)"
        yield Finding("shared memory", "note" if size < _LITTLE_SHARED else "ok", text)


def _devices(runs: Path) -> Iterator[Finding]:
    import torch

    yield Finding("torch build", "ok", f"{torch.__version__}, CUDA {torch.version.cuda or 'none'}")
    if not torch.cuda.is_available():
        why = "the driver may be too old" if torch.version.cuda else "this torch is built for the CPU"
        yield Finding("cuda", "note", f"no GPU that torch can use: {why}; docs/install_cuda.md")
    for index in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(index)
        text = f"{card.name}, {card.total_memory / 2**30:.0f} GiB, capability {card.major}.{card.minor}"
        torch.ones(64, 64, device=f"cuda:{index}").square().sum().item()  # raises where this build lacks its code
        yield Finding("cuda" if index == 0 else f"cuda:{index}", "ok", text)


def _tools(runs: Path) -> Iterator[Finding]:
    from slotbench.runs.wandb_compat import is_set_off, is_set_offline, login_problem

    offline = is_set_offline() or is_set_off()
    problem = None if offline else login_problem()
    yield Finding("wandb", "note" if problem else "ok", f"{problem}: wandb login" if problem else "ready")
    sbatch = shutil.which("sbatch")
    yield Finding("slurm", "ok" if sbatch else "note", sbatch or "no sbatch here; --engine local needs none")
    for package, use in (("submitit", "--engine slurm"), ("ray", "--engine ray"), ("av", "movies")):
        there = importlib.util.find_spec(package) is not None
        yield Finding(package, "ok" if there else "note", use if there else f"pip install {package}, for {use}")


GROUPS = {
    "versions": _versions,
    "extras": _extras,
    "components": _components,
    "kernels": _kernels,
    "machine": _machine,
    "devices": _devices,
    "tools": _tools,
}


def _requirements(extra: str) -> Iterator[Requirement]:
    """What slotbench needs, or what an extra adds."""
    for line in importlib.metadata.requires("slotbench") or []:
        needed = Requirement(line)
        plain = needed.marker is None or needed.marker.evaluate({"extra": ""})
        added = not plain and bool(extra) and needed.marker is not None and needed.marker.evaluate({"extra": extra})
        if needed.name != "slotbench" and (added if extra else plain):
            needed.marker = None
            yield needed


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _unmet(needed: Requirement) -> str:
    version = _installed(needed.name)
    if version is None:
        return f"{needed.name} is not installed"
    fits = needed.specifier.contains(version, prereleases=True)
    return "" if fits else f"{needed.name} is {version}, and {needed.specifier} is needed"
