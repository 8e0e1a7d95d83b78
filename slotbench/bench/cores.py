"""Every core against the length of clips: what is measured so far, and tables of it."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from math import log
from pathlib import Path
from typing import Any

from slotbench.errors import UserError
from slotbench.io import dump_json, write_atomically
from slotbench.runs.provenance import describe_environment

__all__ = ["PANELS", "Results", "Settings", "number", "sweep", "tables"]

Point = dict[str, Any]
# what makes points comparable: a file holds points of one combination only
_IDENTITY = ("batch", "slots", "dim", "tokens", "repeats", "threads", "device")

PANELS = (
    ("Inference, ms", "inference", "seconds", 1e3),
    ("Training step, ms", "training", "seconds", 1e3),
    ("Peak memory of a training step, MB", "training", "memory_mb", 1.0),
    ("Operations of a training step, GFLOP", "training", "flops", 1e-9),
)
"""What is shown: title, stage, key of a point, factor."""


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
        repeats: how often each point is timed; fewer where more would not fit into `seconds`.
        seconds: time for one stage of one core at one length.
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


@dataclass
class Results:
    """Points by (core, stage, length), written after every change.

    A point has "core", "stage", "length", and what was measured, or a "problem" ("memory", "time" or "error") with a
    "message".
    """

    path: Path
    settings: Settings
    environment: dict[str, Any]
    points: dict[tuple[str, str, int], Point] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path, settings: Settings, *, restart: bool = False) -> Results:
        """Begins with the points of an earlier bench, errors left out, or with none.

        Raises:
            UserError: the file is of other settings or of another machine.
        """
        results = cls(path, settings, describe_environment())
        if restart or not path.is_file():
            return results
        stored = json.loads(path.read_text(encoding="utf-8"))
        pairs = [(name, stored["settings"][name], getattr(settings, name)) for name in _IDENTITY]
        pairs.append(("device", stored["environment"]["device"], results.environment["device"]))
        changed = ", ".join(f"{name} {before} in place of {now}" for name, before, now in pairs if before != now)
        if changed:
            raise UserError(f"{path} was measured with {changed}: choose another --out, or --restart to drop it")
        points = [point for point in stored["points"] if point.get("problem") != "error"]
        results.points = {(point["core"], point["stage"], point["length"]): point for point in points}
        return results

    def add(self, point: Point) -> None:
        """Adds a point, and writes the file."""
        self.points[point["core"], point["stage"], point["length"]] = point
        content = {"settings": asdict(self.settings), "environment": self.environment}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, dump_json({**content, "points": list(self.points.values())}, indent=1) + "\n")

    def series(self, core: str, stage: str) -> list[Point]:
        """Points of a core at a stage, by length."""
        found = [point for (name, what, _), point in self.points.items() if (name, what) == (core, stage)]
        return sorted(found, key=lambda point: point["length"])

    def cores(self) -> list[str]:
        """Every core that has a point, in alphabetical order."""
        return sorted({core for core, _, _ in self.points}, key=str.lower)


def sweep(results: Results, report: Callable[[Point], None]) -> None:
    """Measures the points that are missing; where a core fails at a stage, longer clips are not tried.

    Args:
        results: where points are looked up and added.
        report: called with each new point.
    """
    settings = results.settings
    for core in settings.cores:
        while jobs := _missing(results, core):
            before = len(results.points)
            for found in _run(core, jobs, settings):
                point = {"core": core, **found}
                results.add(point)
                report(point)
            if len(results.points) == before:  # not even the first job has an answer
                raise RuntimeError(f"the process that measures {core} said nothing")


def _missing(results: Results, core: str) -> list[tuple[str, int]]:
    settings = results.settings
    jobs = [(stage, length) for length in settings.lengths for stage in ("inference", "training")]
    jobs.append(("streaming", max(settings.lengths)))
    failed = {point["stage"] for (name, _, _), point in results.points.items() if name == core and "problem" in point}
    return [(stage, n) for stage, n in jobs if stage not in failed and (core, stage, n) not in results.points]


def _run(core: str, jobs: list[tuple[str, int]], settings: Settings) -> Iterator[Point]:
    """What the process of a core says of each job; of the job that ends it, why."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    env = {**os.environ, **dict.fromkeys(names, str(settings.threads))}
    command = [sys.executable, "-P", "-m", "slotbench.bench.core_process"]
    request = json.dumps({"core": core, "settings": asdict(settings), "jobs": jobs})
    pipe, waiting = subprocess.PIPE, list(jobs)
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(request)
            process.stdin.close()
            for line in process.stdout:
                found = json.loads(line)
                waiting.remove((found["stage"], found["length"]))
                if "problem" in found:
                    waiting = [job for job in waiting if job[0] != found["stage"]]
                yield found
        finally:
            process.kill()
    if waiting:
        problems = {-signal.SIGALRM: "time", -signal.SIGKILL: "memory", -signal.SIGABRT: "memory"}
        problem = problems.get(process.returncode, "error")
        stage, length = waiting[0]
        message = f"the process ended with code {process.returncode}"
        yield {"stage": stage, "length": length, "problem": problem, "message": message}


