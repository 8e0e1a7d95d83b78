"""Tables of what `slot_counts.py run` has written; its `report`."""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
from pathlib import Path
from typing import Any

from draw_slot_counts import Curve, Record, draw_panels, draw_trainings
from scipy.stats import spearmanr

from slotbench.comparison.statistics import welch
from slotbench.config.settings import command_line_settings
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
"""Share of the best run's FG-ARI below which a run is named as one that divided the image by place."""
FEWEST = 3
"""Runs of one kind below which they are not tested against others."""
HALF = 0.5
"""Share of the image above which a run's largest slot counts as one that has the background."""


def report(args: argparse.Namespace, settings: list[str]) -> int:
    """Writes and prints the tables of a folder of scores, and draws its figures; the exit code."""
    if settings:
        raise UserError(f"report has no argument {settings[0]}")
    records = [read(path) for path in sorted(args.folder.glob("*.json"))]
    if not records:
        raise UserError(f"there is nothing in {args.folder}: write it with `slot_counts.py run RUN... --out FOLDER`")
    check_alike(records)
    best: dict[tuple[str, int], float] = {}
    for record in records:
        trained = record["trained"] = (objects(record), record["trained_slots"])
        best[trained] = max(best.get(trained, 0.0), record["validation"]["fg_ari"])
    several = len({named for named, _ in best}) > 1
    for record in records:
        named, slots = record["trained"]
        record["spatial"] = record["validation"]["fg_ari"] < SPATIAL * best[named, slots]
        record["training"] = (f", {named}" if several else "") + (f", {slots} slots" if len(best) > 1 else "")
        record["group"] = record["aggregation"] + record["training"]
    # few slots first, and few objects: "[3, 6]" is shorter than "[3, 10]"
    records.sort(key=lambda r: (r["trained_slots"], len(r["training"]), r["group"], r["seed"]))
    lines = [*listing(records), *said_of_iterations(records)]
    lines += by_largest_slot(records)
    lines += ["Median ± largest deviation over runs (mean ± standard deviation), n runs.\n"]
    lines += changes(records)
    lines += few_and_many(records)
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
    found, headings = panels(records), {name: heading for name, (_, heading, _) in SCORES.items()}
    segmentation = {name: headings[name] for name in ("fg_ari", "ari")}
    draw_panels(records, found, segmentation, args.out / "slot_counts_ari.png")
    draw_panels(records, found, {"loss": headings["loss"]}, args.out / "slot_counts_loss.png")
    slots = records[0]["asked"]["objects_slots"]
    if len(best) > 1 and all(slots in curve for r in records for curve in r["by_slots"].values()):
        draw_trainings(records, slots, segmentation, args.out / "slot_counts_trainings.png")
    return 0


def read(path: Path) -> Record:
    """What `run` has written of a run, its scores by numbers, which JSON has as text."""
    record = json.loads(path.read_text())

    def by_number(curve: dict[str, dict[str, float]]) -> Curve:
        return {int(count): scores for count, scores in curve.items()}

    by_slots = {name: by_number(curve) for name, curve in record["by_slots"].items()}
    return record | {"by_slots": by_slots, "by_objects": by_number(record["by_objects"])}


def said_of_iterations(records: list[Record]) -> list[str]:
    """How often slots were corrected per frame in the test, where that is not as in training."""
    pairs = {(record.get("iterations"), record.get("trained_iterations")) for record in records}
    return [
        f"Tested with {tested} iterations, trained with {trained}; the validation split is scored as in training.\n"
        for tested, trained in sorted(pairs, key=str)
        if tested != trained
    ]


def objects(record: Record) -> str:
    """What the data of a run's training has for the arguments that describe the full set: "num_objects [3, 6]"."""
    keys = [setting.key[1:] for setting in command_line_settings(record["asked"].get("full", []))]
    values = leaves(record["config"]["data"]["init_args"])
    return ", ".join(f"{key[-1]} {values.get('.'.join(key))}" for key in keys)


def listing(records: list[Record]) -> list[str]:
    """Every run with the score that the rule goes by, below what segmentations score that learn nothing."""
    lines = ["**FG-ARI on the validation split, with the slots of the training**\n", "| | seed | FG-ARI | |"]
    lines.append("|---|---|---|---|")
    baselines = {record["training"]: record["baselines"] for record in records}
    lines += [f"| *{name}*{of} | | {value:.3f} | |" for of, them in baselines.items() for name, value in them.items()]
    for record in records:
        above = record["validation"]["fg_ari"] > max(record["baselines"].values(), default=math.inf)
        verdict = "spatial" if record["spatial"] else "above every baseline" if above else ""
        lines.append(f"| {record['group']} | {record['seed']} | {record['validation']['fg_ari']:.3f} | {verdict} |")
    return [*lines, ""]


def by_largest_slot(records: list[Record]) -> list[str]:
    """Lines of Markdown: for every training, how runs score whose largest slot has half the image, and the others."""
    scores = ("fg_ari", "ari", "miou", "largest_slot")
    lines = ["**Lowest to highest on the validation split, by the share of the largest slot**\n"]
    lines.append(f"| | | n | {' | '.join(SCORES[name][1] for name in scores)} |")
    lines.append("|---" * (len(scores) + 3) + "|")
    correlations = []
    trainings = {record["trained"]: record["training"].removeprefix(", ") or "all runs" for record in records}
    for trained, title in trainings.items():
        found = [record["validation"] for record in records if record["trained"] == trained]
        for which, at_least_half in (("half and more", True), ("less", False)):
            these = [each for each in found if (each["largest_slot"] >= HALF) == at_least_half]
            values = [[each[name] for each in these] for name in scores]
            cells = [f"{min(each):.3f} to {max(each):.3f}" if each else "" for each in values]
            lines.append(f"| {title} | {which} | {len(these)} | {' | '.join(cells)} |")
        pair = [[each[name] for each in found] for name in ("fg_ari", "largest_slot")]
        if len(found) >= FEWEST and all(len(set(values)) > 1 for values in pair):
            correlations.append(f"{title} {spearmanr(*pair).statistic:.2f}")
    if correlations:
        lines.append(f"\nSpearman's correlation of FG-ARI and the largest slot's share: {'; '.join(correlations)}.")
    return [*lines, ""]


