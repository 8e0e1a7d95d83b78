"""Tables of numbers for the terminal and as Markdown, and those of a bench of cores with their growth exponents."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table as RichTable

from slotbench.bench.cores import Results
from slotbench.bench.harness import OUT_OF_MEMORY, OUT_OF_TIME, SKIPPED
from slotbench.files import write_atomically
from slotbench.text import markdown_cell, one_line, rich_text

__all__ = [
    "PANELS",
    "Panel",
    "Table",
    "exponent",
    "growth",
    "is_disturbed",
    "legend",
    "markdown",
    "number",
    "rich_table",
    "spread",
    "summary",
    "tables",
    "write_report",
]


@dataclass(frozen=True)
class Table:
    """Headings and rows of text; the first `words` columns are words, the others numbers."""

    title: str
    headings: list[str]
    rows: list[list[str]]
    words: int = 1


def rich_table(table: Table) -> RichTable:
    """The table for a terminal."""
    shown = RichTable(title=rich_text(table.title), title_justify="left", title_style="bold", box=None, pad_edge=False)
    for index, heading in enumerate(table.headings):
        words = index < table.words
        shown.add_column(rich_text(heading), justify="left" if words else "right", no_wrap=words)
    for row in table.rows:
        shown.add_row(*map(rich_text, row))
    return shown


def markdown(made: Iterable[Table], heading: str, lines: Iterable[str]) -> str:
    """The tables as a page below some paragraphs."""
    parts = [f"# {heading}", *lines]
    for table in made:
        rows = [f"| {' | '.join(map(markdown_cell, cells))} |" for cells in (table.headings, *table.rows)]
        rows.insert(1, "|---" * table.words + "|" + "---:|" * (len(table.headings) - table.words))
        parts += [f"## {table.title}", "\n".join(rows)]
    return "\n\n".join(parts) + "\n"


def number(value: float) -> str:
    """Three significant digits, without an exponent, thousands separated."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    rounded = float(f"{value:.3g}")
    digits = max(0, 2 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:,.{digits}f}"


def spread(values: Sequence[float]) -> str:
    """The median, and in brackets the smallest and the largest of several."""
    around = f" ({number(min(values))}–{number(max(values))})" if len(values) > 1 else ""
    return number(statistics.median(values)) + around


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The p of values ~ size^p: the slope of a line through the logarithms."""
    return statistics.linear_regression([math.log(size) for size in sizes], [math.log(value) for value in values]).slope


# --- cores

_SHORT = {OUT_OF_MEMORY: "memory", OUT_OF_TIME: "time", "error": "error", SKIPPED: "–"}


@dataclass(frozen=True)
class Panel:
    """One quantity over the length of the clip: which measure has it, and how to read it off a point."""

    title: str
    measure: str
    unit: str
    key: str

    def values(self, point: dict[str, Any]) -> list[float]:
        """One number per repeat, in `unit`; none where it was not measured."""
        scale = {"seconds": 1e3, "flops": 1e-9}.get(self.key, 1.0)
        found = point.get(self.key, [])
        return [scale * value for value in (found if isinstance(found, list) else [found])]


PANELS = (
    Panel("Inference latency", "inference", "ms", "seconds"),
    Panel("Training step", "training", "ms", "seconds"),
    Panel("Peak memory of a training step", "training", "MB", "memory_mb"),
    Panel("Operations of inference", "inference", "GFLOP", "flops"),
    Panel("Operations of a training step", "training", "GFLOP", "flops"),
)
_TABLES = (*PANELS, Panel("Peak memory of inference", "inference", "MB", "memory_mb"))


def write_report(results: Results, page: Path, figure: str) -> list[Table]:
    """Adds the growth to the file of the results, writes the page with the figure's name, and returns its tables."""
    fits = [(panel, core, growth(results, core, panel)) for panel in _TABLES for core in results.cores()]
    results.write(
        growth=[
            {"core": core, "quantity": panel.title, "exponent": fit[0], "lengths": fit[1]}
            for panel, core, fit in fits
            if fit is not None
        ]
    )
    lines = [f"    {one_line(results.environment['command'])}", *legend(results)]
    lines.append(f"![latency, training step, memory and streaming against length]({figure})")
    made = tables(results)
    write_atomically(page, markdown(made, "Cores: cost against sequence length", lines))
    return made


def growth(results: Results, core: str, panel: Panel) -> tuple[float, list[int]] | None:
    """Exponent over the upper three lengths that have the quantity, and these; None for fewer than two."""
    measured = [(point["length"], panel.values(point)) for point in results.series(core, panel.measure)]
    measured = [(length, values) for length, values in measured if values][-3:]
    if len(measured) < 2:
        return None
    lengths = [length for length, _ in measured]
    return exponent(lengths, [max(1e-9, statistics.median(values)) for _, values in measured]), lengths


def tables(results: Results) -> list[Table]:
    """One table per quantity, and one for streaming."""
    return [*(_panel_table(results, panel) for panel in _TABLES), _streaming_table(results)]


