"""A comparison as one HTML file that opens offline: table, curves, settings that differ, images.

The table is written here; `page.js` sorts and filters it, opens its rows and chooses its columns. Bokeh draws the
curves. A content security policy keeps the page from contacting anything.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from html import escape
from importlib.resources import files
from pathlib import Path

import pandas as pd

from slotbench import __version__
from slotbench.comparison.formats import MARK, sheet
from slotbench.comparison.metrics import Column, choose_columns
from slotbench.comparison.plots import colour, draw_curves
from slotbench.comparison.settings import SEED
from slotbench.comparison.table import Cell, Comparison, Row
from slotbench.configurations import shortest_keys
from slotbench.io import write_atomically
from slotbench.metric_info import is_reference

__all__ = ["write_html"]

_TYPES = {".png": "image/png", ".gif": "image/gif", ".jpg": "image/jpeg", ".jpeg": "image/jpeg"} | {
    ".webp": "image/webp",
    ".mp4": "video/mp4",
    ".webm": "video/webm",
}
_DRAWN_BY_THE_PAGE = ("loss.png", "metrics.png")
_MOST_COLUMNS, _MOST_MEDIA = 40, 2_800_000
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; media-src data:; "
    "base-uri 'none'; form-action 'none'"
)


def write_html(comparison: Comparison, path: Path) -> None:
    """Writes the comparison to `path` as one self-contained page.

    Args:
        comparison: what to show.
        path: the file; its folder is made if there is none.
    """
    plots, scripts, left_out = draw_curves(comparison)
    table, menu = _table(comparison)
    sections = {
        "Table": f'<div class="controls">{menu}</div><div class="scroll tall">{table}</div>'
        f'<p class="quiet small">Highlighted: {MARK}. ▸ opens a row; a heading sorts.</p>',
        "Curves": f'<div class="plots">{plots}</div><p class="quiet small">{_left_out(left_out)}</p>' if plots else "",
        "Settings": _settings(comparison),
        "Images": _images(comparison),
    }
    shown = {name: text for name, text in sections.items() if text}
    title = escape(comparison.title or "Comparison")
    links = "".join(f'<a href="#{name}">{name}</a>' for name in shown)
    body = "".join(f'<section id="{name}"><h2>{name}</h2>{text}</section>' for name, text in shown.items())
    facts = f"{len(comparison.rows)} rows, {len(comparison.runs)} runs, {datetime.now():%Y-%m-%d %H:%M}"
    command = f'<code class="command">{escape(comparison.command)}</code>' if comparison.command else ""
    notes = "".join(f"<li>{escape(note)}</li>" for note in comparison.notes)
    page = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{_read("page.css")}</style>
</head>
<body>
<header class="top"><h1>{title}</h1><p class="quiet">{facts}</p>{command}<ul id="notes">{notes}</ul></header>
<div class="bar"><nav>{links}</nav><span class="spring"></span><span id="shown" class="quiet"></span>
<input type="search" id="filter" placeholder="Filter rows, e.g. SAVi num_slots=9 -failed" autocomplete="off"
 title="Words that a row must all have; KEY=VALUE: a setting; -word: must not"></div>
<main>{body}</main>
<footer class="quiet small">slotbench {__version__}</footer>
<dialog id="viewer"></dialog>
{scripts}
<script>{_read("page.js")}</script>
</body>
</html>
"""
    path.absolute().parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, page)


def _read(name: str) -> str:
    return files("slotbench.comparison").joinpath(name).read_text(encoding="utf-8")


def _left_out(names: Sequence[str]) -> str:
    more = f" Not drawn: {', '.join(names[:30])}{' …' if len(names) > 30 else ''}." if names else ""
    return escape(
        "Mean over the seeds of a row, and one standard deviation; dashed: baselines. Click a name to hide it, drag to "
        f"zoom.{more}"
    )


