"""The picture of which folder of slotbench imports which, docs/assets/architecture.svg.

    python docs/scripts/draw_architecture.py

Rows are laid out by hand, arrows are read off the import statements (`import_graph`). Every arrow points down; one that
would not is an error. What all may import is a bar at the bottom, and `commands`, which may import everything, one at
the top; a test compares the list of arrows in the file with the code.
"""

from __future__ import annotations

import itertools
from pathlib import Path

from import_graph import EVERYWHERE, folder_arrows

PATH = Path(__file__).resolve().parents[1] / "assets" / "architecture.svg"

TOP = "commands"
ROWS = [
    ["grids", "comparison", "doctor", "bench"],
    ["config", "models"],
    ["callbacks", "tasks", "evaluation", "slotbench_plugins", "templates"],
    ["lightning_compat", "runs", "data", "figures", "registry"],
    ["pretrained", "metrics"],
    ["nn", "testing"],
    ["ops"],
]
# the package itself, its command, what reads docstrings and the names of components are no folders
BESIDE = {"slotbench", "cli", "__main__", "sources", "components", "encoders", "cores", "decoders", "aggregations"}
BESIDE |= {"tokenizers"}
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b07d00", "#3a8fbf", "#7a4fbf", "#8c6d31", "#374151")
WIDTH, BOX, ROW, GAP, LANE = 1000, (118, 34), 92, 30, 7


def arrows() -> list[tuple[str, str]]:
    """Every import between folders, in alphabetical order."""
    return sorted(arrow for arrow in folder_arrows() if not BESIDE & set(arrow))


def places() -> dict[str, tuple[float, int]]:
    """The middle of each box and its row."""
    found = {}
    for row, names in enumerate(ROWS):
        for index, name in enumerate(names):
            found[name] = (WIDTH * (index + 0.5) / len(names), row)
    return found


def height_of(row: int) -> float:
    """The upper edge of a row."""
    return 96 + row * ROW


class Lanes:
    """Ways past the boxes of a row: an arrow takes the gap nearest to its straight line, beside those that have it."""

    def __init__(self) -> None:
        self.taken: set[tuple[int, int]] = set()

    def past(self, row: int, x: float) -> float:
        """Where an arrow near `x` goes through the row."""
        edges = [(middle - BOX[0] / 2 - 8, middle + BOX[0] / 2 + 8) for middle, at in places().values() if at == row]
        ends = sorted({end for pair in edges for end in pair} | {0.0, float(WIDTH)})
        gaps = [(a, b) for a, b in itertools.pairwise(ends) if not any(a >= e[0] and b <= e[1] for e in edges)]
        low, high = min(gaps, key=lambda gap: max(gap[0] - x, x - gap[1], 0.0))
        wanted = min(max(x, low + LANE), high - LANE)
        for step in range(200):  # the nearest lane that is free
            lane = wanted + LANE * (step + 1) // 2 * (-1) ** step
            key = (row, round(lane / LANE))
            if low < lane < high and key not in self.taken:
                self.taken.add(key)
                return lane
        return wanted


def path_of(start: str, end: str, ports: dict[tuple[str, str, str], float], lanes: Lanes) -> str:
    """The arrow as a line that is vertical wherever it passes a row."""
    (_, first), (_, last) = places()[start], places()[end]
    if last <= first:
        raise SystemExit(f"{start} imports {end}, which stands above it or beside it in ROWS")
    x, y = ports[start, end, "out"], height_of(first) + BOX[1]
    goal = ports[start, end, "in"]
    words = [f"M{x:.0f},{y:.0f}"]
    for row in range(first + 1, last + 1):
        share = (row - first) / (last - first)
        there = goal if row == last else lanes.past(row, x + (goal - x) * share)
        top = height_of(row) - (7 if row == last else 0)
        middle = (y + top) / 2
        words.append(f"C{x:.0f},{middle:.0f} {there:.0f},{middle:.0f} {there:.0f},{top:.0f}")
        if row < last:
            words.append(f"L{there:.0f},{top + BOX[1]:.0f}")
        x, y = there, top + BOX[1]
    return " ".join(words)


def ports_of(drawn: list[tuple[str, str]]) -> dict[tuple[str, str, str], float]:
    """Where arrows leave and reach their boxes: spread along the edge, in the order of where they go to."""
    at, found = places(), {}
    for name, (x, _) in at.items():
        for way, ends in (("out", [e for s, e in drawn if s == name]), ("in", [s for s, e in drawn if e == name])):
            ends.sort(key=lambda other: at[other][0])
            for index, other in enumerate(ends):
                offset = (index + 0.5) / len(ends) - 0.5
                pair = (name, other) if way == "out" else (other, name)
                found[(*pair, way)] = x + 0.86 * BOX[0] * offset
    return found


def box(x: float, y: float, width: float, text: str, fill: str, stroke: str) -> str:
    """A rounded rectangle with its name."""
    return (
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{BOX[1]}" rx="6" fill="{fill}" stroke="{stroke}" '
        f'stroke-width="1.5"/><text x="{x + width / 2:.0f}" y="{y + 22:.0f}" text-anchor="middle">{text}</text>'
    )


def draw() -> str:
    """The file."""
    everything = arrows()
    at = places()
    bars = {"interfaces", *EVERYWHERE}
    drawn = [(start, end) for start, end in everything if start != TOP and end not in bars and start not in bars]
    if unplaced := {name for arrow in everything for name in arrow} - set(at) - bars - {TOP}:
        raise SystemExit(f"no place in ROWS for {', '.join(sorted(unplaced))}")
    ports, lanes = ports_of(drawn), Lanes()
    names = [name for row in ROWS for name in row]
    colours = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}
    bottom = height_of(len(ROWS)) - 30
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 2 * 46:.0f}" role="img" '
        'font-family="Helvetica, Arial, sans-serif" font-size="14" fill="#111827">',
        "<title>Which folder of slotbench imports which</title>",
        "<metadata>" + ", ".join(f"{start} -&gt; {end}" for start, end in everything) + "</metadata>",
        f'<rect width="{WIDTH}" height="{bottom + 2 * 46:.0f}" fill="#ffffff"/><defs>',
    ]
    out += [
        f'<marker id="a{colour[1:]}" viewBox="0 0 8 8" refX="1" refY="4" markerWidth="5" markerHeight="5" '
        f'orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="{colour}"/></marker>'
        for colour in COLOURS
    ]
    out.append("</defs>")
    out.append(box(10, 20, WIDTH - 20, "commands: may import every folder below", "#e5e7eb", "#374151"))
    for start, end in sorted(drawn, key=lambda arrow: (at[arrow[0]][1] - at[arrow[1]][1], arrow), reverse=True):
        line = path_of(start, end, ports, lanes)
        mark = f'marker-end="url(#a{colours[start][1:]})"'
        out.append(f'<path d="{line}" fill="none" stroke="{colours[start]}" stroke-width="1.5" {mark}/>')
    for name, (x, row) in at.items():
        out.append(box(x - BOX[0] / 2, height_of(row), BOX[0], name, "#f9fafb", colours[name]))
    texts = ["interfaces: every folder may import it, ops excepted"]
    texts.append(f"every folder may import {', '.join(sorted(EVERYWHERE))}")
    for index, text in enumerate(texts):
        out.append(box(10, bottom + 46 * index, WIDTH - 20, text, "#e5e7eb", "#374151"))
    return "\n".join([*out, "</svg>"]) + "\n"


if __name__ == "__main__":
    PATH.write_text(draw(), encoding="utf-8")
    print(f"wrote {PATH}")
