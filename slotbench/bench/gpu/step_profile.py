"""What a training step does on the device: the share of its time that kernels take, and the longest of them."""

from __future__ import annotations

import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch.profiler import ProfilerActivity, profile

from slotbench.files import dump_json, write_atomically

__all__ = ["StepProfile", "kernel_times"]

_ON_THE_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_LONGEST = 5


class StepProfile(Callback):
    """Times some steps of a training, data loading included, then records what runs on the device in a few more.

    The steps that are timed are not recorded, since recording makes them slower; how long a kernel takes does not
    depend on it. On a CPU torch's operations stand in for kernels.

    Args:
        path: file of the result: "seconds_per_step", "busy_seconds" and "longest" of `kernel_times`.
        warmup: steps before: compilation, and what tunes itself.
        timed: steps that are timed.
        recorded: steps that are recorded.
    """

    def __init__(self, path: str, warmup: int = 5, timed: int = 20, recorded: int = 2) -> None:
        self._path, self._timed, self._recorded = Path(path), timed, recorded
        self._steps = -warmup
        self._began = time.perf_counter()
        self._profile: profile | None = None
        self._seconds = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Starts the clock, for where no step comes before."""
        self._began = _now()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Counts the step, and starts or stops what is due."""
        self._steps += 1
        if self._steps == 0:
            self._began = _now()
        elif self._steps == self._timed:
            self._seconds = (_now() - self._began) / self._timed
            # of a GPU alone, as what the processor does would be recorded at the price of its time
            kind = ProfilerActivity.CUDA if pl_module.device.type == "cuda" else ProfilerActivity.CPU
            self._profile = profile(activities=[kind])
            self._profile.start()
        elif self._steps == self._timed + self._recorded and self._profile is not None:
            _now()
            self._profile.stop()
            kinds = _ON_THE_DEVICE if pl_module.device.type == "cuda" else ("cpu_op",)
            found = kernel_times(_events(self._profile), kinds, self._recorded)
            write_atomically(self._path, dump_json({"seconds_per_step": self._seconds, **found}) + "\n")
            self._profile = None


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def _events(recorded: profile) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        recorded.export_chrome_trace(str(file))
        events: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    return events


def kernel_times(events: Iterable[Mapping[str, Any]], kinds: tuple[str, ...], steps: int) -> dict[str, Any]:
    """Seconds of a step in which something runs, and the kernels that take longest.

    Args:
        events: of a trace: name, "cat", "ts" and "dur" in microseconds.
        kinds: categories that count.
        steps: that the trace is of.

    Returns:
        "busy_seconds" of a step, what runs at the same time counted once; "longest", each with its "name", "seconds"
        and "calls" of a step and its "share" of all, the longest first; and "kernels", the calls of a step.
    """
    counted = sorted(
        (float(event["ts"]), float(event["dur"]), str(event["name"])) for event in events if event.get("cat") in kinds
    )
    busy, end = 0.0, float("-inf")
    totals: dict[str, list[float]] = defaultdict(list)
    for start, duration, name in counted:
        totals[name].append(duration)
        busy += max(0.0, start + duration - max(start, end))
        end = max(end, start + duration)
    longest = sorted(totals.items(), key=lambda item: -sum(item[1]))[:_LONGEST]
    whole = sum(map(sum, totals.values()))
    shown = [
        {"name": name, "seconds": 1e-6 * sum(all_) / steps, "share": sum(all_) / whole, "calls": len(all_) / steps}
        for name, all_ in longest
    ]
    return {"busy_seconds": 1e-6 * busy / steps, "longest": shown, "kernels": len(counted) / steps}