def _table(comparison: Comparison) -> tuple[str, str]:
    """The table and the menu of its columns."""
    others, _ = choose_columns(comparison.runs, _further(comparison)) if _further(comparison) else ([], [])
    rows = [_with_cells(row, comparison, others) for row in comparison.rows]
    full = Comparison("", "", comparison.runs, comparison.keys, [*comparison.columns, *others], rows)
    made = sheet(full)
    heads = made.heads[made.texts : -1]
    columns = full.columns
    short = shortest_keys(comparison.keys)
    names = [*(short[key] for key in comparison.keys), *heads, "seeds"]
    hidden = {short[key] for key in comparison.keys} | set(heads[len(heads) - len(others) :] if others else ())
    head = "".join(
        _head(name, place, name in hidden, place >= len(comparison.keys)) for place, name in enumerate(names)
    )
    body = []
    for index, (row, texts) in enumerate(zip(rows, made.rows, strict=True)):
        settings = [(row.settings.get(key, "–"), row.settings.get(key, "")) for key in comparison.keys]
        values = [row.parameters] * ("parameters" in heads) + [row.seconds_per_step] * ("s per step" in heads)
        values += [row.cells[column.name].mean if column.name in row.cells else None for column in columns]
        cells = [_td(text, value, place, names[place] in hidden) for place, (text, value) in enumerate(settings)]
        for place, (text, value) in enumerate(zip(texts[made.texts : -1], values, strict=False), len(settings)):
            best = (index, place - len(settings) + made.texts) in made.best
            cells.append(_td(text, value, place, names[place] in hidden, best=best, number=True))
        cells.append(_td(texts[-1], len(row.runs), len(names) - 1, number=True))
        words = escape(" ".join([row.label, *row.states]).lower(), quote=True)
        own = escape(" ".join(f"{key}={value}" for key, value in _all_settings(row, comparison)).lower(), quote=True)
        badge = "".join(f'<span class="badge {state}">{state}</span>' for state in dict.fromkeys(row.states))
        badge = "" if set(row.states) == {"finished"} else badge
        first = (
            f'<th><span class="first"><button class="open" aria-label="Open row">▸</button>{_swatch(index)}'
            f'<span class="name">{escape(row.label)}</span>{badge}</span></th>'
        )
        body.append(f'<tr data-row="{index}" data-words="{words}" data-settings="{own}">{first}{"".join(cells)}</tr>')
        body.append(
            f'<tr class="detail" data-of="{index}" hidden><td colspan="99">{_details(row, comparison)}</td></tr>'
        )
    below = []
    for line in made.baselines:
        texts = ["" for _ in comparison.keys] + line[made.texts :]
        cells = [_td(text, None, place, names[place] in hidden, number=True) for place, text in enumerate(texts)]
        below.append(f"<tr><th>{escape(line[0])}</th>{''.join(cells)}</tr>")
    choices = "".join(
        f'<label class="check"><input type="checkbox" data-column="{place}"{"" if name in hidden else " checked"}>'
        f"{escape(name)}</label>"
        for place, name in enumerate(names)
    )
    menu = f'<details class="menu"><summary>Columns</summary><div class="sheet choices">{choices}</div></details>'
    table = f'<table><thead><tr><th><button data-sort="-1">row</button></th>{head}</tr></thead>'
    table += f'<tbody class="rows">{"".join(body)}</tbody><tbody class="baselines">{"".join(below)}</tbody></table>'
    return table, menu


def _further(comparison: Comparison) -> list[str]:
    """Scores beyond the columns of the comparison, which the menu of columns offers."""
    shown = {column.name for column in comparison.columns}
    scores = comparison.runs.scores
    return [name for name in scores if name not in shown and name.startswith("val/") and not is_reference(name)][
        :_MOST_COLUMNS
    ]


def _with_cells(row: Row, comparison: Comparison, columns: Sequence[Column]) -> Row:
    scores = comparison.runs.scores.loc[list(row.runs)]
    found = {column.name: Cell(scores[column.name].dropna().to_dict()) for column in columns}
    cells = {**row.cells, **{name: cell for name, cell in found.items() if cell.values}}
    return Row(row.label, row.settings, row.runs, row.states, cells, row.parameters, row.seconds_per_step, row.success)


def _head(name: str, place: int, hidden: bool, number: bool) -> str:
    attributes = f'class="{"number" if number else ""}" data-c="{place}"{" hidden" if hidden else ""}'
    return f'<th {attributes}><button data-sort="{place}">{escape(name)}</button></th>'


def _td(text: str, value: object, place: int, hidden: bool = False, *, best: bool = False, number: bool = False) -> str:
    classes = " ".join(["number"] * number + ["best"] * best)
    sortable = "" if value is None else escape(str(value), quote=True)
    return f'<td class="{classes}" data-c="{place}" data-v="{sortable}"{" hidden" * hidden}>{escape(text)}</td>'


