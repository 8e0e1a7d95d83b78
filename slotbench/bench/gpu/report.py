"""The page of a slice, to be pasted into docs/benchmarks.md: its numbers, with device, date, commit and command."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

from slotbench.bench import report as cores_report
from slotbench.bench.cores import Results
from slotbench.bench.cores import Settings as CoresSettings
from slotbench.bench.gpu.plan import RUNNING, UNAVAILABLE, Items, Slice, problem_of
from slotbench.bench.report import Table, markdown, number, spread
from slotbench.files import read_json_object_or_none, write_atomically
from slotbench.text import one_line

__all__ = ["outcomes", "write_report"]

_NONE = "–"
_QUICK = "**Quick: tiny sizes, to see that it runs. These numbers say nothing of speed or quality.**"
_KERNELS = (
    "Medians (smallest to largest); kernels took turns. Sizes: sequences x steps x width, of inverted attention frames "
    "x tokens x width. `x torch`: median of the ratios to kernel torch (of inverted attention: reference) within a "
    "round, forward + backward. MB: peak beside the inputs, both directions. Error: largest difference of a value or "
    "gradient from the reference in float64, on two sequences, relative to the largest entry of its tensor."
)
_TRAINING = (
    "`slotbench fit` on the papers' settings. Steps per second: mean over 20 steps after 5, data loading included. "
    "Busy: the time in which the device runs kernels or copies in a step, by its profiler, as a share of such a step. "
    "Peak is what torch has allocated."
)


def write_report(one: Slice, items: Items) -> Path:
    """Writes OUT/SLICE.md from the results that there are."""
    result = items.result
    facts = result.get("facts", {})
    versions = [f"{name} {facts[name]}" for name in ("driver", "torch", "triton", "mamba-ssm") if facts.get(name)]
    seconds = f", {result['seconds'] / 60:.1f} minutes" if result.get("seconds") else ""
    parts = [
        f"## {one.name}: {one.what}, on {one_line(facts.get('device', 'an unknown device'))}",
        *([_QUICK] if result.get("quick") else []),
        f"    {one_line(result.get('command', ''))}",
        f"{', '.join([*map(one_line, versions), one_line(result.get('commit', '')), str(result.get('date', ''))[:10]])}"
        f". {one_line(result['state'] or 'running')}{seconds}: {one_line(result['message'])}",
    ]
    sections = {"gpu_tests": _tests, "kernels": _kernels, "cores": _cores, "training": _training, "compiled": _training}
    section = {**sections, "study": _study, "experiment": _experiment}[one.stage.partition(".")[2]]
    try:
        tables, lines = section(items) if items else ([], [])
        page = re.sub(r"^#", "##", markdown(tables, "-", lines), flags=re.MULTILINE)
        parts.append(page.partition("\n\n")[2])
    except Exception as error:  # it must not end the slice that it reports
        why = one_line(f"{type(error).__name__}: {error}")
        parts.append(f"The results cannot be shown ({why}); they are in {items.path.name}.")
    path = items.path.with_suffix(".md")
    write_atomically(path, "\n\n".join(part.strip("\n") for part in parts if part) + "\n")
    return path


def outcomes(items: Items) -> str:
    """How many tests passed, failed and were skipped, in words."""
    found = Counter(item["outcome"] for key, item in items.items() if key != RUNNING)
    return ", ".join(f"{found[outcome]} {outcome}" for outcome in ("passed", "failed", "skipped"))


_Shown = tuple[list[Table], list[str]]


def _tests(items: Items) -> _Shown:
    rows = [[name, one_line(item["message"])] for name, item in items.items() if problem_of(item) is not None]
    lines = [f"{outcomes(items)}."]
    doctor = items.result.get("doctor", {})
    if (problem := problem_of(doctor)) is not None:
        lines.append(f"`slotbench doctor` gave no report: {one_line(problem)}")
    elif doctor:
        broken = [finding for finding in doctor["findings"] if finding["state"] == "broken"]
        lines.append(f"`slotbench doctor`: {len(doctor['findings'])} findings, {len(broken)} broken.")
        lines += [f"- {finding['name']}: {one_line(finding['text'])}" for finding in broken]
    if RUNNING in items:
        lines.append(f"The process ended in `{one_line(items[RUNNING]['test'])}`; later tests were not run.")
    return [Table("Failures", ["test", "message"], rows, words=2)] if rows else [], lines


def _kernels(items: Items) -> _Shown:
    headings = [
        "size",
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
            base = item["kernels"].get("torch") or item["kernels"].get("reference", {})
            rows[item["op"]].append([size, kernel, *_kernel_cells(one, base)])
            size = ""
    lines = [_KERNELS, *(f"- {name} was not run: {one_line(why)}" for name, why in absent.items())]
    return [Table(op, headings, cells, words=2) for op, cells in rows.items()], lines


def _kernel_cells(one: dict[str, Any], base: dict[str, Any]) -> list[str]:
    if (problem := problem_of(one)) is not None:
        return [one_line(problem), "", "", "", ""]
    # slow kernels have fewer rounds
    ratios = [a / b for a, b in zip(one["both"], base.get("both") or [], strict=False)]
    ratio = _or_none(statistics.median(ratios) if ratios else None)
    return [spread(one["forward"]), spread(one["both"]), ratio, _or_none(one.get("both_mb")), f"{one['error']:.0e}"]


def _or_none(value: float | None) -> str:
    return _NONE if value is None else number(float(value))


def _cores(items: Items) -> _Shown:
    out = items.path.with_suffix(".cores")
    stored = read_json_object_or_none(out / "cores.json")
    if stored is None or not stored["points"]:
        return [], []
    points = {(point["core"], point["measure"], point["length"]): point for point in stored["points"]}
    results = Results(out, CoresSettings(**stored["settings"]), stored["environment"], points)
    return list(cores_report.tables(results)), list(cores_report.legend(results))


def _training(items: Items) -> _Shown:
    headings = ["family", "precision", "clips x frames, pixels", "steps/s", "busy", "peak MB", "parameters", "kernels"]
    rows, longest = [], []
    for item in items.values():
        sizes, problem, mode = item["sizes"], problem_of(item), item.get("compile", "off")
        precision = item["precision"] if mode == "off" else f"{item['precision']}, compile {mode}"
        shown = f"{sizes.get('batch')} x {sizes.get('num_frames', 1)}, {sizes.get('resolution')}"
        speed = _or_none(item.get("steps_per_second")) if problem is None else one_line(problem)
        parameters = f"{item['parameters']:,}" if item.get("parameters") else _NONE
        profile: dict[str, Any] | None = item.get("profile")
        busy = f"{profile['busy_seconds'] / profile['seconds_per_step']:.0%}" if profile else _NONE
        cells = [speed, busy, _or_none(item.get("memory_mb")), parameters]
        for kernel in profile["longest"] if profile else ():
            times = [number(1e3 * kernel["seconds"]), f"{kernel['share']:.0%}", number(kernel["calls"])]
            longest.append([item["family"], precision, one_line(kernel["name"], 80), *times])
        kernels = ", ".join(f"{op}: {kernel}" for op, kernel in (item.get("kernels") or {}).items())
        rows.append([item["family"], precision, shown, *cells, kernels])
    files = dict.fromkeys((item["family"], " + ".join(item["files"]), item["stands_in"]) for item in items.values())
    lines = [f"- {family}: `{file}`{f'; {instead}' if instead else ''}" for family, file, instead in files]
    titles = ["family", "precision", "kernel", "ms a step", "of kernel time", "calls a step"]
    tables = [Table("Speed and memory", headings, rows, words=3)]
    return [*tables, Table("The longest kernels", titles, longest, words=3)], [_TRAINING, *lines]


def _study(items: Items) -> _Shown:
    points = items["points"]
    line = f"`{points['grid']}`: {points['done']} of {points['points'] or 'all'} points done."
    return [], [
        f"{line} `slotbench grid unpack {points['grid']} {items.path.stem}.records.zip` lays out their records."
    ]


def _experiment(items: Items) -> _Shown:
    run = items["run"]
    lines = [
        f"`{run['config']}`: {run['step'] or 0:,} of {run['total_steps'] or 0:,} steps in "
        f"{(run['seconds'] or 0) / 60:.0f} minutes, {_or_none(run['steps_per_second'])} steps/s, {run['state']}."
    ]
    metrics = run["metrics"] or {}
    rows = []
    for headline in run["headlines"] or []:
        beside = {**headline.get("baselines", {}), **headline.get("oracles", {})}
        others = "; ".join(f"{one_line(name)}: {_score(value)}" for name, value in beside.items())
        rows.append([headline["metric"], headline["label"], _score(metrics.get(headline["metric"])), others])
    made = [Table("Scores", ["metric", "what", "score", "baselines and oracles"], rows, words=4)] if rows else []
    return made, lines


def _score(value: float | None) -> str:
    return _NONE if value is None else f"{float(value):.3f}"
