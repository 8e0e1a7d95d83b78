"""The file of a bench: what was measured so far, with the settings and the machine that it holds for."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from slotbench.bench.job import OUT_OF_MEMORY, Settings
from slotbench.files import dump_json, write_atomically
from slotbench.runs.provenance import describe_environment

__all__ = ["MEASURES", "OUT_OF_TIME", "SKIPPED", "BenchError", "Results"]

MEASURES = ("inference", "training", "streaming")
OUT_OF_TIME = "out of time"
SKIPPED = "skipped"

_BENCH = "cores"
# What makes numbers comparable: a file holds points of one combination only.
_IDENTITY = ("batch", "slots", "dim", "tokens", "repeats", "threads", "device")


class BenchError(ValueError):
    """A bench cannot run as it is asked to."""


@dataclass
class Results:
    """Points by (core, measure, length), kept on disk after every change.

    A point has "core", "measure", "length", and either "problem" (`OUT_OF_MEMORY`, `OUT_OF_TIME`, "error" or `SKIPPED`)
    with "message", or what was measured.
    """

    path: Path
    settings: Settings
    environment: dict[str, Any]
    points: dict[tuple[str, str, int], dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path, settings: Settings, *, restart: bool = False) -> Results:
        """Starts with the points of an earlier bench that still hold, or with none.

        A failure holds unless its limit has been raised since; an error does not hold, nor does what was skipped.

        Raises:
            BenchError: the file is of other settings or of another machine.
        """
        results = cls(path, settings, describe_environment())
        if not path.is_file() or restart:
            return results
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            differences = results._differences(stored)
            points = stored["points"]
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise BenchError(f"{path} is not the result of a bench: choose another --out, or --restart") from error
        if differences:
            raise BenchError(
                f"{path} was measured with {', '.join(differences)}: choose another --out, or --restart to drop it"
            )
        for point in points:
            if results._holds(point):
                results.points[point["core"], point["measure"], point["length"]] = point
        return results

    def _differences(self, stored: dict[str, Any]) -> list[str]:
        pairs = [(name, stored["settings"][name], getattr(self.settings, name)) for name in _IDENTITY]
        there, here = stored["environment"], self.environment
        # the name of the processor or of the GPU is the machine's; that the versions match is the user's business
        pairs.append(("hardware", there["device"], here["device"]))
        pairs.append(("torch", there["versions"]["torch"], here["versions"]["torch"]))
        return [f"{name} {before} in place of {now}" for name, before, now in pairs if before != now]

    def _holds(self, point: dict[str, Any]) -> bool:
        problem = point.get("problem")
        if problem == OUT_OF_MEMORY:
            return bool(point["limit"] >= self.settings.memory)
        if problem == OUT_OF_TIME:
            return bool(point["limit"] >= self.settings.seconds)
        return problem is None

    def get(self, core: str, measure: str, length: int) -> dict[str, Any] | None:
        """The point, if there is one."""
        return self.points.get((core, measure, length))

    def add(self, core: str, measure: str, length: int, **fields: Any) -> dict[str, Any]:
        """Adds or replaces a point, and writes the file."""
        point = {"core": core, "measure": measure, "length": length, **fields}
        self.points[core, measure, length] = point
        self.write()
        return point

    def cores(self) -> list[str]:
        """Every core with a point, in alphabetical order."""
        return sorted({core for core, _, _ in self.points}, key=str.lower)

    def lengths(self) -> list[int]:
        """Every length with a point of a clip, ascending."""
        return sorted({length for _, measure, length in self.points if measure != "streaming"})

    def series(self, core: str, measure: str) -> list[dict[str, Any]]:
        """A core's points of one measure, by length."""
        found = [point for (name, what, _), point in self.points.items() if (name, what) == (core, measure)]
        return sorted(found, key=lambda point: point["length"])

    def write(self, **more: Any) -> None:
        """Writes the file whole, under its name only when it is complete."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        order = {measure: index for index, measure in enumerate(MEASURES)}
        points = sorted(self.points.values(), key=lambda p: (p["core"].lower(), order[p["measure"]], p["length"]))
        content = {
            "bench": _BENCH,
            "settings": asdict(self.settings),
            "environment": self.environment,
            **more,
            "points": points,
        }
        write_atomically(self.path, dump_json(content, indent=1) + "\n")
