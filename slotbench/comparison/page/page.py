"""A comparison as one HTML file: table, curves, metric against axis, settings and images, opened without a network.

The page's own files lie in `assets/`, the plotting library is BokehJS as the package bokeh carries it; here they are
put together with the data into one text. A content security policy in the page allows these scripts, by their hashes,
and nothing from anywhere else.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from slotbench import __version__
from slotbench.comparison.absence import baselines_over_absence
from slotbench.comparison.page.curves import CurveTable
from slotbench.comparison.page.media import embed
from slotbench.comparison.records import Cell, Comparison, ComparisonError, Row, RunRecord
from slotbench.comparison.table import regrouped
from slotbench.configurations import shortest_keys
from slotbench.files import plain, write_atomically
from slotbench.metric_info import infos_from_record

__all__ = ["describe", "write_html"]

# in the order in which they build on one another
_SCRIPTS = (
    *("base.js", "table.js", "export.js", "settings.js", "media.js", "plot.js", "series.js", "curves.js", "axis.js"),
)
_BOKEH = ("bokeh.min.js", "bokeh-api.min.js")
# bytes of a page, of its images and videos at least, and of the text about one of them beside its path
_PAGE, _LEAST_MEDIA, _ENTRY = 5_900_000, 1_000_000, 150
# what is shown of a run's record
_INFO = (
    *("step", "total_steps", "diverged_at", "error", "created", "device", "group"),
    *("seconds", "seconds_per_step", "command"),
)
_MOST_GROUPINGS = 8
_ABSENT = object()


def write_html(comparison: Comparison, path: Path, max_points: int = 400, media_budget: int | None = None) -> None:
    """Writes the comparison to `path` as one self-contained page, replacing what is there in one step.

    Every curve is read once, from one run at a time. The metrics of the table and the losses come first; further ones
    share what room is left, and are thinned or left out for it.

    Args:
        comparison: what to show.
        path: the file; its folder is made if there is none.
        max_points: most points of a curve.
        media_budget: most bytes that images and videos may take in the page; None for what the rest leaves of 6 MB.
            What is left out is named in the page.

    Raises:
        ValueError: `max_points` is below 2 or `media_budget` below 0.
    """
    if max_points < 2:
        raise ValueError(f"max_points is {max_points}; expected 2 or more")
    if media_budget is not None and media_budget < 0:
        raise ValueError(f"media_budget is {media_budget}; expected bytes, 0 for no images")
    script = f'(() => {{\n"use strict";\n{"".join(_read(name) for name in _SCRIPTS)}}})();\n'
    library = _bokeh()
    style = _read("style.css")
    data = {
        **describe(comparison, max_points),
        "made": datetime.now().astimezone().isoformat(timespec="seconds"),
        "version": __version__,
    }
    if media_budget is None:
        taken = sum(map(len, (script, style, *library, _as_json(data))))
        names = sum(len(str(file)) + _ENTRY for run in comparison.runs for file in run.media)
        media_budget = max(_LEAST_MEDIA, _PAGE - taken - names)
    media, contents = embed(comparison, media_budget)
    allowed = " ".join(f"'{_hash(text)}'" for text in (script, *library))
    parts = {
        "title": html.escape(comparison.title or "Comparison"),
        # Bokeh places its elements by styles that it writes as it draws; it evaluates no text
        "policy": f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "media-src data:; base-uri 'none'; form-action 'none'",
        "style": style,
        "script": script,
        "library": "\n".join(f'<script class="library">{text}</script>' for text in library),
        "data": _as_json({**data, "media": media}),
        "contents": _as_json(contents),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(_fill(_read("page.html"), parts)))


def _read(name: str) -> str:
    return files("slotbench.comparison.page").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _bokeh() -> tuple[str, ...]:
    """The scripts of BokehJS, from the installed package and without importing it."""
    spec = find_spec("bokeh")
    if spec is None or not spec.submodule_search_locations:
        raise ComparisonError("the page needs bokeh; type `pip install bokeh`")
    folder = Path(spec.submodule_search_locations[0]) / "server" / "static" / "js"
    # within a script element these two would end it, or open a comment; in JavaScript the backslash changes nothing
    texts = [(folder / name).read_text(encoding="utf-8") for name in _BOKEH]
    return tuple(text.replace("</script", "<\\/script").replace("<!--", "<\\!--") for text in texts)


def _fill(template: str, parts: dict[str, str]) -> Iterator[str]:
    """The template with its `{{name}}`s replaced in one pass, so that nothing in the data is taken for one."""
    first, *rest = template.split("{{")
    yield first
    for piece in rest:
        name, after = piece.split("}}", 1)
        yield parts[name]
        yield after


def _as_json(value: Any) -> str:
    """JSON that may stand inside a script element: no `<`, so nothing in it can end the element or open a comment."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def describe(comparison: Comparison, max_points: int) -> dict[str, Any]:
    """The comparison with its curves, numbers rounded to what a page can show.

    Numbers that are not finite are "NaN", "Infinity" or "-Infinity" in the table and null in the curves.

    Args:
        comparison: what to show.
        max_points: most points of a curve.
    """
    runs = comparison.runs
    common = _common_settings(runs)
    labels = shortest_keys(comparison.keys)
    positions = {run.id: position for position, run in enumerate(runs)}
    return {
        "title": comparison.title or "Comparison",
        "command": comparison.command,
        "notes": list(comparison.notes),
        "keys": [{"key": key, "label": labels[key]} for key in comparison.keys],
        "metrics": [
            {
                "name": metric.name,
                "label": metric.label or metric.name,
                "higher": metric.higher_is_better,
                "baselines": {name: _score(value) for name, value in metric.baselines.items()},
                "oracles": {name: _score(value) for name, value in metric.oracles.items()},
            }
            for metric in comparison.metrics
        ],
        "rows": _rows(comparison, positions),
        "groupings": [
            {"key": key, "label": labels[key], "rows": _rows(replace(comparison, rows=rows), positions)}
            for key, rows in _groupings(comparison)
        ],
        "runs": [_run(run, common) for run in runs],
        "common": plain(common),
        "order": list(dict.fromkeys(key for run in runs for key in run.settings)),
        "curves": CurveTable.read(comparison, max_points).as_dict(),
        "baseline_curves": _baseline_curves(runs),
    }


