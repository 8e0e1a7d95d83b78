"""A comparison as one HTML file: table, curves, metric against axis, settings and pictures, opened without a network.

The page's own files lie in `page/`; here they are put together with the data into one text. A content security policy
in the page allows this one script and this one style sheet, by their hashes, and nothing from anywhere else.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterator
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from slotbench import __version__
from slotbench.comparison.html_data import describe
from slotbench.comparison.html_media import MEDIA_BUDGET, embed
from slotbench.comparison.records import Comparison
from slotbench.runs.folder import write_atomically

__all__ = ["write_html"]

# in the order in which they build on one another
_SCRIPTS = (
    *("base.js", "columns.js", "table.js", "plot.js", "series.js", "curves.js"),
    *("axis.js", "settings.js", "media.js", "start.js"),
)


def write_html(comparison: Comparison, path: Path, max_points: int = 400, media_budget: int = MEDIA_BUDGET) -> None:
    """Writes the comparison to `path` as one self-contained page, replacing what is there in one step.

    Every curve is read once, from one run at a time. The metrics of the table and the losses keep `max_points` points
    of each run; further metrics share what room is left, and are thinned or left out for it.

    Args:
        comparison: what to show.
        path: the file; its folder is made if there is none.
        max_points: most points of a curve.
        media_budget: most bytes that pictures and videos may take in the page. What is left out is named in it.

    Raises:
        ValueError: `max_points` is below 2 or `media_budget` below 0.
    """
    if max_points < 2:
        raise ValueError(f"max_points is {max_points}; expected 2 or more")
    if media_budget < 0:
        raise ValueError(f"media_budget is {media_budget}; expected bytes, 0 for no pictures")
    media, contents = embed(comparison, media_budget)
    data = {
        **describe(comparison, max_points),
        "media": media,
        "made": datetime.now().astimezone().isoformat(timespec="seconds"),
        "version": __version__,
    }
    script = f'(() => {{\n"use strict";\n{"".join(_read(name) for name in _SCRIPTS)}}})();\n'
    style = _read("style.css")
    parts = {
        "title": html.escape(comparison.title or "Comparison"),
        "policy": f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "media-src data:; base-uri 'none'; form-action 'none'",
        "style": style,
        "script": script,
        "data": _as_json(data),
        "contents": _as_json(contents),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(_fill(_read("page.html"), parts)))


def _read(name: str) -> str:
    return files("slotbench.comparison").joinpath("page", name).read_text(encoding="utf-8")


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
