"""The slices of `slotbench bench gpu`: what waits for a GPU, in pieces that fit into a quarter of an hour.

A slice is a function with its arguments, and one file of results. A piece of its work is an *item*, by a key of its
own; an item with a "problem" has failed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slotbench.errors import UserError, did_you_mean, lines
from slotbench.files import dump_json, read_json_object_or_none, write_atomically

__all__ = [
    "MINUTES",
    "PATIENCE",
    "SLICES",
    "Items",
    "OutOfTimeError",
    "Settings",
    "Slice",
    "next_slice",
    "problem_of",
    "run_command",
    "slices_named",
]

DONE, FAILED = "done", "failed"
"""The states of a slice that has ended, beside `OUT_OF_TIME`."""

MINUTES = 8.0
"""Minutes that a slice may take by default: below ten with the installation on a bare machine and its own end."""

UNAVAILABLE = "not available"
"""The problem of a kernel that cannot run here: not installed, for another device, or refused after a trial."""

RUNNING = "running"
"""Key of the test that has begun and not ended: it is there at the end where a test has taken the process down."""

PATIENCE = 30.0
"""Seconds from the signal that ends a command to the one that kills it."""


@dataclass(frozen=True)
class Slice:
    """A piece of work for a GPU.

    Attributes:
        name: of the slice and of its files.
        stage: module of this folder and function, which takes settings, items and the arguments.
        what: it measures, in a line.
        planned: minutes that it is expected to take on an H100.
        arguments: of the function.
        measured: device and date, once docs/benchmarks.md has its numbers.
    """

    name: str
    stage: str
    what: str
    planned: float
    arguments: Mapping[str, Any] = field(default_factory=dict)
    measured: str = ""


def _training(name: str, *families: str) -> Slice:
    what = f"a training step at paper size: {', '.join(families)}"
    return Slice(name, "training.training", what, 8, {"families": families})


def _compiled(name: str, *families: str) -> Slice:
    what = f"a training step as written, compiled, and as CUDA graphs: {', '.join(families)}"
    return Slice(name, "training.compiled", what, 8, {"families": families})


def _cores(name: str, *cores: str) -> Slice:
    return Slice(name, "training.cores", f"cores against length up to 2,560: {', '.join(cores)}", 8, {"names": cores})


def _kernels(name: str, what: str, *ops: str, measured: str = "", **arguments: Any) -> Slice:
    return Slice(name, "kernels.kernels", f"every kernel of {what}", 6, {"ops": ops, **arguments}, measured)


def _study(name: str, study: str, smallest: str) -> Slice:
    arguments = {"grid": f"experiments/grids/studies/{study}.yaml", "smallest": (smallest, "seed=1000", "lr=0.0003")}
    return Slice(name, "long.study", f"points of the study `{study}`", 8, arguments)


SLICES = (
    Slice("a1", "day.gpu_tests", "`slotbench doctor`, then `pytest -m gpu`, what tunes itself last", 8),
    _training("b1", "SlotSSM", "PSB", "SAVi"),
    _training("b2", "OC-SlotSSM", "STEVE", "Slot Attention"),
    _training("b3", "ConvS5", "ConvLSTM", "RIM"),
    _compiled("b4", "OC-SlotSSM", "SAVi"),
    _compiled("b5", "RIM", "SlotRNN"),
    _cores("c1", "SlotSSM", "SlotTransformer", "PSB"),
    _cores("c2", "SlotRNN", "RIM", "ConvS5"),
    _kernels("d1", "inverted attention, one head and four", "inverted_attention", "inverted_attention, 4 heads"),
    _kernels("e1", "the other scans", "causal_conv1d", "linear_scan", "group_norm_activation"),
    _kernels("e2", "`ssd`, width 128", "ssd", widths=(128,)),
    _kernels("e3", "`ssd`, width 384", "ssd", widths=(384,)),
    _kernels("e4", "`selective_scan`", "selective_scan", measured="NVIDIA H200, 2026-11-26, in one span of time"),
    _kernels(
        "e5",
        "`selective_scan` for few sequences of many steps, `triton` in 1 to 48 spans of time",
        "selective_scan, spans",
        shapes=((32, 2560), (8, 10_000)),
    ),
    _study("f1", "moving_sprites_long", "config=GRU"),
    _study("f2", "blinking_balls_unweighted", "config=SlotRNN"),
    Slice(
        "g1",
        "long.experiment",
        "Blinking Color Balls at paper size (L = 80), as far as the time goes",
        8,
        {"config": "experiments/paper/blinking_balls_earliest_t6_p4.yaml"},
    ),
)
"""In the order in which they are to be measured."""


@dataclass(frozen=True)
class Settings:
    """What the command asked for.

    Attributes:
        out: folder of all results.
        device: "cuda" or "cpu".
        quick: tiny sizes: to see that it runs.
        minutes: of each slice.
        command: as it was typed.
    """

    out: Path
    device: str = "cuda"
    quick: bool = False
    minutes: float = MINUTES
    command: str = "slotbench bench gpu"


def slices_named(names: str) -> list[Slice]:
    """The slices of some names with commas between them.

    Raises:
        UserError: there is no such slice.
    """
    known = {one.name: one for one in SLICES}
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in known:
            raise UserError(lines(f"no slice is called {name}{did_you_mean(name, known)}", slices=", ".join(known)))
    return [known[name] for name in wanted]


def next_slice(out: Path) -> Slice | None:
    """The first slice whose numbers are neither published nor, to their end, in `out`; None where there is none."""
    states = ((one, Items(out, one.name).result["state"]) for one in SLICES if not one.measured)
    return next((one for one, state in states if state not in (DONE, FAILED)), None)


class OutOfTimeError(RuntimeError):
    """The time of a slice is up, with work left that another run of the command can do."""


class Items(dict[str, dict[str, Any]]):
    """The items of a slice by key, in `OUT/SLICE.json` after every change; those of an interrupted slice are there.

    Args:
        out: folder of all results.
        name: of the slice.
        seconds: that the slice may take from now on.

    Attributes:
        result: what the file has beside them: "state" (`DONE`, `FAILED` or `OUT_OF_TIME` once the slice has ended),
            "message", "seconds", "commit", "date", "command", "quick" and "facts" of the machine.
        log: the file of what the commands of the slice print.
        archive: the file that the next call resumes from, of a slice with trainings that go on.
        deadline: of the slice, by the monotonic clock.
        on_write: called after every change.
    """

    def __init__(self, out: Path, name: str, seconds: float = 0.0) -> None:
        self.path, self.log, self.archive = (out / f"{name}.{kind}" for kind in ("json", "log", "zip"))
        self.deadline = time.monotonic() + seconds
        self.on_write: Callable[[], object] = lambda: None
        self.result = {"slice": name, "state": "", "message": "", **(read_json_object_or_none(self.path) or {})}
        found = self.result.pop("items", None)
        super().__init__(found if isinstance(found, dict) else {})

    def left(self) -> float:
        """Seconds that are left."""
        return self.deadline - time.monotonic()

    def __setitem__(self, key: str, item: dict[str, Any]) -> None:
        super().__setitem__(key, item)
        self.write()

    def write(self, **result: Any) -> None:
        """Writes the file in one step, with changes to the result."""
        self.result |= result
        write_atomically(self.path, dump_json({**self.result, "items": dict(self)}, indent=1) + "\n")
        self.on_write()

    def summary(self, noun: str) -> str:
        """How many there are, and how many of them failed: "10 runs, 1 failed"."""
        failed = sum(problem_of(item) is not None for item in self.values())
        return f"{len(self)} {noun}{'s' * (len(self) != 1)}{f', {failed} failed' if failed else ''}"


def problem_of(item: dict[str, Any]) -> str | None:
    """What went wrong, in a line; None if nothing did."""
    return ": ".join(str(item[key]) for key in ("problem", "message") if item.get(key)) if item.get("problem") else None


def run_command(command: Sequence[str], seconds: float, log: Path) -> int | None:
    """The exit code of a command, whose output is added to a log; None if its time was up.

    It is ended then, as by an interrupt, with all that it has started: a training writes its checkpoint first.
    """
    with open(log, "ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            return process.wait(max(seconds, 0.0))
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            until = time.monotonic() + PATIENCE
            while time.monotonic() < until:
                process.poll()
                os.killpg(process.pid, 0)  # raises where the group is empty
                time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
