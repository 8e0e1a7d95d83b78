"""Every core against sequence length: what was measured so far, and a process for each core at each length."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from slotbench.bench.harness import OUT_OF_MEMORY, OUT_OF_TIME, SKIPPED, messages, python, thread_variables
from slotbench.errors import UserError
from slotbench.files import dump_json, write_atomically
from slotbench.runs.provenance import describe_environment

__all__ = ["Job", "Results", "Settings", "run_job", "sweep"]

_MEASURES = ("inference", "training", "streaming")
# What makes numbers comparable: a file holds points of one combination only.
_IDENTITY = ("batch", "slots", "dim", "tokens", "repeats", "threads", "device")
# Seconds that a process may take beyond the limit until it measures: imports, compilation.
_START = 300.0


@dataclass(frozen=True)
class Settings:
    """What is measured, how, and within which limits.

    Attributes:
        cores: their names.
        lengths: time steps of the clips; streaming takes the largest.
        batch: clips.
        slots: number of slots, where the core takes `num_slots`.
        dim: width of tokens, and of slots where the core takes `dim`.
        tokens: tokens per time step.
        repeats: how often each point is timed; fewer, down to once, where more would not fit into `seconds`.
        seconds: time for one measure of one core at one length.
        memory: GiB that it may take beyond the idle process.
        threads: of torch and of compiled kernels.
        device: "cpu" or "cuda".
        plugins: files of registered components.
    """

    cores: tuple[str, ...]
    lengths: tuple[int, ...]
    batch: int = 6
    slots: int = 6
    dim: int = 64
    tokens: int = 16
    repeats: int = 3
    seconds: float = 120.0
    memory: float = 6.0
    threads: int = 1
    device: str = "cpu"
    plugins: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """One core at one length.

    Attributes:
        core: its name.
        stages: "inference" and "training" of a clip, or "streaming" step by step.
        length: time steps.
        settings: of the whole bench.
    """

    core: str
    stages: tuple[str, ...]
    length: int
    settings: Settings


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
            UserError: the file is of other settings or of another machine.
        """
        results = cls(path, settings, describe_environment())
        if not path.is_file() or restart:
            return results
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            pairs = [(name, stored["settings"][name], getattr(settings, name)) for name in _IDENTITY]
            there, here, points = stored["environment"], results.environment, stored["points"]
            # the name of the processor or of the GPU is the machine's; that the versions match is the user's business
            pairs.append(("hardware", there["device"], here["device"]))
            pairs.append(("torch", there["versions"]["torch"], here["versions"]["torch"]))
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise UserError(f"{path} is not the result of a bench: choose another --out, or --restart") from error
        changed = ", ".join(f"{name} {before} in place of {now}" for name, before, now in pairs if before != now)
        if changed:
            raise UserError(f"{path} was measured with {changed}: choose another --out, or --restart to drop it")
        limits = {None: 0.0, OUT_OF_MEMORY: settings.memory, OUT_OF_TIME: settings.seconds}
        for point in points:
            if (problem := point.get("problem")) in limits and point.get("limit", 0.0) >= limits[problem]:
                results.points[point["core"], point["measure"], point["length"]] = point
        return results

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
        points = [point for core in self.cores() for measure in _MEASURES for point in self.series(core, measure)]
        content = {"bench": "cores", "settings": asdict(self.settings), "environment": self.environment}
        write_atomically(self.path, dump_json({**content, **more, "points": points}, indent=1) + "\n")


def sweep(
    results: Results,
    report: Callable[[dict[str, Any]], None],
    begin: Callable[[str, int, int], None] = lambda what, index, total: None,
) -> None:
    """Fills in the points that are missing.

    Cores take turns at each length, so that a change of the machine's load is not a difference between cores. Where a
    core fails at a measure, its longer lengths of that measure are skipped.

    Args:
        results: where points are looked up and added.
        report: called with each new point.
        begin: called before each process with what it measures, which process it is, counted from 1, and of how many.
    """
    settings = results.settings
    clips = [(core, length, ("inference", "training")) for length in settings.lengths for core in settings.cores]
    streams = [(core, max(settings.lengths), ("streaming",)) for core in settings.cores]
    jobs = [
        (core, length, missing)
        for core, length, stages in [*clips, *streams]
        if (missing := tuple(stage for stage in stages if results.get(core, stage, length) is None))
    ]
    for index, (core, length, stages) in enumerate(jobs, start=1):
        begin(f"{core}, {' and '.join(stages)}, T = {length}", index, len(jobs))
        _measure(results, core, length, stages, report)


def _measure(
    results: Results, core: str, length: int, stages: tuple[str, ...], report: Callable[[dict[str, Any]], None]
) -> None:
    settings, waiting = results.settings, []
    for stage in stages:
        if stage != "streaming" and (why := _failed_before(results, core, stage, length)):
            report(results.add(core, stage, length, problem=SKIPPED, message=why))
        else:
            waiting.append(stage)
    limits = {OUT_OF_MEMORY: settings.memory, OUT_OF_TIME: settings.seconds}
    why = ""
    for stage, found in run_job(Job(core, tuple(waiting), length, settings)) if waiting else ():
        waiting.remove(stage)
        if problem := found.get("problem"):
            why = f"{stage}: {problem}"
            found |= {"limit": limits[problem]} if problem in limits else {}
        report(results.add(core, stage, length, **found))
    for stage in waiting:
        report(results.add(core, stage, length, problem=SKIPPED, message=why))


def _failed_before(results: Results, core: str, measure: str, length: int) -> str:
    """Why a measure is not tried: it has failed, or was skipped, at a shorter length; "" if it has not."""
    shorter = [point for point in results.series(core, measure) if point["length"] < length and "problem" in point]
    for point in shorter:
        if point["problem"] != SKIPPED:
            return f"{point['problem']} at {point['length']}"
    return str(shorter[0]["message"]) if shorter else ""


def run_job(job: Job) -> Iterator[tuple[str, dict[str, Any]]]:
    """Stages with their numbers as the process of `slotbench.bench.core_process` says them; a problem is the last."""
    settings, waiting = job.settings, list(job.stages)
    command, env = python("slotbench.bench.core_process"), thread_variables(settings.threads)
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        for message in messages(command, asdict(job), settings.seconds, start=_START, errors=errors, env=env):
            if "result" in message:
                waiting.remove(stage := message.pop("result"))
                yield stage, message
            elif "begin" not in message and waiting:
                if "ended" in message:
                    errors.seek(0)
                    message = _death(message["ended"], [line.strip() for line in errors if line.strip()])
                limits = {
                    OUT_OF_MEMORY: f"above {settings.memory:g} GiB",
                    OUT_OF_TIME: f"longer than {settings.seconds:g} s",
                }
                problem = message["problem"]
                yield waiting[0], {"problem": problem, "message": limits.get(problem, message["message"])}
                return


def _death(code: int | None, printed: list[str]) -> dict[str, Any]:
    """A process that ended without a word: a library that cannot allocate aborts, and the system kills the large."""
    message = ": ".join([f"the process ended with code {code}", *printed[-1:]])
    problem = OUT_OF_TIME if code is None else "error"
    return {"problem": OUT_OF_MEMORY if code == -9 or "bad_alloc" in "".join(printed) else problem, "message": message}
