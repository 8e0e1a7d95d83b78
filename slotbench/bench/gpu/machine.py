"""What the machine is: its device, driver, versions, processor, and the report of `slotbench doctor`."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import subprocess
import sys
from typing import Any

from slotbench.bench.gpu.plan import Settings
from slotbench.bench.gpu.records import Items
from slotbench.runs.provenance import describe_environment, processor

__all__ = ["PROBE", "device_of", "run"]

PACKAGES = ("torch", "triton", "mamba-ssm", "causal-conv1d", "lightning", "numpy", "numba", "slotbench")

PROBE = """
import json
try:
    import torch
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    print(json.dumps({"torch": str(torch.__version__), "device": name}))
except Exception as error:
    print(json.dumps({"error": (str(error).strip().splitlines() or [type(error).__name__])[0]}))
"""
"""A program that says which torch there is and which CUDA device, in a process that gives the device back."""


def device_of(kind: str) -> tuple[str, str]:
    """The device and torch's version, or ("", why there is none).

    Args:
        kind: "cuda" or "cpu".
    """
    done = subprocess.run([sys.executable, "-P", "-W", "ignore", "-c", PROBE], capture_output=True, text=True)
    try:
        found = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        said = done.stderr.strip().splitlines()
        return "", f"torch does not start here: {said[-1] if said else f'exit code {done.returncode}'}"
    if "error" in found:
        return "", f"torch does not start here: {found['error']}"
    if kind == "cpu":
        return processor(), found["torch"]
    if found["device"] is None:
        return "", f"torch {found['torch']} finds no CUDA device here"
    return found["device"], found["torch"]


def run(settings: Settings, items: Items) -> str:
    """Asks torch, the driver's tool and doctor; returns the device and the versions in a line."""
    items["facts"] = facts = _facts(settings.device)
    items["environment"] = describe_environment()
    done = subprocess.run([sys.executable, "-P", "-m", "slotbench", "doctor", "--json"], capture_output=True, text=True)
    try:
        # what a library prints when it is imported comes first
        report = json.loads(done.stdout[max(0, done.stdout.find("{\n")) :])
        items["doctor"] = {"exit_code": done.returncode, "failing": report["failing"], "findings": report["findings"]}
        broken = len(report["failing"])
    except (KeyError, ValueError):
        said = done.stderr.strip().splitlines()
        items["doctor"] = {"problem": "error", "message": said[-1] if said else f"exit code {done.returncode}"}
        return f"{facts['device']}; slotbench doctor gave no report"
    versions = [f"{name} {facts[name]}" for name in ("driver", "torch", "triton", "mamba-ssm") if facts.get(name)]
    return f"{', '.join([facts['device'], *versions])}; doctor: {broken or 'nothing'} not in order"


def _facts(kind: str) -> dict[str, Any]:
    import torch

    found: dict[str, Any] = {"device": processor(), "processor": processor(), "python": platform.python_version()}
    found |= {name: _version(name) for name in PACKAGES}
    found["torch"] = str(torch.__version__)  # with what it was built for
    found["TF32 in matrix products"] = torch.backends.cuda.matmul.allow_tf32
    found["TF32 in convolutions"] = torch.backends.cudnn.allow_tf32
    if kind == "cuda":
        card = torch.cuda.get_device_properties(0)
        found |= {
            "device": torch.cuda.get_device_name(0),
            "driver": _driver(),
            "CUDA of torch": torch.version.cuda,
            "capability": f"{card.major}.{card.minor}",
            "memory, GiB": round(card.total_memory / 2**30, 1),
            "multiprocessors": card.multi_processor_count,
        }
    return found


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _driver() -> str | None:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip().splitlines()
    except (OSError, subprocess.SubprocessError):
        return None
    return said[0].strip() if said else None