def _swatch(index: int) -> str:
    return f'<span class="swatch" style="background:{colour(index)}"></span>'


def _all_settings(row: Row, comparison: Comparison) -> Iterator[tuple[str, str]]:
    for key, values in comparison.runs.settings.loc[list(row.runs)].items():
        for value in values.dropna().unique():
            yield str(key), value
            yield str(key).rpartition(".")[2], value


def _details(row: Row, comparison: Comparison) -> str:
    """The runs of a row: seed, scores, state, folder."""
    runs = comparison.runs
    columns = [column for column in comparison.columns if column.name in row.cells]
    heads = ["seed", *(column.label for column in columns), "state", "steps", "minutes", "folder", "error"]
    lines = []
    for id in row.runs:
        facts = runs.facts.loc[id]
        scores = [row.cells[column.name].values.get(id) for column in columns]
        minutes = "" if pd.isna(facts["seconds"]) else f"{float(facts['seconds']) / 60:.1f}"
        step = "" if pd.isna(facts["step"]) else f"{facts['step']:.0f}"
        texts = [runs.runs[id].settings.get(SEED, ""), *("" if value is None else f"{value:.5g}" for value in scores)]
        texts += [
            facts["state"],
            step,
            minutes,
            facts["source"],
            facts["error"] if isinstance(facts["error"], str) else "",
        ]
        lines.append("".join(f"<td>{escape(str(text))}</td>" for text in texts))
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    return f'<table class="inner"><tr>{head}</tr>{"".join(f"<tr>{line}</tr>" for line in lines)}</table>'


def _settings(comparison: Comparison) -> str:
    """Settings that are not the same for all rows, a column a row."""
    settings = comparison.runs.settings
    lines = []
    for key in settings:
        texts = [", ".join(settings.loc[list(row.runs), key].fillna("–").unique()) for row in comparison.rows]
        if len({*texts}) > 1:
            cells = "".join(f'<td data-r="{index}">{escape(text)}</td>' for index, text in enumerate(texts))
            lines.append(f"<tr><th>{escape(key)}</th>{cells}</tr>")
    if not lines:
        return ""
    head = "".join(f'<th data-r="{i}">{_swatch(i)} {escape(row.label)}</th>' for i, row in enumerate(comparison.rows))
    table = f'<table id="settings"><thead><tr><th></th>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table>'
    return f'<div class="scroll tall">{table}</div>'


def _images(comparison: Comparison) -> str:
    """The newest image of each name of the first run of every row, as far as there is room."""
    found: dict[str, list[tuple[int, Path]]] = {}
    for index, row in enumerate(comparison.rows):
        own: Mapping[str, Path] = {_name(path): path for path in comparison.runs.runs[row.runs[0]].media}
        for name, path in own.items():
            if name not in _DRAWN_BY_THE_PAGE:
                found.setdefault(name, []).append((index, path))
    room, figures = _MOST_MEDIA, []
    # images that many rows have come before those of few
    names = sorted(found, key=lambda name: (-len(found[name]), name))
    for name in names:
        for index, path in found[name]:
            size = 4 * path.stat().st_size // 3
            room -= size if size <= room else 0
            shown = _medium(path) if size <= room + size and size <= _MOST_MEDIA and room >= 0 else ""
            shown = shown or f'<p class="missing">too large for this page: {escape(str(path))}</p>'
            caption = f"{_swatch(index)} {escape(comparison.rows[index].label)}"
            hidden = " hidden" * (name != names[0])
            figures.append(
                f'<figure data-name="{escape(name, quote=True)}" data-r="{index}"{hidden}>'
                f"<figcaption>{caption}</figcaption>{shown}</figure>"
            )
    if not figures:
        return ""
    options = "".join(f"<option>{escape(name)}</option>" for name in names)
    choice = f'<div class="controls"><select id="media">{options}</select></div>'
    return f'{choice}<div class="gallery">{"".join(figures)}</div>'


def _name(path: Path) -> str:
    stem = path.stem.partition("_latest")[0].partition("_step")[0]
    return f"{stem}{path.suffix.lower()}"


def _medium(path: Path) -> str:
    kind = _TYPES[path.suffix.lower()]
    data = f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
    return f'<video controls src="{data}"></video>' if kind.startswith("video") else f'<img src="{data}" alt="">'
