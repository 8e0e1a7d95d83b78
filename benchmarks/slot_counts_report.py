"""The tables and figures of what `slot_counts.py run` wrote."""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from slotbench.errors import UserError

# name -> metric of `slotbench test`, heading, decimals
SCORES = {
    "fg_ari": ("test/fg_ari/frame/decoder", "FG-ARI", 3),
    "ari": ("test/ari/frame/decoder", "ARI", 3),
    "miou": ("test/miou/frame/decoder", "mIoU", 3),
    "loss": ("test/loss", "loss", 5),
    "largest_slot": ("test/largest_slot/decoder", "share of the largest slot", 3),
    "live_slots": ("test/live_slots/decoder", "live slots", 2),
}
SETS = {"own": "objects as in training", "full": "full set"}
SPATIAL = 0.5

Record = dict[str, Any]
Curve = dict[int, dict[str, float]]


def report(args: argparse.Namespace, settings: list[str]) -> int:
    if settings:
        raise UserError(f"report has no argument {settings[0]}")
    records = [json.loads(path.read_text()) for path in sorted(args.folder.glob("*.json"))]
    if not records:
        raise UserError(f"there is nothing in {args.folder}: write it with `slot_counts.py run RUN... --out FOLDER`")
    check_alike(records)
    best: dict[int, float] = {}
    for record in records:
        slots = record["trained_slots"]
        best[slots] = max(best.get(slots, 0.0), record["validation"]["fg_ari"])
    for record in records:
        record["spatial"] = record["validation"]["fg_ari"] < SPATIAL * best[record["trained_slots"]]
        record["group"] = record["aggregation"] + (f", {record['trained_slots']} slots" if len(best) > 1 else "")
    lines = listing(records)
    lines += ["Median ± largest deviation over runs (mean ± standard deviation), n runs.\n"]
    lines += tables(records, "all runs")
    dropped = [record for record in records if record["spatial"]]
    if dropped:
        names = ", ".join(f"{record['group']} seed {record['seed']}" for record in dropped)
        lines.append(f"Spatial, by FG-ARI on the validation split below {SPATIAL} of the best: {names}.\n")
        lines += tables([record for record in records if not record["spatial"]], "without spatial runs")
    else:
        lines.append("No run is spatial.\n")
    args.out.mkdir(parents=True, exist_ok=True)
    text = "\n".join(lines)
    (args.out / "slot_counts.md").write_text(text)
    print(text)
    draw(records, ["fg_ari", "ari"], args.out / "slot_counts_ari.png")
    draw(records, ["loss"], args.out / "slot_counts_loss.png")
    return 0


def listing(records: list[Record]) -> list[str]:
    """Every run with the score that the rule goes by, below what segmentations score that learn nothing."""
    lines = ["**FG-ARI on the validation split, with the slots of the training**\n", "| | seed | FG-ARI | |"]
    lines.append("|---|---|---|---|")
    lines += [f"| *{name}* | | {value:.3f} | |" for name, value in records[0]["floors"].items()]
    for record in sorted(records, key=lambda record: (record["group"], record["seed"])):
        verdict = "spatial" if record["spatial"] else ""
        lines.append(f"| {record['group']} | {record['seed']} | {record['validation']['fg_ari']:.3f} | {verdict} |")
    return [*lines, ""]


def check_alike(records: list[Record]) -> None:
    """Runs that are pooled differ in seed, aggregation and slots of the training only, and were asked the same."""
    first, *others = [leaves({"asked": r["asked"], "config": r["config"]}) for r in records]
    for other, record in zip(others, records[1:], strict=True):
        differing = [key for key in {**first, **other} if first.get(key) != other.get(key)]
        differing = [key for key in differing if key not in ("asked.checkpoint", "config.data.init_args.seed")]
        if differing:
            raise UserError(
                f"{records[0]['run']} and {record['run']} differ in {', '.join(differing[:3])}, and belong in folders "
                "of their own"
            )


