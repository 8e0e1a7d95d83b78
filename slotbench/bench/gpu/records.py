"""The files of a stage: what it has so far, piece by piece, and its result once it has ended.

`NAME.part.json` is written by the stage after every piece of work, `NAME.json` by the driver when the stage has ended,
and then the other goes. A piece of work is an *item*, by a key of its own; an item with a "problem" has failed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from slotbench.files import dump_json, read_json_object_or_none, write_atomically

__all__ = [
    "DONE",
    "FAILED",
    "OUT_OF_TIME",
    "UNAVAILABLE",
    "Items",
    "OutOfTimeError",
    "problem_of",
    "read_result",
    "write_result",
]

DONE, FAILED, OUT_OF_TIME = "done", "failed", "out of time"
"""The states of a result."""
UNAVAILABLE = "not available"
"""The problem of a kernel that cannot run here: not installed, for another device, or refused after a trial."""


class OutOfTimeError(RuntimeError):
    """A stage has ended in time, with work left that another run of the command can do."""


class Items:
    """The pieces of work of one stage, on disk after every change; those of an interrupted stage are there already.

    Args:
        out: folder of all results.
        stage: its name.
    """

    def __init__(self, out: Path, stage: str) -> None:
        self.path = out / f"{stage}.part.json"
        self.message = ""
        found = (read_json_object_or_none(self.path) or {}).get("items")
        self.found: dict[str, dict[str, Any]] = found if isinstance(found, dict) else {}

    def __contains__(self, key: str) -> bool:
        return key in self.found

    def __getitem__(self, key: str) -> dict[str, Any]:
        return self.found[key]

    def __setitem__(self, key: str, item: dict[str, Any]) -> None:
        self.found[key] = item
        self.write()

    def write(self) -> None:
        """Writes all items, in one step."""
        write_atomically(self.path, dump_json({"message": self.message, "items": self.found}, indent=1) + "\n")

    def summary(self, noun: str) -> str:
        """How many there are, and how many of them failed: "10 runs, 1 failed"."""
        failed = sum(problem_of(item) is not None for item in self.found.values())
        plural = noun if len(self.found) == 1 else f"{noun}s"
        return f"{len(self.found)} {plural}{f', {failed} failed' if failed else ''}"


def problem_of(item: dict[str, Any]) -> str | None:
    """What went wrong, in a line; None if nothing did."""
    if not item.get("problem"):
        return None
    message = item.get("message")
    return f"{item['problem']}: {message}" if message else str(item["problem"])


def read_result(out: Path, stage: str) -> dict[str, Any] | None:
    """The result of a stage that has ended; None if it has not."""
    found = read_json_object_or_none(out / f"{stage}.json")
    return found if found is not None and {"state", "items", "message"} <= found.keys() else None


def write_result(out: Path, stage: str, result: dict[str, Any]) -> None:
    """Writes the result, and removes what the stage had written on its way."""
    write_atomically(out / f"{stage}.json", dump_json(result, indent=1) + "\n")
    (out / f"{stage}.part.json").unlink(missing_ok=True)
