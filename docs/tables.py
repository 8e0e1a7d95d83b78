"""Makes the tables of docs/results.md and docs/results/*.md again, from the records in experiments/grids/records.

    python docs/tables.py [--check] [PAGE ...]

A table stands between two comments. The first names its records and, behind `where`, the runs that it has; a second one
has the columns, each as HEAD = COLUMN with an arrow behind a score, or as one of `parameters` and `seeds`:

    <!-- table: moving_mnist_study.csv where model.core=ConvS5 -->
    <!-- columns: core = model.core | error of 20 frames = val/rollout_mse/first_20 ↓ | seeds -->
    <!-- end of table -->

Runs that agree in the settings among the columns are a row, with mean and standard deviation of their scores; what
learns nothing stands above them. The first score sorts, or the one behind `by`. `competence NAME`, `identity FRAMES`
and `cost` in place of a file are tables of their own. With --check nothing is written, and the exit code is 1 if one
would change.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from slotbench.comparison.formats import decimals, number
from slotbench.comparison.metrics import references_by_name
from slotbench.comparison.runs import gain_of_last_quarter
from slotbench.comparison.statistics import best_of

DOCS = Path(__file__).parent
RECORDS = DOCS.parent / "experiments" / "grids" / "records"
TABLE = re.compile(
    r"(<!-- table: (?P<source>[^\n]*?) -->\n(?:<!-- columns: (?P<columns>[^\n]*) -->\n)?)"
    r"(?P<before>.*?)(<!-- end of table -->)",
    re.DOTALL,
)
ONCE = ("model.core", "seed", "steps", "hours", "seconds_per_step", "parameters")  # one training, in two studies
FACTS = ("grid", "point", "seed", "reported", "state", "steps", "hours", "seconds_per_step", "parameters")
AGREE = 0.05  # what learns nothing scores the same in all runs but for its clips
SETTLED = 0.02


def main() -> int:
    """Makes every table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    pages = [DOCS / "results.md", *sorted((DOCS / "results").glob("*.md"))]
    parser.add_argument("pages", nargs="*", type=Path, default=pages, metavar="PAGE", help="default: all of them")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a table would change")
    args = parser.parse_args()
    changed = []
    for page in args.pages:
        text = page.read_text(encoding="utf-8")
        if (made := remade(text)) != text:
            changed.append(page)
            if not args.check:
                page.write_text(made, encoding="utf-8")
    print("\n".join(f"{page} has changed" for page in changed) or "every table is as the records make it")
    return int(args.check and bool(changed))


def remade(text: str) -> str:
    """A page with its tables made again."""
    return TABLE.sub(lambda match: f"{match[1]}\n{table(match['source'], match['columns'] or '')}\n\n{match[5]}", text)


def table(source: str, columns: str = "") -> str:
    """A table in Markdown, as the two comments above it ask for it."""
    kind, _, rest = source.partition(" ")
    if kind == "competence":
        return competence(rest)
    if kind == "identity":
        return identity(int(rest))
    if kind == "cost":
        return cost()
    where, _, by = rest.partition("by ")
    frame = read_records(kind)
    frame = frame[frame["reported"]]
    for condition in where.removeprefix("where ").split():
        key, _, value = condition.partition("=")
        frame = frame[frame[key] == value]
    return study_table(frame, [tuple(part.rpartition(" = ")[::2]) for part in columns.split(" | ")], by)


def read_records(name: str) -> pd.DataFrame:
    """The runs of a study: settings as text, scores (their names have a slash) as numbers."""
    columns = pd.read_csv(RECORDS / name, nrows=0).columns
    texts = [column for column in columns if "/" not in column and column not in FACTS]
    return pd.read_csv(RECORDS / name, dtype=dict.fromkeys(texts, str))