def leaves(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def panels(records: list[Record]) -> dict[str, dict[str, list[tuple[Record, Curve]]]]:
    """Title of a panel -> group -> each run with its scores by number of slots, or of objects."""
    first = records[0]
    titles = {("by_slots", name): f"{SETS[name]}, by slots" for name in first["by_slots"]}
    slots = first["asked"]["objects_slots"]
    where = SETS["full" if "full" in first["by_slots"] else "own"]
    titles["by_objects", None] = f"{where}, {slots} slots, by objects {first['objects_are']}"
    found: dict[str, dict[str, list[tuple[Record, Curve]]]] = {title: {} for title in titles.values()}
    for record in sorted(records, key=lambda record: (record["trained_slots"], record["group"], record["seed"])):
        for (kind, name), title in titles.items():
            curve = record[kind] if name is None else record[kind][name]
            curve = {int(count): scores for count, scores in curve.items()}
            found[title].setdefault(record["group"], []).append((record, curve))
    return found


def deviation(values: list[float]) -> tuple[float, float]:
    """Median, and the largest distance of a value from it."""
    median = statistics.median(values)
    return median, max(abs(value - median) for value in values)


def spread(values: list[float], digits: int) -> str:
    if not values:
        return ""
    numbers = [*deviation(values), statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0]
    median, most, mean, sd = (f"{number:.{digits}f}" for number in numbers)
    return f"{median} ± {most} ({mean} ± {sd})" if len(values) > 1 else median


def tables(records: list[Record], which: str) -> list[str]:
    lines = []
    for title, groups in panels(records).items():
        counts = sorted({count for found in groups.values() for _, curve in found for count in curve})
        for name, (_, label, digits) in SCORES.items():
            lines += [f"**{label}; {title}; {which}**\n", f"| | {' | '.join(map(str, counts))} | n |"]
            lines.append("|---" * (len(counts) + 2) + "|")
            for group, found in groups.items():
                values = [[curve[count][name] for _, curve in found if count in curve] for count in counts]
                cells = [spread(each, digits) for each in values]
                lines.append(f"| {group} | {' | '.join(cells)} | {len(found)} |")
            lines.append("")
    return lines


def draw(records: list[Record], scores: list[str], path: Path) -> None:
    """A row per score; median in a band of the largest deviation of the runs that are not spatial, the others thin."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from slotbench.tasks.pictures import SLOT_COLOURS

    found = panels(records)
    figure = Figure(figsize=(4.6 * len(found), 3.4 * len(scores)), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(scores), len(found), squeeze=False)
    for row, name in zip(axes, scores, strict=True):
        for axis, (title, groups) in zip(row, found.items(), strict=True):
            for index, (group, runs) in enumerate(groups.items()):
                colour = SLOT_COLOURS[index % len(SLOT_COLOURS)] / 255
                for record, curve in runs:
                    if record["spatial"]:
                        axis.plot(list(curve), [s[name] for s in curve.values()], color=colour, lw=0.8, ls="--")
                kept = [curve for record, curve in runs if not record["spatial"]]
                counts = sorted({count for curve in kept for count in curve})
                middle = [deviation([curve[n][name] for curve in kept if n in curve]) for n in counts]
                axis.plot(counts, [m for m, _ in middle], color=colour, lw=1.8, marker="o", ms=3, label=group)
                low, high = [m - d for m, d in middle], [m + d for m, d in middle]
                axis.fill_between(counts, low, high, color=colour, alpha=0.15, linewidth=0)
            axis.set_title(f"{SCORES[name][1]}: {title}", loc="left", fontsize=9)
            axis.spines[["top", "right"]].set_visible(False)
            axis.xaxis.get_major_locator().set_params(integer=True)
            axis.grid(alpha=0.2)
    axes[0, 0].legend(fontsize=8, frameon=False)
    figure.savefig(path)