def _panel_table(results: Results, panel: Panel) -> Table:
    lengths = results.lengths()
    rows = []
    for core in results.cores():
        cells = [_cell(results, results.get(core, panel.measure, length), panel) for length in lengths]
        fit = growth(results, core, panel)
        grows = f"T^{fit[0]:.2f} ({fit[1][0]} to {fit[1][-1]})" if fit else ""
        counts = [p["parameters"] for (name, _, _), p in results.points.items() if name == core and "parameters" in p]
        rows.append([core, f"{counts[0]:,}" if counts else "", *cells, grows])
    headings = ["core", "parameters", *(f"T={length}" for length in lengths), "grows as"]
    return Table(f"{panel.title}, {panel.unit}", headings, rows)


def _cell(results: Results, point: dict[str, Any] | None, panel: Panel) -> str:
    if point is not None and "problem" in point:
        return _SHORT[point["problem"]]
    if point is None or not (values := panel.values(point)):
        return ""
    return ("~" if panel.unit == "ms" and is_disturbed(results, point) else "") + spread(values)


def _streaming_table(results: Results) -> Table:
    rows = []
    for point in (point for core in results.cores() for point in results.series(core, "streaming")[-1:]):
        cells = ["", "", "", _SHORT.get(point.get("problem", ""), ""), "", "", ""]
        if "problem" not in point:
            early, late = (number(1e3 * statistics.median(point[name])) for name in ("early", "late"))
            ratios = point["ratio"]
            around = f" ({min(ratios):.2f}–{max(ratios):.2f})" if len(ratios) > 1 else ""
            cells = [f"{point['early_steps']:,}", early, f"{point['steps']:,}", late]
            cells.append(f"{statistics.median(ratios):.2f}{around}")
            cells += [number(point[name]) for name in ("early_state_mb", "late_state_mb")]
        rows.append([point["core"], *cells])
    headings = ["core", "early: after", "ms", "late: after", "ms", "late to early", "early state, MB", "late, MB"]
    return Table("Streaming, one step at a time with carried state", headings, rows)


def _noise(results: Results) -> list[float]:
    """Milliseconds of the fixed piece of work that is timed around every point."""
    return [1e3 * value for point in results.points.values() for value in point.get("noise", [])]


def is_disturbed(results: Results, point: dict[str, Any]) -> bool:
    """Whether the fixed piece of work took half as long again around this point as it usually did."""
    found = point.get("noise", [])
    return bool(found) and 1e3 * max(found) > 1.5 * statistics.median(_noise(results))


def summary(point: dict[str, Any]) -> str:
    """A point in a few words."""
    if "problem" in point:
        return f"{point['problem']}: {point['message']}"
    if point["measure"] == "streaming":
        late, ratio = 1e3 * statistics.median(point["late"]), statistics.median(point["ratio"])
        return f"{number(late)} ms per step after {point['steps']:,} steps, late to early {ratio:.2f}"
    work = f", {number(1e-9 * point['flops'])} GFLOP" if "flops" in point else ""
    return f"{number(1e3 * statistics.median(point['seconds']))} ms, {number(point['memory_mb'])} MB{work}"


def legend(results: Results) -> list[str]:
    """How to read the tables: what was measured on what, and what stands for a missing number."""
    settings, there = results.settings, results.environment
    device = there["device"] if settings.device == "cuda" else f"{there['device']}, CPU"
    threads = f"{settings.threads} thread{'' if settings.threads == 1 else 's'}"
    lines = [
        f"Batch {settings.batch}, {settings.tokens} tokens of width {settings.dim} per step; {settings.slots} slots of "
        f"width {settings.dim} where a core takes them, its defaults otherwise; sizes are not matched.",
        f"{device}, {threads}, torch {there['versions']['torch']}; median of {settings.repeats} (min–max). A training "
        "step is forward, backward (mean square of the slots) and AdamW; inference is a forward pass without gradient; "
        "memory is what the process takes beyond the idle one, weights and optimiser included.",
        "Operations are those of matrix products, convolutions and fused attention as PyTorch runs them, two for a "
        "multiply-add: what a mask takes out is counted; what is done element by element or by scan kernels is not.",
        f'"memory": out of memory above {settings.memory:g} GiB; "time": longer than {settings.seconds:g} s; "–": not '
        "tried, because less has failed. Growth is the log-log slope over the lengths in brackets.",
    ]
    if noise := _noise(results):
        lines.append(
            f"Noise of the machine: a fixed piece of work, timed around every point, took "
            f"{number(statistics.median(noise))} ms ({number(min(noise))}–{number(max(noise))}); "
            '"~": it took half as long again around this one.'
        )
    errors = [point for point in results.points.values() if point.get("problem") == "error"]
    lines += [f"{point['core']}, {point['measure']} at T={point['length']}: {point['message']}" for point in errors]
    return lines