def study_table(frame: pd.DataFrame, columns: Sequence[tuple[str, str]], by: str = "") -> str:
    """Rows of runs with equal settings, below the baselines of their scores."""
    arrows = {column[:-2]: column[-1] for _, column in [*columns, ("", by)] if column.endswith((" ↑", " ↓"))}
    columns = [(head or column, column.removesuffix(" ↑").removesuffix(" ↓")) for head, column in columns]
    settings = [column for _, column in columns if column not in arrows and column not in ("parameters", "seeds")]
    groups = [group for _, group in frame.groupby(settings, dropna=False, sort=False)]
    first = by[:-2] or next(iter(arrows))
    groups.sort(key=lambda group: group[first].mean(), reverse=arrows[first] == "↑")
    digits = {
        score: decimals([group[score].mean() for group in groups], [group[score].std() for group in groups])
        for score in arrows
    }
    beside = {score: baselines(frame, score) for score in arrows}
    names = dict.fromkeys(name for kind in (0, 1) for score in beside.values() for name in score[kind])
    rows = [
        [f"*{name}*", *(baseline_cell(column, name, beside, digits) for _, column in columns[1:])] for name in names
    ]
    rows = [row for row in rows if any(row[1:])]
    best = {
        score: best_of([group[score].dropna() for group in groups], arrow == "↑") for score, arrow in arrows.items()
    }
    for index, group in enumerate(groups):
        cells = [run_cell(group, column, digits) for _, column in columns]
        rows.append(
            [f"**{c}**" if best.get(column) == index else c for c, (_, column) in zip(cells, columns, strict=True)]
        )
    heads = [f"{head} {arrows[column]}" if column == head and column in arrows else head for head, column in columns]
    return markdown(heads, rows, len(settings))


def baseline_cell(column: str, name: str, beside: dict[str, Any], digits: dict[str, int]) -> str:
    """The score of one predictor that learns nothing."""
    found = {**beside[column][1], **beside[column][0]} if column in beside else {}
    return number(found[name], digits[column]) if name in found else ""


def run_cell(group: pd.DataFrame, column: str, digits: dict[str, int]) -> str:
    """A setting, a fact, or mean ± standard deviation of a score."""
    if column == "seeds":
        return str(len(group))
    if column == "parameters":
        return f"{group[column].iloc[0]:,.0f}"
    if column not in digits:
        return "–" if pd.isna(group[column].iloc[0]) else group[column].iloc[0]
    values = group[column].dropna()
    if not len(values):
        return ""
    spread = f" ± {number(values.std(), digits[column])}" if len(values) > 1 else ""
    return number(values.mean(), digits[column]) + spread


def baselines(frame: pd.DataFrame, score: str) -> tuple[dict[str, float], dict[str, float]]:
    """What baselines and oracles score beside a score, as far as all runs agree."""
    logged = [name for name in frame if name.startswith(("val/baseline/", "val/oracle/"))]
    values = {name: own for name in logged if len(own := frame[name].dropna())}
    agreed = {name: own.mean() for name, own in values.items() if own.max() - own.min() <= AGREE * own.abs().max()}
    learned, oracles = references_by_name(score, agreed)
    return learned, {f"oracle: {name}": value for name, value in oracles.items()}


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]], texts: int) -> str:
    """A table, of which so many columns are text."""
    rule = "|" + "---|" * texts + "---:|" * (len(heads) - texts)
    return "\n".join([f"| {' | '.join(heads)} |", rule, *(f"| {' | '.join(row)} |" for row in rows)])


def cost() -> str:
    """How many trainings the records hold, and how long they took; one that is in two studies counts once."""
    studies = [path.name for path in sorted(RECORDS.glob("*.csv")) if "hours" in pd.read_csv(path, nrows=0)]
    hours = pd.concat(map(read_records, studies)).drop_duplicates(ONCE)["hours"]
    heads = ["trainings", "hours", "median, minutes", "longest, minutes"]
    cells = (len(hours), hours.sum(), 60 * hours.median(), 60 * hours.max())
    return markdown(heads, [[f"{cell:.0f}" for cell in cells]], 0)