def check_alike(records: list[Record]) -> None:
    """Runs differ in seed, aggregation, slots and objects of the training only, and were asked the same."""
    first, *others = [leaves({"asked": r["asked"], "config": r["config"]}) for r in records]
    full = [setting.key for setting in command_line_settings(records[0]["asked"].get("full", []))]
    free = {"asked.checkpoint", "config.data.init_args.loader.seed"}
    free |= {".".join(("config", "data", "init_args", *key[1:])) for key in full}
    for other, record in zip(others, records[1:], strict=True):
        differing = [key for key in {**first, **other} if first.get(key) != other.get(key)]
        differing = [key for key in differing if key not in free]
        if differing:
            raise UserError(
                f"{records[0]['run']} and {record['run']} differ in {', '.join(differing[:3])}, and belong in folders "
                "of their own"
            )


def leaves(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of a nested dictionary, by their dotted keys."""
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
    for record in records:
        for (kind, name), title in titles.items():
            curve = record[kind] if name is None else record[kind][name]
            found[title].setdefault(record["group"], []).append((record, curve))
    return found


def deviation(values: list[float]) -> tuple[float, float]:
    """Median, and the largest distance of a value from it."""
    median = statistics.median(values)
    return median, max(abs(value - median) for value in values)


def spread(values: list[float], digits: int) -> str:
    """A cell of a table: median ± largest deviation (mean ± standard deviation), or the one value."""
    if not values:
        return ""
    numbers = [*deviation(values), statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0]
    median, most, mean, sd = (f"{number:.{digits}f}" for number in numbers)
    return f"{median} ± {most} ({mean} ± {sd})" if len(values) > 1 else median


def tables(records: list[Record], which: str) -> list[str]:
    """Lines of Markdown: for every panel and score a table of the groups over the counts, headed by `which` runs."""
    lines = []
    for title, groups in panels(records).items():
        for name, (_, label, _) in SCORES.items():
            lines += table(
                f"{label}; {title}; {which}", name, {g: [curve for _, curve in of] for g, of in groups.items()}
            )
    return lines


def changes(records: list[Record]) -> list[str]:
    """Lines of Markdown: what every run's FG-ARI gains or loses with other slots than in its training, and if alike."""
    groups: dict[str, list[Curve]] = {}
    last: dict[str, dict[str, list[float]]] = {}
    for record in records:
        curve = record["by_slots"]["own"]
        start, most = curve[record["trained_slots"]]["fg_ari"], max(curve)
        change = {count: {"fg_ari": scores["fg_ari"] - start} for count, scores in curve.items()}
        groups.setdefault(record["group"], []).append(change)
        training = f"from {record['trained_slots']} to {most} slots{record['training']}"
        last.setdefault(training, {}).setdefault(record["aggregation"], []).append(change[most]["fg_ari"])
    lines = table(f"FG-ARI; {SETS['own']}, less that with the slots of the training; all runs", "fg_ari", groups)
    for training, found in last.items():
        pairs = itertools.combinations([name for name, values in found.items() if len(values) >= FEWEST], 2)
        said = [f"{one} and {other} {welch(found[one], found[other]):.3f}" for one, other in pairs]
        if said:
            lines.append(f"Change {training}, p of Welch's t-test, not corrected: {', '.join(said)}.\n")
    return lines


def few_and_many(records: list[Record]) -> list[str]:
    """Lines of Markdown: whether runs of one aggregation differ by their training, at as many slots in the test."""
    slots = records[0]["asked"]["objects_slots"]
    which = "full" if "full" in records[0]["by_slots"] else "own"
    found: dict[str, dict[str, list[float]]] = {}
    for record in records:
        trained = record["training"].removeprefix(", ")
        if slots in record["by_slots"][which]:
            values = found.setdefault(record["aggregation"], {}).setdefault(trained, [])
            values.append(record["by_slots"][which][slots]["fg_ari"])
    lines = []
    for aggregation, trainings in found.items():
        pairs = itertools.combinations([name for name, values in trainings.items() if len(values) >= FEWEST], 2)
        said = [f"{one} and {other} {welch(trainings[one], trainings[other]):.4f}" for one, other in pairs]
        if said:
            lines.append(
                f"{aggregation}, FG-ARI with {slots} slots, {SETS[which]}, by training, p of Welch's t-test, not "
                f"corrected: {'; '.join(said)}.\n"
            )
    return lines


def table(title: str, score: str, groups: dict[str, list[Curve]]) -> list[str]:
    """Lines of Markdown: a score of the groups over the counts."""
    counts = sorted({count for curves in groups.values() for curve in curves for count in curve})
    lines = [f"**{title}**\n", f"| | {' | '.join(map(str, counts))} | n |", "|---" * (len(counts) + 2) + "|"]
    for group, curves in groups.items():
        values = [[curve[count][score] for curve in curves if count in curve] for count in counts]
        cells = [spread(each, SCORES[score][2]) for each in values]
        lines.append(f"| {group} | {' | '.join(cells)} | {len(curves)} |")
    return [*lines, ""]
