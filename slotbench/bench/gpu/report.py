"""The page that a GPU day ends in: every stage's numbers, with the device, the date, the commit and the command."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from slotbench.bench import report as cores_report
from slotbench.bench.cores import Results
from slotbench.bench.cores import Settings as CoresSettings
from slotbench.bench.gpu.plan import RUNNING, STAGES, UNAVAILABLE, Items, Settings, problem_of
from slotbench.bench.report import Table, markdown, number, spread
from slotbench.files import read_json_object_or_none, write_atomically
from slotbench.text import one_line

__all__ = ["outcomes", "write_report"]

_NONE = "–"
_QUICK = "**Quick: tiny sizes, to see that every stage runs. These numbers say nothing of speed or quality.**"
_KERNELS = (
    "Medians (smallest to largest); kernels took turns. `x torch`: median of the ratios to kernel torch within a "
    "round, forward + backward. MB: peak beside the inputs, both directions. Error: largest difference of a value or "
    "gradient from the reference in float64, on two sequences, relative to the largest entry of its tensor."
)
_TRAINING = (
    "`slotbench fit` on the papers' settings, for a few hundred steps or the time there was. Steps per second are a "
    "mean over the last steps, at most 50, data loading included. Peak is what torch has allocated."
)


def write_report(settings: Settings) -> Path:
    """Writes OUT/report.md from the results that there are; a stage without one is named as such."""
    results = {stage.name: Items(settings.out, stage.name) for stage in STAGES}
    ended = [items.result for items in results.values() if items.result["state"]]
    identity = read_json_object_or_none(settings.out / "gpu.json") or {}
    facts = results["machine"].get("facts", {})
    device = one_line(facts.get("device") or identity.get("device") or "an unknown device")
    # several commits and days, where the day was resumed later
    commits = dict.fromkeys(str(result.get("commit", "no commit")) for result in ended)
    days = sorted({str(result.get("date", "no date"))[:10] for result in ended})
    parts = [f"# GPU run: {device}", *([_QUICK] if settings.quick else []), f"    {one_line(settings.command)}"]
    parts.append(
        f"{device}, torch {identity.get('torch', 'unknown')}, {', '.join([*commits, *days]) or 'no result yet'}."
    )
    parts.append(_section("Stages", [_stages(results)]))
    sections = {"machine": _machine, "gpu_tests": _tests, "kernels": _kernels, "cores": _cores}
    for name, section in {**sections, "training": _training, "experiment": _experiment}.items():
        try:
            parts += [section(results[name], settings.out)] if results[name] else []
        except Exception as error:  # it must not end the day that it reports
            why = one_line(f"{type(error).__name__}: {error}")
            parts += [f"## {name}", f"The results cannot be shown ({why}); they are in {name}.json."]
    path = settings.out / "report.md"
    write_atomically(path, "\n\n".join(part.strip("\n") for part in parts if part) + "\n")
    return path


def outcomes(items: Items) -> str:
    """How many tests passed, failed and were skipped, in words."""
    found = Counter(item["outcome"] for key, item in items.items() if key != RUNNING)
    return ", ".join(f"{found[outcome]} {outcome}" for outcome in ("passed", "failed", "skipped"))


def _section(heading: str, made: Iterable[Table], lines: Iterable[str] = ()) -> str:
    return re.sub(r"^#", "##", markdown(made, heading, lines), flags=re.MULTILINE)


def _stages(results: dict[str, Items]) -> Table:
    rows = []
    for stage in STAGES:
        cells = ["no result", "", ""]
        if (found := results[stage.name].result)["state"]:
            cells = [found["state"], one_line(found["message"]), f"{found['seconds'] / 60:.1f}"]
        rows.append([stage.name, *cells, f"{stage.planned:g}"])
    return Table("What was run", ["stage", "state", "what came of it", "minutes", "planned"], rows, words=3)


def _machine(items: Items, out: Path) -> str:
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


def _tests(items: Items, out: Path) -> str:
    rows = [[name, one_line(item["message"])] for name, item in items.items() if problem_of(item) is not None]
    lines = [f"{outcomes(items)}."]
    if RUNNING in items:
        lines.append(f"The process ended in `{one_line(items[RUNNING]['test'])}`; later tests were not run.")
    return _section("Tests marked gpu", [Table("Failures", ["test", "message"], rows, words=2)] if rows else [], lines)


def _kernels(items: Items, out: Path) -> str:
    headings = [
        "sequences x steps x width",
        "kernel",
        "forward, ms",
        "forward + backward, ms",
        "x torch",
        "MB",
        "error",
    ]
    rows: dict[str, list[list[str]]] = {item["op"]: [] for item in items.values()}
    absent: dict[str, str] = {}
    for item in items.values():
        size = f"{item['sequences']} x {item['steps']} x {item['width']}"
        for kernel, one in item["kernels"].items():
            if one.get("problem") == UNAVAILABLE:
                absent[f"{item['op']}/{kernel}"] = one["message"]
                continue
            rows[item["op"]].append([size, kernel, *_kernel_cells(one, item["kernels"].get("torch", {}))])
            size = ""
    lines = [_KERNELS, *(f"- {name} was not run: {one_line(why)}" for name, why in absent.items())]
    return _section("Kernels", [Table(op, headings, cells, words=2) for op, cells in rows.items()], lines)


def _kernel_cells(one: dict[str, Any], base: dict[str, Any]) -> list[str]:
    if (problem := problem_of(one)) is not None:
        return [one_line(problem), "", "", "", ""]
    # slow kernels have fewer rounds
    ratios = [a / b for a, b in zip(one["both"], base.get("both") or [], strict=False)]
    ratio = _or_none(statistics.median(ratios) if ratios else None)
    return [spread(one["forward"]), spread(one["both"]), ratio, _or_none(one.get("both_mb")), f"{one['error']:.0e}"]


def _or_none(value: float | None) -> str:
    return _NONE if value is None else number(float(value))


def _cores(items: Items, out: Path) -> str:
    stored = read_json_object_or_none(out / "cores" / "cores.json")
    if stored is None or not stored["points"]:
        return ""
    points = {(point["core"], point["measure"], point["length"]): point for point in stored["points"]}
    results = Results(out, CoresSettings(**stored["settings"]), stored["environment"], points)
    return _section("Cores", cores_report.tables(results), cores_report.legend(results))


def _training(items: Items, out: Path) -> str:
    headings = ["family", "precision", "clips x frames, pixels", "steps/s", "peak MB", "steps", "parameters", "kernels"]
    rows = []
    for item in items.values():
        sizes, problem = item["sizes"], problem_of(item)
        shown = f"{sizes.get('batch')} x {sizes.get('num_frames', 1)}, {sizes.get('resolution')}"
        speed = _or_none(item.get("steps_per_second")) if problem is None else one_line(problem)
        parameters = f"{item['parameters']:,}" if item.get("parameters") else _NONE
        cells = [speed, _or_none(item.get("memory_mb")), f"{item.get('steps') or 0:,}", parameters]
        kernels = ", ".join(f"{op}: {kernel}" for op, kernel in (item.get("kernels") or {}).items())
        rows.append([item["family"], item["precision"], shown, *cells, kernels])
    files = dict.fromkeys((item["family"], " + ".join(item["files"]), item["stands_in"]) for item in items.values())
    lines = [f"- {family}: `{file}`{f'; {instead}' if instead else ''}" for family, file, instead in files]
    table = Table("Speed and memory", headings, rows, words=3)
    return _section("Training at the papers' sizes", [table], [_TRAINING, *lines])


def _experiment(items: Items, out: Path) -> str:
    choice, run = items.get("choice", {}), items.get("run", {})
    speeds = ", ".join(f"{plan}: {_or_none(speed)}" for plan, speed in choice.get("steps_per_second", {}).items())
    lines = [
        f"Blinking Color Balls: {choice.get('plan', 'no plan was chosen')}, {choice.get('steps', 0):,} steps, of which "
        f"{run.get('steps') or 0:,} were made at {_or_none(run.get('steps_per_second'))} steps/s.",
        f"Measured before the choice, steps/s: {speeds}.",
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


def _score(value: float | None) -> str:
    return _NONE if value is None else f"{float(value):.3f}"
