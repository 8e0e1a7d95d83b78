"""The stages of a GPU day, what its command asked for, and the files of a stage.

`STAGE.part.json` is written by a stage after every piece of work, `STAGE.json` by the driver when the stage has ended,
and then the other goes. A piece of work is an *item*, by a key of its own; an item with a "problem" has failed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from slotbench.files import dump_json, read_json_object_or_none, write_atomically

__all__ = [
    "MINUTES",
    "RUNNING",
    "STAGES",
    "UNAVAILABLE",
    "Items",
    "OutOfTimeError",
    "Settings",
    "Stage",
    "limit_of",
    "problem_of",
    "read_result",
    "write_result",
]

MINUTES = 40.0
"""Minutes that the whole day may take by default; the limits of the stages are shares of it."""

UNAVAILABLE = "not available"
"""The problem of a kernel that cannot run here: not installed, for another device, or refused after a trial."""

RUNNING = "running"
"""Key of the test that has begun and not ended: it is there at the end where a test has taken the process down."""


@dataclass(frozen=True)
class Stage:
    """One stage: the function of its name, with settings and items as arguments.

    Attributes:
        name: of the function and of the files.
        module: of this folder, in which the function is.
        what: it does, in a line.
        minutes: it may take of 40; None for the rest of the time.
        planned: minutes that it is expected to take.
    """

    name: str
    module: str
    what: str
    minutes: float | None
    planned: float


STAGES = (
    Stage("machine", "day", "device, driver, versions, and the report of slotbench doctor", 3, 1.5),
    Stage("gpu_tests", "day", "the tests marked gpu", 5, 3),
    Stage("kernels", "kernels", "every kernel of slotbench.ops against the others", 6, 5),
    Stage("cores", "training", "slotbench bench cores on the device", 6, 5),
    Stage("training", "training", "training at the papers' sizes, a model of each family, fp32 and bf16-mixed", 10, 9),
    Stage("experiment", "training", "one experiment to its end, with scores and baselines", None, 10),
)
"""In the order in which they run."""


@dataclass(frozen=True)
class Settings:
    """What the command asked for.

    Attributes:
        out: folder of all results.
        device: "cuda" or "cpu".
        quick: tiny sizes: to see that every stage runs.
        minutes: of the whole day.
        command: as it was typed.
        seconds: of the stage at hand; the driver fills it in.
    """

    out: Path
    device: str = "cuda"
    quick: bool = False
    minutes: float = MINUTES
    command: str = "slotbench bench gpu"
    seconds: float = 0.0

    def to_json(self) -> str:
        """The settings on one line."""
        return json.dumps({**asdict(self), "out": str(self.out)})

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """The settings that `to_json` has written."""
        fields = json.loads(text)
        return cls(**{**fields, "out": Path(fields["out"])})


def limit_of(stage: Stage, minutes: float, left: float) -> float:
    """Seconds that a stage may take.

    Args:
        stage: the stage.
        minutes: of the whole day.
        left: seconds until the day has to end.
    """
    return left if stage.minutes is None else min(60 * stage.minutes * minutes / MINUTES, left)


class OutOfTimeError(RuntimeError):
    """A stage has ended in time, with work left that another run of the command can do."""


class Items(dict[str, dict[str, Any]]):
    """The items of a stage by key, on disk after every change; those of an interrupted stage are there already.

    Args:
        out: folder of all results.
        stage: its name.
    """

    def __init__(self, out: Path, stage: str) -> None:
        self.path = out / f"{stage}.part.json"
        stored = read_json_object_or_none(self.path) or {}
        self.message = str(stored.get("message") or "")
        super().__init__(stored["items"] if isinstance(stored.get("items"), dict) else {})

    def __setitem__(self, key: str, item: dict[str, Any]) -> None:
        super().__setitem__(key, item)
        self.write()

    def write(self) -> None:
        """Writes all items, in one step."""
        write_atomically(self.path, dump_json({"message": self.message, "items": dict(self)}, indent=1) + "\n")

    def summary(self, noun: str) -> str:
        """How many there are, and how many of them failed: "10 runs, 1 failed"."""
        failed = sum(problem_of(item) is not None for item in self.values())
        return f"{len(self)} {noun}{'s' * (len(self) != 1)}{f', {failed} failed' if failed else ''}"


def problem_of(item: dict[str, Any]) -> str | None:
    """What went wrong, in a line; None if nothing did."""
    return ": ".join(str(item[key]) for key in ("problem", "message") if item.get(key)) if item.get("problem") else None


def read_result(out: Path, stage: str) -> dict[str, Any] | None:
    """The result of a stage that has ended; None if it has not."""
    found = read_json_object_or_none(out / f"{stage}.json")
    return found if found is not None and {"state", "items", "message"} <= found.keys() else None


def write_result(out: Path, stage: str, result: dict[str, Any]) -> None:
    """Writes the result, and removes the file that the stage wrote as it went."""
    write_atomically(out / f"{stage}.json", dump_json(result, indent=1) + "\n")
    (out / f"{stage}.part.json").unlink(missing_ok=True)