def competence(study: str) -> str:
    """Steps and operations after which the mean of the seeds, and the median seed, first reach a named competence.

    Between the last validation without it and the first one with it lies what is not known; both are given.
    """
    curves = pd.read_csv(RECORDS / "competence.csv")
    rows = []
    for core, runs in curves[curves["study"] == study].groupby("core", sort=False):
        higher, level, flops = runs[["higher_is_better", "competence", "flops_per_step"]].iloc[0]
        seeds = [curve.set_index("steps")["value"] for _, curve in runs.groupby("seed")]
        mean = first_reached(sum(seeds) / len(seeds), level, higher)
        each = sorted((first_reached(curve, level, higher) for curve in seeds), key=lambda ends: ends[::-1])
        last = pd.Series([curve.iloc[-1] for curve in seeds])
        gain = pd.Series([gain_of_last_quarter(curve, higher) for curve in seeds]).median()
        end = f"{number(last.mean(), 3)} ± {number(last.std(), 3)}"
        end += f", gains {100 * gain:.0f} %" if gain >= SETTLED else ""
        reach = sum(math.isfinite(by) for _, by in each)
        middle = f"{told(each[(len(each) - 1) // 2])} ({reach} of {len(each)})"
        cells = [core, f"{1e-9 * flops:.2f}", told(mean), middle, told(mean, 1e-12 * flops, 1), end]
        rows.append(((mean[1] * flops, -last.mean() if higher else last.mean()), cells))
    heads = ["core", "GFLOP a step", "steps, mean of seeds", "steps, median seed", "TFLOP, mean of seeds", "at the end"]
    return markdown(heads, [cells for _, cells in sorted(rows)], 1)


def first_reached(curve: pd.Series, level: float, higher: bool) -> tuple[float, float]:
    """The validations between which a curve first reaches a level."""
    reached = curve.index[curve >= level if higher else curve <= level]
    by = reached[0] if len(reached) else math.inf
    return curve.index[curve.index < by].max() if curve.index[0] < by else 0, by


def told(ends: tuple[float, float], scale: float = 1.0, digits: int = 0) -> str:
    """Both ends of where a competence is reached, in other units."""
    low, high = (f"{scale * end:,.{digits}f}" for end in ends)
    return f"> {low}" if math.isinf(ends[1]) else f"{low} to {high}" if ends[0] else f"≤ {high}"


def identity(frames: int, camera: str = "circling") -> str:
    """Slots of cores, by their numbers and linked, and trackers that learn nothing, on clips of so many frames."""
    scores = pd.read_csv(RECORDS / "movi_like_identity.csv")
    scores = scores[(scores["camera"] == camera) & (scores["frames"] == frames)]
    scores = scores.assign(matched=1 - scores["misses"], window=scores["window"].fillna(math.inf))
    rows = []
    known = ["name", "training_frames", "window", "way"]
    for (name, trained, window, way), group in scores.groupby(known, sort=False, dropna=False):
        is_run = group["run"].notna().all()
        label = f"{name} of {trained:.0f} frames" if is_run else f"*{name}*"
        label += ", linked" if way == "linked" else ""
        # one that could read a window, and does not
        whole = is_run and math.isinf(window) and (scores.loc[scores["name"] == name, "window"] < math.inf).any()
        label += ", all frames so far" if whole else ""
        cells = [f"{label}, n = {len(group)}" if is_run else label]
        for score, digits in {"hota": 3, "identity": 2, "matched": 2, "switches_per_object": 2}.items():
            values = group[score].dropna()
            spread = f" ± {values.std():.{digits}f}" if len(values) > 1 else ""
            cells.append(f"{values.mean():.{digits}f}{spread}" if len(values) else "")
        life = group["half_life"].fillna(math.inf).sort_values().iloc[(len(group) - 1) // 2]
        rows.append([*cells, f"> {frames - 1}" if math.isinf(life) else f"{life:.0f}"])
    heads = ["", "HOTA", "FG-ARI, video / frame", "objects with a slot", "switches per object", "half-life, frames"]
    return markdown(heads, rows, 1)


if __name__ == "__main__":
    sys.exit(main())
