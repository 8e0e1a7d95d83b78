"""The page that a GPU run ends in: every stage's numbers, with the device, the date, the commit and the command."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from slotbench.bench import report as cores_report
from slotbench.bench.gpu.gpu_tests import RUNNING, counts
from slotbench.bench.gpu.plan import STAGES, Settings
from slotbench.bench.gpu.records import UNAVAILABLE, problem_of, read_result
from slotbench.bench.job import Settings as CoresSettings
from slotbench.bench.results import Results
from slotbench.bench.tables import Table, markdown, number
from slotbench.files import read_json_object_or_none, write_atomically
from slotbench.text import one_line

__all__ = ["write_report"]

_NONE = "–"
_QUICK = "**Quick: tiny sizes, to see that every stage runs. These numbers say nothing of speed or quality.**"


def write_report(settings: Settings) -> Path:
    """Writes OUT/report.md from the results that there are; a stage without one is named as such."""
    results = {stage.name: read_result(settings.out, stage.name) for stage in STAGES}
    facts = _items(results["machine"]).get("facts", {})
    identity = read_json_object_or_none(settings.out / "gpu.json") or {}
    device = facts.get("device") or identity.get("device") or "an unknown device"
    parts = [f"# GPU run: {one_line(device)}", *([_QUICK] if settings.quick else [])]
    parts.append(f"    {one_line(settings.command)}")
    parts.append(f"{one_line(device)}, torch {identity.get('torch', 'unknown')}, {_when(results)}.")
    parts += _section("Stages", [_stages(results)])
    for name, section in (
        ("machine", _machine),
        ("gpu_tests", _tests),
        ("kernels", _kernels),
        ("training", _training),
        ("experiment", _experiment),
    ):
        items = _items(results[name])
        if items:
            parts += _safely(name, lambda section=section, items=items: section(items))  # type: ignore[misc]
        if name == "kernels":
            parts += _safely("cores", lambda: _cores(settings.out / "cores" / "cores.json"))
    path = settings.out / "report.md"
    write_atomically(path, "\n\n".join(part.strip("\n") for part in parts) + "\n")
    return path


def _safely(name: str, section: Callable[[], list[str]]) -> list[str]:
    """A section that cannot be written is a sentence: it must not end the run that it reports."""
    try:
        return section()
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        return [f"## {name}", f"The results cannot be shown ({one_line(said)}); they are in {name}.json."]


def _items(result: dict[str, Any] | None) -> dict[str, Any]:
    return result["items"] if result else {}


def _section(heading: str, made: Iterable[Table], lines: Iterable[str] = ()) -> list[str]:
    return [re.sub(r"^#", "##", markdown(made, heading, lines), flags=re.MULTILINE)]


def _when(results: dict[str, dict[str, Any] | None]) -> str:
    """The commits and the days of the results: several, where a run was resumed later."""
    ended = [result for result in results.values() if result is not None]
    commits = dict.fromkeys(str(result.get("commit", "no commit")) for result in ended)
    days = sorted({str(result.get("date", "no date"))[:10] for result in ended})
    return ", ".join([*commits, *days]) or "no result yet"


def _stages(results: dict[str, dict[str, Any] | None]) -> Table:
    rows = []
    for stage in STAGES:
        found = results[stage.name]
        if found is None:
            rows.append([stage.name, "no result", "", "", f"{stage.planned:g}"])
            continue
        minutes = f"{found['seconds'] / 60:.1f}"
        rows.append([stage.name, found["state"], one_line(found["message"]), minutes, f"{stage.planned:g}"])
    return Table("What was run", ["stage", "state", "what came of it", "minutes", "planned"], rows, words=3)


def _machine(items: dict[str, Any]) -> list[str]:
    rows = [[name, _NONE if value is None else str(value)] for name, value in items.get("facts", {}).items()]
    doctor = items.get("doctor", {})
    lines = []
    if (problem := problem_of(doctor)) is not None:
        lines.append(f"`slotbench doctor` gave no report: {one_line(problem)}")
    elif doctor:
        broken = [finding for finding in doctor["findings"] if finding["state"] == "broken"]
        lines.append(f"`slotbench doctor`: {len(doctor['findings'])} findings, {len(broken)} broken.")
        lines += [f"- {finding['name']}: {one_line(finding['text'])}" for finding in broken]
    return _section("The machine", [Table("Facts", ["what", "value"], rows, words=2)], lines)


def _tests(items: dict[str, Any]) -> list[str]:
    rows = [[name, one_line(item["message"])] for name, item in items.items() if problem_of(item) is not None]
    made = [Table("Failures", ["test", "message"], rows, words=2)] if rows else []
    lines = [", ".join(f"{count} {outcome}" for outcome, count in counts(items).items()) + "."]
    if RUNNING in items:
        lines.append(f"The process ended in `{one_line(items[RUNNING]['test'])}`; later tests were not run.")
    return _section("Tests marked gpu", made, lines)


def _kernels(items: dict[str, Any]) -> list[str]:
    by_op: dict[str, list[dict[str, Any]]] = {}
    for item in items.values():
        by_op.setdefault(item["op"], []).append(item)
    headings = [
        "sequences x steps x width",
        "kernel",
        "forward, ms",
        "forward + backward, ms",
        "x torch",
        "MB",
        "error",
    ]
    made = []
    absent: dict[str, str] = {}
    for op, found in by_op.items():
        rows = []
        for item in found:
            size = f"{item['sequences']} x {item['steps']} x {item['width']}"
            for kernel, one in item["kernels"].items():
                if one.get("problem") == UNAVAILABLE:
                    absent[f"{op}/{kernel}"] = one["message"]
                    continue
                rows.append([size, kernel, *_kernel_cells(one, item["kernels"].get("torch", {}))])
                size = ""
        made.append(Table(op, headings, rows, words=2))
    lines = [
        "Medians (smallest to largest); kernels took turns. `x torch`: median of the ratios to kernel torch within a "
        "round, forward + backward. MB: peak beside the inputs, both directions. Error: largest difference of a value "
        "or gradient from the reference in float64, on two sequences, relative to the largest entry of its tensor.",
        *(f"- {name} was not run: {one_line(why)}" for name, why in absent.items()),
    ]
    return _section("Kernels", made, lines)


def _kernel_cells(one: dict[str, Any], base: dict[str, Any]) -> list[str]:
    if (problem := problem_of(one)) is not None:
        return [one_line(problem), "", "", "", ""]
    ratio = _NONE
    if base.get("both") and one.get("both"):
        # slow kernels have fewer rounds
        ratio = number(statistics.median(a / b for a, b in zip(one["both"], base["both"], strict=False)))
    memory = one.get("both_mb")
    return [_spread(one["forward"]), _spread(one["both"]), ratio, _or_none(memory), f"{float(one['error']):.0e}"]


def _spread(values: list[int | float]) -> str:
    return f"{number(statistics.median(values))} ({number(min(values))}–{number(max(values))})" if values else _NONE


def _or_none(value: int | float | None) -> str:
    return _NONE if value is None else number(float(value))


def _cores(path: Path) -> list[str]:
    stored = read_json_object_or_none(path)
    if stored is None:
        return []
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in stored["settings"].items()
    }
    points = {(point["core"], point["measure"], point["length"]): point for point in stored["points"]}
    results = Results(path, CoresSettings(**given), stored["environment"], points)
    if not points:
        return []
    return _section("Cores", cores_report.tables(results), cores_report.legend(results))


def _training(items: dict[str, Any]) -> list[str]:
    headings = ["family", "precision", "clips x frames, pixels", "steps/s", "peak MB", "steps", "parameters", "kernels"]
    rows = []
    for item in items.values():
        sizes = item["sizes"]
        shown = f"{sizes.get('batch')} x {sizes.get('num_frames', 1)}, {sizes.get('resolution')}"
        cells = [_or_none(item.get("steps_per_second")), _or_none(item.get("memory_mb")), f"{item.get('steps') or 0:,}"]
        if (problem := problem_of(item)) is not None:
            cells[0] = one_line(problem)
        kernels = ", ".join(f"{op}: {kernel}" for op, kernel in (item.get("kernels") or {}).items())
        parameters = f"{item['parameters']:,}" if item.get("parameters") else _NONE
        rows.append([item["family"], item["precision"], shown, *cells, parameters, kernels])
    files = dict.fromkeys((item["family"], " + ".join(item["files"]), item["stands_in"]) for item in items.values())
    lines = [
        "`slotbench fit` on the papers' settings, for a few hundred steps or the time there was. Steps per second are "
        "a mean over the last steps, at most 50, data loading included. Peak is what torch has allocated.",
        *(f"- {family}: `{file}`{f'; {instead}' if instead else ''}" for family, file, instead in files),
    ]
    return _section("Training at the papers' sizes", [Table("Speed and memory", headings, rows, words=3)], lines)


def _experiment(items: dict[str, Any]) -> list[str]:
    choice, run = items.get("choice", {}), items.get("run", {})
    speeds = {plan: _or_none(speed) for plan, speed in choice.get("steps_per_second", {}).items()}
    lines = [
        f"Blinking Color Balls: {choice.get('plan', 'no plan was chosen')}, {choice.get('steps', 0):,} steps, of which "
        f"{run.get('steps') or 0:,} were made at {_or_none(run.get('steps_per_second'))} steps/s.",
        f"Measured before the choice, steps/s: {', '.join(f'{plan}: {speed}' for plan, speed in speeds.items())}.",
    ]
    if (problem := problem_of(run)) is not None:
        lines.append(f"It has not come to its end: {one_line(problem)}")
    metrics = run.get("metrics", {})
    rows = []
    for headline in run.get("headlines", []):
        beside = {**headline.get("baselines", {}), **headline.get("oracles", {})}
        others = "; ".join(f"{one_line(name)}: {_score(value)}" for name, value in beside.items())
        rows.append([headline["metric"], headline["label"], _score(metrics.get(headline["metric"])), others])
    made = [Table("Scores", ["metric", "what", "score", "baselines and oracles"], rows, words=4)] if rows else []
    return _section("One experiment to its end", made, lines)


def _score(value: Any) -> str:
    return _NONE if value is None else f"{float(value):.3f}"