def _baseline_curves(runs: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """What baselines score along a curve, where it is no single number: curve -> baseline -> x and y."""
    return {
        curve: {
            name: {"x": sorted(points), "y": [_score(points[x]) for x in sorted(points)]} for name, points in of.items()
        }
        for curve, of in baselines_over_absence(
            (run.summary, infos_from_record(run.info.get("metric_infos"))) for run in runs
        ).items()
    }


def _rows(comparison: Comparison, positions: Mapping[str, int]) -> list[dict[str, Any]]:
    return [
        {
            "label": row.label,
            "settings": plain(row.settings),
            "runs": [positions[run.id] for run in row.runs],
            "cells": {name: _cell(row, name, cell) for name, cell in row.cells.items()},
            "parameters": row.parameters,
            "seconds_per_step": _score(row.seconds_per_step),
            "unfinished": row.unfinished,
            "diverged": row.diverged,
            **_protocol(comparison, row),
        }
        for row in comparison.rows
    ]


def _groupings(comparison: Comparison) -> Iterator[tuple[str, list[Row]]]:
    """Settings that put rows together, the most telling ones, with the rows that they make."""
    found = ((key, regrouped(comparison, key)) for key in comparison.keys)
    return islice(((key, rows) for key, rows in found if 1 < len(rows) < len(comparison.rows)), _MOST_GROUPINGS)


def _protocol(comparison: Comparison, row: Row) -> dict[str, Any]:
    """What a grid with a protocol says of a row; nothing for other comparisons."""
    shown = comparison.has_protocol
    return {
        "success": list(row.success) if shown and row.success and row.success[1] else None,
        "steps": row.steps if shown else None,
        "minutes": _score(row.seconds / 60) if shown and row.seconds is not None else None,
    }


def _cell(row: Row, name: str, cell: Cell) -> dict[str, Any]:
    return {
        "values": [_score(value) for value in cell.values],
        "by_run": _by_run(row, name, cell),
        "mean": _score(cell.mean),
        "std": _score(cell.std),
        "low": _score(cell.low),
        "high": _score(cell.high),
        "best": cell.is_best,
    }


def _by_run(row: Row, name: str, cell: Cell) -> list[Any]:
    """One value per run of the row, None for a run without one; empty if it cannot be told which run has which."""
    having = [
        (name in run.summary or name in run.best)
        and not (run.state == "diverged" and not math.isfinite(run.summary.get(name, 0.0)))
        for run in row.runs
    ]
    if len(cell.values) == len(row.runs):
        having = [True] * len(row.runs)
    if sum(having) != len(cell.values):
        return []
    values = iter(cell.values)
    return [_score(next(values)) if has else None for has in having]


def _run(run: RunRecord, common: Mapping[str, Any]) -> dict[str, Any]:
    known: Mapping[str, Any] = run.info
    info = {name: plain(known[name]) for name in _INFO if known.get(name) is not None}
    own = {key: value for key, value in run.settings.items() if key not in common}
    named = {"id": run.id, "name": run.name, "source": run.source, "state": run.state}
    return {**named, "seed": plain(run.settings.get("seed_everything")), **info, "own": plain(own)}


def _common_settings(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """Settings that all runs have with the same value; a page of many runs holds them once."""
    if len(runs) < 2:
        return {}
    first, *others = runs
    return {
        key: value
        for key, value in first.settings.items()
        if all(_same(run.settings.get(key, _ABSENT), value) for run in others)
    }


def _same(left: Any, right: Any) -> bool:
    # True == 1 == 1.0, but they are different settings
    return type(left) is type(right) and left == right


def _score(value: float | None) -> float | str | None:
    """Seven significant digits: more than anything is shown with, and half the text."""
    if value is None:
        return None
    number = float(value)
    if not math.isfinite(number):
        return plain(number)
    return float(np.format_float_positional(number, precision=7, fractional=False))