def number(value: float) -> str:
    """Three significant digits, thousands separated."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:#.3g}".rstrip(".")


def growth(points: list[tuple[int, float]]) -> str:
    """The p of value ~ T^p over the upper three lengths, as "T^p"; "" for fewer than two."""
    upper = [(log(length), log(max(value, 1e-9))) for length, value in points[-3:]]
    return f"T^{statistics.linear_regression(*zip(*upper, strict=True)).slope:.2f}" if len(upper) > 1 else ""


def tables(results: Results) -> dict[str, list[list[str]]]:
    """Rows by title, headings first: each quantity against the length, and streaming."""
    lengths = sorted({length for _, stage, length in results.points if stage != "streaming"})
    made = {}
    for title, stage, key, factor in PANELS:
        rows = [["core", *(f"T={length}" for length in lengths), "grows as"]]
        for core in results.cores():
            points = {point["length"]: point for point in results.series(core, stage)}
            cells, medians = [], []
            for length in lengths:
                point = points.get(length, {})
                value = point.get(key)
                values = [factor * one for one in (value if isinstance(value, list) else [value]) if one is not None]
                if values:
                    medians.append((length, statistics.median(values)))
                around = f" ({number(min(values))}–{number(max(values))})" if len(values) > 1 else ""
                cells.append(number(medians[-1][1]) + around if values else point.get("problem", "–"))
            rows.append([core, *cells, growth(medians)])
        made[title] = rows
    rows = [["core", "step 8, ms", "late: after", "ms", "late / early", "state, MB", "late, MB"]]
    for core in results.cores():
        for point in results.series(core, "streaming")[-1:]:
            if "problem" in point:
                rows.append([core, point["problem"], *[""] * 5])
                continue
            early, late = (statistics.median(point[key]) for key in ("early", "late"))
            cells = [number(1e3 * early), str(point["steps"]), number(1e3 * late), f"{late / early:.2f}"]
            rows.append([core, *cells, *(number(point[key]) for key in ("early_state_mb", "late_state_mb"))])
    made["Streaming, one step at a time with carried state"] = rows
    return made


def page(results: Results) -> str:
    """The tables in Markdown, with the picture."""
    settings, machine = results.settings, results.environment["device"]
    parts = [
        "# Cores: cost against sequence length",
        f"{machine}, {settings.device}, threads: {settings.threads}; batch {settings.batch}, {settings.tokens} tokens "
        f"per step, {settings.slots} slots, width {settings.dim}; median of {settings.repeats} (min–max).",
        "![against the length](cores.png)",
    ]
    for title, rows in tables(results).items():
        head, *body = [f"| {' | '.join(row)} |" for row in rows]
        parts += [f"## {title}", "\n".join([head, "|---" + "|---:" * (len(rows[0]) - 1) + "|", *body])]
    return "\n\n".join(parts) + "\n"


def show(tables: dict[str, list[list[str]]]) -> None:
    """Prints tables; the first row of each is its headings."""
    from rich.console import Console
    from rich.table import Table

    for title, (headings, *rows) in tables.items():
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        for index, heading in enumerate(headings):
            table.add_column(heading, justify="right" if index else "left", no_wrap=not index)
        for row in rows:
            table.add_row(*row)
        Console().print("", table)
