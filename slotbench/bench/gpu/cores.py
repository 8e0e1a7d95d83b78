"""`slotbench bench cores` on the device, at a few lengths; its own files are below OUT/cores."""

from __future__ import annotations

import subprocess
import sys

from slotbench.bench.gpu.plan import Settings
from slotbench.bench.gpu.records import Items
from slotbench.files import read_json_object

__all__ = ["CORES", "LENGTHS", "run"]

CORES = ("SlotSSM", "SlotTransformer", "SlotRNN", "RIM", "PSB", "ConvS5")
LENGTHS = (80, 640)
QUICK_CORES, QUICK_LENGTHS = ("SlotSSM",), (4, 8)
_SECONDS, _GIBIBYTES = 15, 24


def run(settings: Settings, items: Items) -> str:
    """Runs the command, which resumes by itself; returns how many points there are."""
    cores, lengths = (QUICK_CORES, QUICK_LENGTHS) if settings.quick else (CORES, LENGTHS)
    out = settings.out / "cores"
    command = [sys.executable, "-P", "-m", "slotbench", "bench", "cores", *cores, "--device", settings.device]
    command += [
        "--out",
        str(out),
        "--lengths",
        *map(str, lengths),
        "--timeout",
        str(60 if settings.quick else _SECONDS),
    ]
    command += ["--quick", "--memory", "4"] if settings.quick else ["--memory", str(_GIBIBYTES)]
    items["command"] = {"command": command[3:], "points": None}
    done = subprocess.run(command, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(f"slotbench bench cores ended with code {done.returncode}; cores.log says more")
    points = read_json_object(out / "cores.json")["points"]
    failed = [point for point in points if point.get("problem") == "error"]
    items["command"] |= {"points": len(points), "errors": len(failed)}
    items.write()
    return f"{len(points)} points{f', {len(failed)} errors' if failed else ''}"
